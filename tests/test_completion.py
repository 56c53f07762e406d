"""Completion of the command line in bash and zsh, and the help of config files."""

import os
import pty
import select
import shutil
import subprocess
import sys

import pytest

from configs import draw
from lnrepro import completion, main
from lnrepro.config import fields
from lnrepro.engine import config_file
from lnrepro.errors import UserError
from tests.runs import ROOT, environment


@pytest.mark.parametrize("file", config_file.configs())
def test_every_field_of_every_variant_has_a_line_of_help(file):
    module = config_file.load_module(file)
    said, used = config_file.helps(module), set()
    for name in config_file.variants(module):
        for field in fields(config_file.read(f"{file}:{name}")):
            assert config_file.help_of(field, said), f"{file}: {field}"
            used.add(field)
    # No line is about a field that does not exist.
    assert set(getattr(module, "HELP", {})) <= used


def test_help_of_a_config_shows_variants_and_fields(capsys):
    assert main.main(["main", "--help", "--config=configs/draw.py:small"]) == 0
    text = capsys.readouterr().out
    for name in draw.VARIANTS:
        assert f"  configs/draw.py:{name}\n" in text or not name
    assert "--config.steps=9000\n      number of optimiser steps\n" in text
    assert main.main(["main", "--help", "--config=configs/drew.py"]) == 2
    assert "did you mean configs/draw.py?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--config=configs/m"], ["--config=configs/mnist.py"]),
        (
            ["--config=configs/mnist.py:smal"],
            ["--config=configs/mnist.py:small", "--config=configs/mnist.py:small_bz4"],
        ),
        (
            ["--config=configs/draw.py", "--config.model.re"],
            ["--config.model.read_size="],
        ),
        (
            ["--config.optimizer.b"],
            ["--config.optimizer.b1=", "--config.optimizer.b2="],
        ),
        (["--config=configs/mnist.py", "--config.norm=l"], ["--config.norm=layer"]),
        (["--peer"], ["--peer_timeout"]),
        (["nonsense"], []),
    ],
)
def test_words(words, expected):
    assert completion.complete(["python", "-m", "lnrepro.main", *words]) == expected


def bash(line, tmp_path):
    """The words that bash offers for a line, as it would insert them."""
    code = (
        f'eval "$({sys.executable} -m lnrepro.completion bash)"\n'
        f"COMP_LINE='{line}' COMP_POINT={len(line)} COMP_WORDS=({line})\n"
        '_lnrepro; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    return subprocess.run(
        ["bash", "--norc", "-c", code],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()


def test_bash(tmp_path):
    line = f"{sys.executable} -m lnrepro.main --config=configs/draw.py"
    assert bash(f"{line}:smo", tmp_path) == ["smoke"]
    assert bash(f"{line} --config.model.gl", tmp_path) == ["--config.model.glimpses="]
    assert bash(f"{line} --config.norm=lay", tmp_path) == ["layer_cell"]
    assert bash(f"{line} ", tmp_path) == bash(f"{line} --", tmp_path)
    assert bash("python other.py --config=", tmp_path) == []


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh(tmp_path):
    # zsh completes in its line editor only, which needs a terminal.
    terminal, end = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"],
        cwd=ROOT,
        env=environment(tmp_path) | {"TERM": "dumb"},
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
    )
    os.close(end)

    def read_until(wanted):
        shown = ""
        for _ in range(600):
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 4096).decode()
            if wanted in shown:
                return
        raise AssertionError(shown)

    try:
        for command in (
            "autoload -U compinit; compinit -u -D",
            f'eval "$({sys.executable} -m lnrepro.completion zsh)"',
            f"compdef _lnrepro {sys.executable}",
            # The quotes keep the echo of the command from being the answer.
            'print "re"ady',
        ):
            os.write(terminal, f"{command}\n".encode())
        read_until("ready\r\n")
        line = f"{sys.executable} -m lnrepro.main --config=configs/draw.py:smo"
        os.write(terminal, f"{line}\t".encode())
        read_until("draw.py:smoke")
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)


def test_another_shell_is_one_line():
    with pytest.raises(UserError, match="give bash or zsh"):
        completion.main(["fish"])
