"""What describes the weights of another library's cell.

A layout is a list of rows. Each row says where one array of the library stands in our
parameters. Loading, dumping and gradients all follow from the rows.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Row:
    """One array of the library, or a part of what it is made of.

    Attributes:
      name: of the array. A colon separates the levels of a tree: "ii:kernel" is
        `weights["ii"]["kernel"]`.
      source: our parameter. Several, separated by blanks, are stacked along the first
        axis: "w_x w_h". A row without any of them in the cell is left out.
      gates: the gates in the library's order, such as "r -z n". A minus changes the
        sign, and "_" is a gate that this row leaves out. Empty takes the source whole.
      transposed: whether the array is [outputs, inputs].
      only: "load" for a row that dumping leaves at zero, such as the second of two
        biases whose sum counts. "dump" for the reverse: our second bias is added to
        the library's only one, and loading leaves it at zero.
      optional: whether the array may be missing.
    """

    name: str
    source: str
    gates: str = ""
    transposed: bool = False
    only: str = ""
    optional: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """The weights of one cell in another library.

    Attributes:
      rows: the arrays. Two rows of the same name add up.
      order: the gates in our order, separated by blanks.
      needs: {option of our cell: the values that it may have}.
      prefix: what the names begin with, if the caller does not say it.
      suffix: what the names end with, if the caller does not say it.
      separator: separates the cell's name from those of its arrays, where the weights
        of other cells may stand beside it. Without one, all weights that begin with
        the prefix belong to the cell.
      ignored: names that are no weights.
      constants: {gate: what the library adds to its bias}.
      zeros: our parameters that are zero in this library.
      features_in: D, where it does not follow from w_x.
    """

    rows: tuple[Row, ...]
    order: str = ""
    needs: Mapping[str, tuple] = dataclasses.field(default_factory=dict)
    prefix: str = ""
    suffix: str = ""
    separator: str = ""
    ignored: tuple[str, ...] = ()
    constants: Mapping[str, float] = dataclasses.field(default_factory=dict)
    zeros: tuple[str, ...] = ()
    features_in: int | None = None


def needs(*norms: str, **options: Any) -> dict[str, tuple]:
    """Return the needs of a layout.

    Args:
      *norms: the norms that the cell may have; "none" if there are none given.
      **options: the value that an option must have.

    >>> needs(reset="after")
    {'norm': ('none',), 'learned_carry': (False,), 'reset': ('after',)}
    """
    values = {name: (value,) for name, value in options.items()}
    return {"norm": norms or ("none",), "learned_carry": (False,)} | values
