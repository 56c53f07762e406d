"""Checks of sizes against a data set, and of paths."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from lnrepro.errors import DataError, UserError

if TYPE_CHECKING:
    from ml_collections import ConfigDict


class Size(NamedTuple):
    """A size of a data set, for a field of the config.

    Attributes:
      value: the value that a field gets which is None.
      least: the smallest value that fits.
      most: the largest value that fits. If neither is given, only `value` fits.
    """

    value: Any
    least: float | None = None
    most: float | None = None

    def problem(self, stated: Any) -> str:
        """Return why a value does not fit, or "". Of a tuple, the last entry counts."""
        if self.least is None and self.most is None:
            return "" if stated == self.value else f"has {self.value}"
        number = stated[-1] if isinstance(stated, tuple) else stated
        if self.least is not None and number < self.least:
            return f"needs at least {self.least}"
        if self.most is not None and number > self.most:
            return f"allows at most {self.most}"
        return ""


def check_sizes(config: ConfigDict, sizes: Mapping[str, Size]) -> None:
    """Check that the sizes in a config fit the data set.

    Args:
      config: the config.
      sizes: what the data set says, by the dotted name of the field.

    Raises:
      DataError: some do not fit; all of them are named.
    """
    problems, flags = [], []
    for field, size in sizes.items():
        stated = attrgetter(field)(config)
        if problem := size.problem(stated):
            problems.append(
                f"config.{field} = {stated}, but {config.data.name} {problem}"
            )
            flags.append(size_flag(field, size))
    if problems:
        raise DataError(f"{'; '.join(problems)}; pass {' '.join(flags)}")


def size_flag(field: str, size: Size) -> str:
    """Return the flag, quoted for a shell, that sets a field to what the data says."""
    return shlex.quote(f"--config.{field}={str(size.value).replace(' ', '')}")


def is_path(text: str) -> bool:
    """Whether a text can only be a path that `local_path` changes or refuses."""
    return re.match(r"~[\w.-]*(/|$)|(gs|s3|hdfs)://", text) is not None


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
