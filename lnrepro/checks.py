"""Checks of a config's fields, named as on the command line, and of paths."""

from __future__ import annotations

import math
import numbers
import os
import pathlib
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from lnrepro.errors import DataError, UserError

if TYPE_CHECKING:
    from ml_collections import ConfigDict


class Range(NamedTuple):
    """The numbers that a field may have.

    Attributes:
      words: what is said about them.
      holds: number -> whether it is one of them; false for NaN.
    """

    words: str
    holds: Callable[[Any], bool]


def _whole(least: int, most: int) -> Range:
    """Return the range of the whole numbers from `least` to `most`."""

    def holds(x: Any) -> bool:
        is_whole = isinstance(x, numbers.Integral) and not isinstance(x, bool)
        return is_whole and least <= int(x) <= most

    words = f"at least {least} is needed, a whole number of at most {most:,}"
    return Range(words, holds)


# JAX counts in 32 bits.
AT_LEAST_1 = _whole(1, 2**31 - 1)
# A batch is made whole.
BATCH = _whole(1, 10**7)
ABOVE_0 = Range("a finite number above 0 is needed", lambda x: 0 < x < math.inf)
DECAY = Range("a number from 0 to below 1 is needed", lambda x: 0 <= x < 1)
# NumPy's and JAX's generators take larger seeds only modulo this number.
SEED = _whole(0, 2**32 - 1)

# Fields of every config.
RANGES: Mapping[str, Range] = {
    "seed": SEED,
    "batch_size": BATCH,
    "steps": AT_LEAST_1,
    "epochs": ABOVE_0,
    "steps_per_call": AT_LEAST_1,
    "log_every": AT_LEAST_1,
    "save_every": AT_LEAST_1,
    "eval_batch_size": BATCH,
    "data.train_examples": AT_LEAST_1,
    "optimizer.learning_rate": ABOVE_0,
    "optimizer.b1": DECAY,
    "optimizer.b2": DECAY,
    "optimizer.eps": ABOVE_0,
    "optimizer.clip": ABOVE_0,
}
# The values of fields of every config that have few.
CHOICES = {
    "placement": ("jit", "pmap"),
    "kernels": ("off", "auto", "on"),
    "best.mode": ("min", "max"),
}
# Fields that may be None, also where they are no placeholders. None means not set.
MAY_BE_NONE = (
    "steps",
    "epochs",
    "log_every",
    "save_every",
    "data.train_examples",
    "optimizer.clip",
)


def check_ranges(config: ConfigDict) -> None:
    """Check the numbers and names that all configs have, before a run writes anything.

    Args:
      config: the config of the run.

    Raises:
      UserError: a number is not in its range, or the data set has no name.
    """
    for field in RANGES:
        if field not in MAY_BE_NONE or attrgetter(field)(config) is not None:
            check_range(field, attrgetter(field)(config))
    if not isinstance(config.data.name, str):
        raise UserError(
            f"config.data.name = {config.data.name}: the name of a data set is needed; "
            "python scripts/prepare.py --list shows them"
        )
    for field, choices in CHOICES.items():
        check_choice(config, field, choices)


def check_range(field: str, value: Any) -> None:
    """Check that a field is a number that it may have.

    Args:
      field: one of RANGES.
      value: its value.

    Raises:
      UserError: it is another number, or None.
    """
    allowed = RANGES[field]
    if not isinstance(value, numbers.Real) or not allowed.holds(value):
        raise UserError(f"config.{field} = {value}: {allowed.words}")


def check_seed(seed: int, name: str = "seed") -> None:
    """Check a seed that is given to a trained network, or of an evaluation.

    Args:
      seed: the seed.
      name: what it is called, for the message.

    Raises:
      UserError: JAX would take it modulo 2^32, so that it equals another seed.
    """
    if not SEED.holds(seed):
        raise UserError(f"{name} = {seed}: {SEED.words}")


def check_choice(
    config: ConfigDict, field: str, choices: Collection[str | None]
) -> None:
    """Check that a field has one of the values in `choices`.

    Args:
      config: the config of the run.
      field: dotted name of the field, such as "norm".
      choices: the values allowed.

    Raises:
      UserError: the field has another value.
    """
    value = attrgetter(field)(config)
    if value not in choices:
        allowed = ", ".join(map(str, choices))
        raise UserError(f"config.{field} = {value!r}: choose one of {allowed}")


def check_at_least(
    config: ConfigDict, least: int, *fields: str, or_none: bool = False
) -> None:
    """Check that each field is a number of at least `least`, or a tuple of such.

    Args:
      config: the config of the run.
      least: the smallest value allowed.
      *fields: dotted names of the fields, such as "model.units".
      or_none: whether a field may be None.

    Raises:
      UserError: a field is smaller.
    """
    for field in fields:
        value = attrgetter(field)(config)
        if or_none and value is None:
            continue
        values = value if isinstance(value, tuple | list) else (value,)
        if any(not isinstance(n, numbers.Real) or n < least for n in values):
            raise UserError(f"config.{field} = {value}: at least {least} is needed")


def check_ascending(name: str, lengths: Sequence[int], least: int = 1) -> None:
    """Check lengths to pad to.

    Args:
      name: what they are called, for the message.
      lengths: the lengths.
      least: the smallest length allowed.

    Raises:
      UserError: there are none, they do not ascend, or the first one is too small.
    """
    if not lengths or list(lengths) != sorted(set(lengths)) or lengths[0] < least:
        raise UserError(
            f"{name} = {lengths}: give one or more lengths that ascend, each at least "
            f"{least}"
        )


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
