"""Command lines that report a mistake in one line."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from lnrepro.errors import UserError
from lnrepro.paths import local_path


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a mistake as a UserError of one line.

    Words are paths of this machine where they can be, see `local_path`.
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
        """Parse, and expand the paths of the command line, see `local_path`."""
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args([_local(word) for word in words], namespace)

    def convert_arg_line_to_args(self, line: str) -> list[str]:
        """Expand the path of a line of a file of flags, too."""
        return [_local(line)]


def _local(word: str) -> str:
    """Return a word of a command line with the `local_path` of what is a path in it."""
    start = word.find("=") + 1 if word.startswith("-") else 0
    flag, value = word[:start], word[start:]
    # What can only be a path that is changed or refused.
    if re.match(r"~[\w.-]*(/|$)|[a-z][\w+.-]*://", value):
        return f"{flag}{local_path(value, flag.rstrip('=') or 'a path')}"
    return word
