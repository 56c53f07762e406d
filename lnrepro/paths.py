"""Checks of paths that the user gives."""

from __future__ import annotations

import os
import pathlib
import re

from lnrepro.errors import UserError


def local_path(path: str | os.PathLike, name: str) -> pathlib.Path:
    """Return a path of this machine, where "~" is the home folder.

    A shell replaces "~" only at the start of a word, not in --flag=~/folder.

    Args:
      path: what the user gave.
      name: what it is called, for the message.

    Raises:
      UserError: it is an address, such as gs://bucket/folder, or an unknown home.
    """
    text = os.fspath(path)
    # pathlib makes one slash of two.
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if scheme:
        raise UserError(
            f"{name} = {text}: this is on no disk of this machine; mount it, and give "
            "the path of the mount"
        )
    try:
        return pathlib.Path(text).expanduser()
    except RuntimeError:
        raise UserError(f"{name} = {text}: there is no such home folder") from None
