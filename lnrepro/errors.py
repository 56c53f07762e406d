"""Errors that end a command in one line and an exit code, without a traceback."""

import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn, TextIO

# The modules of each extra of the package, by the names they are imported under.
EXTRAS = {
    "train": (
        "absl ml_collections optax orbax grain sklearn tensorboardX matplotlib PIL "
        "HersheyFonts sentencex safetensors filelock tensorflow_datasets array_record "
        "importlib_resources"
    ),
    "sweep": "ray submitit",
}


class UserError(Exception):
    """A mistake that the user can correct.

    The message is one line that says what is wrong, where, and what to do.
    """

    exit_code = 2


class DataError(UserError):
    """A file or data set that is missing, damaged or not what it claims to be.

    The message names the file, and the line if there is one. Characters of files and
    of their names that cannot be printed in one line are escaped.
    """

    def __init__(self, message: str):
        """Make the message printable."""
        escaped = (c if c.isprintable() else ascii(c)[1:-1] for c in message)
        super().__init__("".join(escaped))


class RunError(UserError):
    """A run that started and failed, such as for a full disk or a loss that is NaN.

    What was saved before is intact.
    """

    exit_code = 1


class Diverged(RunError):
    """A metric became NaN or infinite.

    Attributes:
      metric: name of the number, such as "train/loss".
      step: the step after which it was measured.
    """

    def __init__(self, metric: str, value: Any, step: int):
        """Make the message; `value` says what the metric is."""
        super().__init__(
            f"{metric} is {value} at step {step}: stopped; the last good checkpoint is "
            "kept. Try a smaller config.optimizer.learning_rate or "
            "config.optimizer.clip in another --workdir"
        )
        self.metric, self.step = metric, step


class Stopped(Exception):
    """SIGTERM, SIGINT or SIGHUP arrived, and the state is saved.

    Attributes:
      exit_code: 128 plus the number of the signal.
    """

    def __init__(self, signum: int, step: int):
        """Make the message for signal `signum` after `step` steps."""
        name = signal.Signals(signum).name
        super().__init__(
            f"stopped by {name} at step {step}; saved, the same command resumes"
        )
        self.exit_code = 128 + signum


def first_line(error: Exception) -> str:
    """Return the first line of a message, or the name of an error without one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]


def not_installed(e: ModuleNotFoundError, doing: str) -> str:
    """Return the line that says how to install a missing module.

    Args:
      e: the error.
      doing: what needs the module.

    Raises:
      ModuleNotFoundError: no extra has the module, so that this is a bug.
    """
    name = (e.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if name in modules.split():
            return (
                f"error: {name} is not installed; {doing} needs: pip install "
                f"'lnrepro[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
            )
    raise e


def open_output() -> None:
    """Open stdout and stderr, where who started this process has closed them.

    The next file that is opened would get their numbers, and what libraries print.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a text where it can be printed, and go on where it cannot.

    The terminal of a long run may be gone, the reader of its pipe, or the room on the
    disk of its log.

    Args:
      text: the text.
      stream: sys.stderr, or None for sys.stdout.
    """
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # What Python still holds, and all that follows, goes nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (stream or sys.stdout).fileno())


def exit_code(main: Callable[[], int | None], doing: str) -> int:
    """Call a function, and print an error that the user can correct as one line.

    Args:
      main: returns the exit code; None is 0.
      doing: what it does, for the line about a module that is not installed.

    Returns:
      0 done, 1 failed, 2 a mistake of the user, 128 + n stopped by signal n.
    """
    try:
        return main() or 0
    except ModuleNotFoundError as e:
        line, code = not_installed(e, doing), UserError.exit_code
    except UserError as e:
        line, code = f"error: {e}", e.exit_code
    except Stopped as e:
        line, code = str(e), e.exit_code
    except KeyboardInterrupt:
        line, code = "interrupted", 128 + signal.SIGINT
    except BrokenPipeError:
        # Who read the output has enough, as `head` has. Python would complain about
        # the closed pipe once more when it flushes.
        os._exit(128 + signal.SIGPIPE)
    except OSError as e:
        where = f"{e.filename}: " if e.filename else ""
        line, code = f"error: {where}{e.strerror or e}", RunError.exit_code
    say(line, sys.stderr)
    return code


def run_script(main: Callable[[list[str]], int | None], doing: str) -> NoReturn:
    """Run the `main` of a script and exit, see `exit_code`. Warnings are one line.

    Args:
      main: takes the arguments and returns the exit code; None is 0.
      doing: what the script does.
    """
    warnings.showwarning = _print_warning
    # So that temporary folders are deleted. By default, SIGTERM ends Python at once.
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(exit_code(lambda: main(sys.argv[1:]), doing))


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    say(f"warning: {message}", sys.stderr)


def _stop(signum: int, _: object) -> NoReturn:
    sys.exit(128 + signum)
