"""Sections of pages that scripts write.

A section stands between two lines of comments. The first one names its script.
"""

import pathlib

from lnrepro.engine import json_files
from lnrepro.errors import UserError

END = "<!-- end -->"


def read(page: pathlib.Path, script: str) -> str:
    """Return the text of a section.

    Args:
      page: the page.
      script: the script that writes the section.

    Raises:
      UserError: the page does not have its lines.
    """
    _, section, _ = _parts(page, script)
    return section.strip("\n")


def write(page: pathlib.Path, script: str, text: str) -> None:
    """Replace the text of a section.

    Args:
      page: the page.
      script: the script that writes the section.
      text: the new text.

    Raises:
      UserError: the page does not have its lines.
    """
    before, _, after = _parts(page, script)
    text = text.strip("\n")
    json_files.replace(page, f"{before}\n\n{text}\n\n{after}")


def _parts(page, script):
    """Return the page up to the first line, the section, and the rest of the page."""
    begin = f"<!-- written by {script} -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(f"{begin}\n")
    section, end, after = rest.partition(END)
    if not (found and end):
        raise UserError(f"{page}: the lines {begin} and {END} are needed")
    return before + begin, section, end + after
