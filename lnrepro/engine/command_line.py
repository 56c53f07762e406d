"""Command lines that report a mistake in one line."""

import argparse
from typing import NoReturn

from lnrepro.engine.errors import UserError


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a mistake as a UserError of one line."""

    def __init__(self, **options):
        """Keep the line breaks of the description."""
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=formatter, **options)

    def error(self, message: str) -> NoReturn:
        """Raise UserError."""
        raise UserError(f"{message}; see --help")
