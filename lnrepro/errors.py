"""Errors that end a command in one line and an exit code, without a traceback."""

import contextlib
import importlib.util
import io
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

# The modules of each extra of the package, by the names they are imported under.
EXTRAS = {
    "train": (
        "absl ml_collections optax orbax grain sklearn tensorboardX matplotlib PIL "
        "rich HersheyFonts sentencex safetensors filelock tensorflow_datasets "
        "array_record importlib_resources"
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

    The message names the file, and the line if there is one.
    """


class RunError(UserError):
    """A run that started and failed, such as for a full disk or a loss that is NaN.

    What was saved before is intact.
    """

    exit_code = 1


class Diverged(RunError):
    """A number of a run is not finite.

    Attributes:
      metric: name of the number, such as "train/loss".
      step: the step after which it was measured.
    """

    def __init__(self, what: str, metric: str, step: int):
        """Make the message; `what` says what is not finite."""
        super().__init__(
            f"{what}: stopped; the last good checkpoint is kept. Try a smaller "
            "config.optimizer.learning_rate or config.optimizer.clip in another "
            "--workdir"
        )
        self.metric, self.step = metric, step


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


def print_any_character() -> None:
    """Print characters that the terminal or pipe has not as backslash sequences.

    A terminal in ASCII, or a path that is not in UTF-8, is no reason to fail.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _stop(signum: int, _: object) -> NoReturn:
    sys.exit(128 + signum)


def check_checkout() -> None:
    """Check that a script and what it imports are of one checkout.

    Raises:
      UserError: lnrepro is that of another checkout, or a package that is installed has
        the name of a folder of the checkout.
    """
    root = pathlib.Path(__file__).resolve().parents[1]
    script = pathlib.Path(getattr(sys.modules["__main__"], "__file__", "")).resolve()
    for folder in script.parents:
        if (folder / "lnrepro/errors.py").exists() and folder != root:
            raise UserError(
                f"{script} imports lnrepro from {root}; run it with the Python of its "
                f"own checkout, or set PYTHONPATH={folder}"
            )
    for name in ("scripts", "experiments"):
        found = importlib.util.find_spec(name)
        places = (found and found.submodule_search_locations) or ()
        hidden = root / name not in [pathlib.Path(place).resolve() for place in places]
        if hidden and (root / name).exists():
            there = found and (found.origin or list(places))
            raise UserError(
                f"a package {name} ({there}) hides {root / name}; uninstall it, or "
                "take it off PYTHONPATH"
            )


class LossyOutput(io.TextIOWrapper):
    """An output whose text is dropped once it cannot be written.

    The terminal of a long run may be gone, the disk of its log full, or the reader of
    its pipe.
    """

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        with self._dropping():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what is left."""
        with self._dropping():
            super().flush()

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            # What Python still holds, and all that follows, goes nowhere.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


def outlive_output() -> None:
    """Let this process go on without its terminal, its log or the reader of its pipe.

    To be called before anything is printed.
    """
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            # It was closed by who started this process. The next file that is opened
            # would get its number, and what libraries print there.
            opened = os.open(os.devnull, os.O_WRONLY)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            stream = open(descriptor, "w", closefd=False)
        setattr(
            sys,
            name,
            LossyOutput(stream.detach(), stream.encoding, line_buffering=True),
        )
    # The system sends it when a terminal is closed.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def ended(main: Callable[[list[str]], int | None], doing: str) -> NoReturn:
    """Run the `main` of a script and exit.

    Args:
      main: takes the arguments and returns the exit code; None is 0.
      doing: what the script does, for the line about a module that is not installed.
    """
    print_any_character()
    # So that temporary folders are deleted. By default, SIGTERM ends Python at once.
    signal.signal(signal.SIGTERM, _stop)
    try:
        check_checkout()
        sys.exit(main(sys.argv[1:]))
    except UserError as e:
        line, code = f"error: {e}", e.exit_code
    except ModuleNotFoundError as e:
        line, code = not_installed(e, doing), UserError.exit_code
    except BrokenPipeError:
        # Who read the output has enough, as `head` has. Python would complain about
        # the closed pipe once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as e:
        where = f"{e.filename}: " if e.filename else ""
        line, code = f"error: {where}{e.strerror or e}", RunError.exit_code
    except KeyboardInterrupt:
        line, code = "interrupted", 130
    print(line, file=sys.stderr)
    sys.exit(code)
