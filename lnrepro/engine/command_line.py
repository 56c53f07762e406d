"""Command lines that report a mistake in one line."""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from lnrepro.errors import UserError
from lnrepro.paths import is_path, local_path


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a mistake as a UserError of one line.

    Paths may begin with "~", see `local_path`.
    """

    def __init__(self, **options):
        """Keep the line breaks of the description."""
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=formatter, **options)

    def error(self, message: str) -> NoReturn:
        """Raise UserError."""
        raise UserError(f"{message}; see --help")

    def parse_known_args(
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse, and expand the paths of the flags, see `local_path`."""
        found, rest = super().parse_known_args(args, namespace)
        for name, value in vars(found).items():
            if isinstance(value, list):
                setattr(found, name, [_local(item, name) for item in value])
            else:
                setattr(found, name, _local(value, name))
        return found, rest


def print_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line. To be used as `warnings.showwarning`."""
    print(f"warning: {message}", file=sys.stderr)


def _local(value: Any, name: str) -> Any:
    """Return `local_path` of a path flag, also where its type is str."""
    if isinstance(value, pathlib.Path):
        return local_path(value, name)
    if isinstance(value, str) and is_path(value):
        return str(local_path(value, name))
    return value
