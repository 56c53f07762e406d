"""What a command tells its user when it cannot go on: one line, an exit code, no traceback."""

import sys
from collections.abc import Callable
from typing import NoReturn

# What the extras bring, by the names that missing ones are imported under.
EXTRAS = {
    "train": "absl ml_collections optax orbax tensorflow_datasets grain array_record sklearn tensorboardX matplotlib PIL rich "
    "importlib_resources HersheyFonts",
    "sweep": "ray submitit",
}


class UserError(Exception):
    """A mistake the user can mend. The message is the line shown: what is wrong, where, and what to do."""

    exit_code = 2


class DataError(UserError):
    """A file or data set that is missing, damaged or not what it claims to be; names the file, and the line if there is one."""


class RunError(UserError):
    """A run that started well and failed: a non-finite loss, a full disk. What was saved before stays."""

    exit_code = 1


def not_installed(e: ModuleNotFoundError, doing: str) -> str:
    """The line that names the missing module and the command that brings it; one that no extra brings is a bug: raised."""
    name = (e.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if name in modules.split():
            what = f"pip install 'lnrepro[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
            return f"error: {name} is not installed; {doing} needs: {what}"
    raise e


def ended(main: Callable[[list[str]], int | None], doing: str) -> NoReturn:
    """Run a script's `main(arguments)` and exit: 0 or what it returns, else one line and the error's exit code."""
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as e:
        line, code = f"error: {e}", e.exit_code
    except ModuleNotFoundError as e:
        line, code = not_installed(e, doing), UserError.exit_code
    except KeyboardInterrupt:
        line, code = "interrupted", 130
    print(line, file=sys.stderr)
    sys.exit(code)
