"""Descriptions of the fields of a config.

A field is described once: its default, its meaning and the values that it may have.
`lnrepro.config.FIELDS` describes those of all configs, `FIELDS` of an experiment those
that it adds. Nothing here imports JAX, so that config files are read at once.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from lnrepro.errors import UserError

if TYPE_CHECKING:
    from ml_collections import ConfigDict


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The finite numbers that a field may have.

    Attributes:
      low: the smallest one.
      high: the largest one.
      integer: whether only whole numbers are allowed.
    """

    low: float
    high: float
    integer: bool = False

    def __str__(self) -> str:
        if self.integer:
            return f"a whole number from {self.low:,} to {self.high:,}"
        return f"a number from {self.low:.8g} to {self.high:.8g}"

    def __contains__(self, value: Any) -> bool:
        kind: Any = numbers.Integral if self.integer else numbers.Real
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        return is_number and self.low <= value <= self.high


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Lengths to pad to: one or more whole numbers that ascend.

    Attributes:
      low: the smallest length that is allowed.
    """

    low: int = 1

    def __str__(self) -> str:
        return f"one or more lengths that ascend, each at least {self.low}"

    def __contains__(self, value: object) -> bool:
        low = self.low
        for length in value if isinstance(value, tuple) else ():
            if length not in Bounds(low, COUNT.high, integer=True):
                return False
            low = length + 1
        return low > self.low


# JAX counts in 32 bits.
COUNT = Bounds(1, 2**31 - 1, integer=True)
# A batch is made whole.
BATCH = Bounds(1, 10**7, integer=True)
# NumPy's and JAX's generators take larger seeds only modulo this number.
SEED = Bounds(0, 2**32 - 1, integer=True)
# The numbers of float32, in which networks are trained. What lies nearer to 0 than its
# smallest normal number becomes 0, and what lies nearer to 1 than its precision
# becomes 1.
_LARGEST = 2.0**128 - 2.0**104
NUMBER = Bounds(-_LARGEST, _LARGEST)
NOT_NEGATIVE = Bounds(0, _LARGEST)
POSITIVE = Bounds(2.0**-126, _LARGEST)
BELOW_1 = Bounds(0, 1 - 2.0**-24)


class Field(NamedTuple):
    """A field of a config.

    Attributes:
      default: its value where a config file states no other one.
      help: what it means.
      type: the type of its values; None takes that of the default.
      allowed: the values that it may have: a tuple of them, or a container whose `str`
        names them, such as Bounds. Bounds hold for every entry of a tuple.
        None allows all values of its type.
      optional: whether it may be None, which means not set. A field whose default is
        None may be.
      from_data: whether the data set determines it. It may be None, and then gets what
        the data says, see `engine.experiment.with_sizes`.
      may_change: whether it may differ when a run goes on, or a function that says this
        of the config of the run.
    """

    default: Any
    help: str
    type: type | None = None
    allowed: Container[Any] | None = None
    optional: bool = False
    from_data: bool = False
    may_change: bool | Callable[[ConfigDict], bool] = False

    @property
    def kind(self) -> type:
        """The type of its values."""
        return self.type or type(self.default)

    @property
    def may_be_none(self) -> bool:
        """Whether it may be None."""
        return self.optional or self.from_data or self.default is None

    @property
    def words(self) -> str:
        """The values that it may have, in words."""
        words = str(self.allowed or f"a value of type {self.kind.__name__}")
        if isinstance(self.allowed, tuple):
            words = f"one of {', '.join(self.allowed)}"
        elif isinstance(self.allowed, Bounds) and self.kind is tuple:
            words = f"a tuple, each entry {words}"
        return f"{words} or None" if self.may_be_none else words

    def allows(self, value: Any) -> bool:
        """Whether it may have a value."""
        if value is None:
            return self.may_be_none
        if isinstance(self.allowed, Bounds) and self.kind is tuple:
            return isinstance(value, tuple) and all(n in self.allowed for n in value)
        if self.allowed is not None:
            return value in self.allowed
        return isinstance(value, self.kind)


class Size(NamedTuple):
    """What the data set says about a field that is `from_data`.

    Attributes:
      value: what the field gets where it is None.
      least: the smallest value that fits; None: only `value` does.
      most: the largest value that fits.
    """

    value: Any
    least: float | None = None
    most: float = math.inf

    def problem(self, stated: Any) -> str:
        """Return why a value does not fit, or "". Of a tuple, the last entry counts."""
        if self.least is None:
            return "" if stated == self.value else f"has {self.value}"
        number = stated[-1] if isinstance(stated, tuple) else stated
        if self.least <= number <= self.most:
            return ""
        most = f" and at most {self.most}" if self.most < math.inf else ""
        return f"needs at least {self.least}{most}"


def check(values: Mapping[str, Any], known: Mapping[str, Field]) -> None:
    """Check the values of fields.

    Args:
      values: {dotted name: value}. Those that nobody describes may be anything.
      known: the descriptions.

    Raises:
      UserError: a field may not have its value.
    """
    for name, value in values.items():
        field = known.get(name)
        if field and not field.allows(value):
            raise UserError(
                f"config.{name} = {value!r}: give {field.words} ({field.help})"
            )


def check_seed(seed: int) -> None:
    """Check a seed that is given to a trained network.

    Args:
      seed: the seed.

    Raises:
      UserError: JAX would take it modulo 2^32, so that it equals another seed.
    """
    if seed not in SEED:
        raise UserError(f"seed = {seed}: give {SEED}")
