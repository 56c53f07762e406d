"""Columns of a split: written as files, and checked."""

import pathlib

import numpy as np

from lnrepro.data import ragged
from lnrepro.data.ragged import Ragged, Stored
from lnrepro.data.reader import Columns, ColumnSpec
from lnrepro.errors import DataError


def write_columns(columns: Columns, folder: pathlib.Path, where: object) -> int:
    """Write the columns of a split.

    Args:
      columns: the features by name.
      folder: where the files are written. It is called like the split.
      where: what the columns come from, for error messages.

    Returns:
      The number of examples.

    Raises:
      DataError: there are no examples, columns differ in length, or are no numbers
        that JAX has.
    """
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) != 1 or not all(sizes.values()):
        raise DataError(
            f"{where}: the split {folder.name} needs examples, and as many in each "
            f"column; there are {sizes}"
        )
    folder.mkdir(parents=True)
    for name, column in columns.items():
        arrays = [column] if isinstance(column, np.ndarray) else column
        if any(map(np.ma.is_masked, arrays)):
            raise DataError(
                f"{name}: a value is masked; leave out its example, or fill it in"
            )
        if not isinstance(column, np.ndarray) and np.ndim(column[0]):
            offsets = np.cumsum([0, *map(len, column)], dtype=np.int64)
            np.save(folder / f"{name}{ragged.OFFSETS}.npy", offsets)
            column = np.concatenate(column)
        column = np.asarray(column)
        native = column.astype(column.dtype.newbyteorder("="), copy=False)
        _check_type(name, native.dtype)
        np.save(folder / f"{name}.npy", np.ascontiguousarray(native))
    return len(columns[name])


def _check_type(name: str, dtype: np.dtype) -> None:
    """Raise DataError where JAX has no such numbers."""
    # Booleans, integers, unsigned integers and floats.
    if dtype.kind not in "biuf" or dtype.itemsize > 8 or not dtype.isnative:
        raise DataError(
            f"{name}: values of type {dtype}; columns hold numbers of at most 64 bits "
            "in the byte order of the machine, and text as its bytes in UTF-8"
        )


def check_column(column: Stored, spec: ColumnSpec, name: str, split: str) -> None:
    """Check a column, whose numbers may be memory-mapped.

    Args:
      column: the column.
      spec: what it may hold.
      name: what it is called, for messages.
      split: its split.

    Raises:
      DataError: it is not as specified. The message names the first wrong example.
    """
    is_ragged = isinstance(column, Ragged)
    numbers = column.values if is_ragged else column
    _check_type(name, numbers.dtype)
    ndim = numbers.ndim if is_ragged else numbers.ndim - 1
    if spec.ndim not in (None, ndim):
        raise DataError(
            f"{name} of {split} has the shape {numbers.shape}; examples of {spec.ndim} "
            "dimensions are needed"
        )
    if spec.ragged not in (None, is_ragged):
        wanted = "a list of arrays" if spec.ragged else "one array"
        raise DataError(f"{name} of {split}: {wanted} for all examples is needed")
    # Integers are told by their type.
    if spec.integer and numbers.dtype.kind == "f":
        raise DataError(f"{name} of {split} has the type {numbers.dtype}; {spec}")
    if not numbers.size:
        return
    extremes = np.array([numbers.min(), numbers.max()])
    ragged.forget_pages(numbers)
    if _are_inside(extremes, spec).all():
        return
    first = np.unravel_index(_are_inside(numbers, spec).argmin(), numbers.shape)
    row = first[0]
    if is_ragged:
        row = int(np.searchsorted(column.offsets, row, side="right")) - 1
    raise DataError(
        f"{name} of example {row} of {split} is {numbers[first]}; {spec} is needed"
    )


def _are_inside(numbers: np.ndarray, spec: ColumnSpec) -> np.ndarray:
    # No comparison with NaN is true.
    is_inside = (spec.low <= numbers) & (numbers <= spec.high)
    return is_inside & np.isfinite(numbers)
