"""Completion of `python -m lnrepro.main` and scripts/quickstart in bash and zsh.

    eval "$(python -m lnrepro.completion bash)"    in ~/.bashrc
    eval "$(python -m lnrepro.completion zsh)"     in ~/.zshrc, after compinit

It completes config files, their variants, the fields of a config and the flags, as of
the current directory.
"""

import pathlib
import re
from collections.abc import Sequence

from lnrepro.errors import UserError, ended

# The shells call this module with the word and the words before it. A command line of
# another program is completed as ever.
BASH = r"""
_lnrepro() {
  local line=${COMP_LINE:0:COMP_POINT} python=${COMP_WORDS[0]}
  case $line in
    *lnrepro.main*) ;;
    *quickstart*) python=.venv/bin/python ;;
    *) COMPREPLY=(); return ;;
  esac
  local before word=${line##* }
  read -ra before <<<"${line% *}"
  local IFS=$'\n'
  COMPREPLY=($("$python" -m lnrepro.completion words "${before[@]}" "$word" \
    2>/dev/null))
  # bash replaces what is behind the last = or : alone.
  COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*[=:]}"}"}")
}
complete -o default -o nospace -F _lnrepro \
  python python3 .venv/bin/python scripts/quickstart
"""
ZSH = r"""
_lnrepro() {
  local python=$words[1]
  case "$words" in
    *lnrepro.main*) ;;
    *quickstart*) python=.venv/bin/python ;;
    *) _default; return ;;
  esac
  local -a found
  found=(${(f)"$($python -m lnrepro.completion words "${(@)words[1,CURRENT]}" \
    2>/dev/null)"})
  compadd -U -S '' -- $found
}
compdef _lnrepro python python3 .venv/bin/python scripts/quickstart
"""


def main(argv: Sequence[str]) -> None:
    """Print a script for a shell, or the words that complete a command line.

    Raises:
      UserError: another shell.
    """
    if argv[:1] == ["words"]:
        print("\n".join(complete(argv[1:])))
    elif argv == ["bash"]:
        print(BASH)
    elif argv == ["zsh"]:
        print(ZSH)
    else:
        raise UserError('give bash or zsh: eval "$(python -m lnrepro.completion bash)"')


def complete(words: Sequence[str]) -> list[str]:
    """Return the words that the last word may become, sorted.

    Args:
      words: the words of the command line, up to the cursor.
    """
    word = words[-1] if words else ""
    if word.startswith("--config="):
        found = _configs(word.removeprefix("--config="))
        found = [f"--config={config}" for config in found]
    elif word.startswith("--config."):
        found = _fields(words[:-1], word)
    else:
        from lnrepro import main

        found = [f"--{name}" for name in main.flag_names()] + ["--config="]
    return sorted({choice for choice in found if choice.startswith(word)})


def _configs(value):
    """Return FILE and FILE:VARIANT for what was typed of --config."""
    from lnrepro.engine import config_file

    file, colon, _ = value.partition(":")
    if not colon and not pathlib.Path(file).is_file():
        return config_file.configs()
    module = config_file.load_module(file)
    return [f"{file}:{name}" if name else file for name in config_file.variants(module)]


def _fields(words, word):
    """Return the fields of the config that was given, or the values of its norm."""
    from lnrepro.config import HELP, fields
    from lnrepro.engine import config_file

    pattern = re.compile(r"--config=(.+)")
    configs = [match[1] for match in map(pattern.fullmatch, words) if match]
    if not configs:
        return [f"--config.{name}=" for name in HELP]
    if word.startswith("--config.norm="):
        module = config_file.load_module(configs[-1].partition(":")[0])
        return [f"--config.norm={norm}" for norm in getattr(module, "NORMS", ())]
    config = config_file.read(configs[-1])
    return [f"--config.{name}=" for name in fields(config)]


if __name__ == "__main__":
    ended(main, "completion")
