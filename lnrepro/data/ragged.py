"""Columns of a data set as .npy files, also of examples that differ in length.

The values of all examples are joined in `x.npy`. If they differ in length, the file
`x.offsets.npy` says where each one begins.
"""

import mmap
import pathlib
from collections.abc import Sequence

import numpy as np

OFFSETS = ".offsets"


class Ragged(Sequence):
    """A sequence of N arrays of different lengths, stored as one array.

    `ragged[i]` is a view of the i-th array [t_i, ...].

    Attributes:
      values: all arrays, joined along the first axis.
      offsets: [N + 1], ascending from 0 to len(values). Array i is
        `values[offsets[i] : offsets[i + 1]]`.
    """

    def __init__(self, values: np.ndarray, offsets: np.ndarray):
        self.values, self.offsets = values, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        # The range counts negative numbers from the end and raises IndexError.
        i = range(len(self))[i]
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Length of each array, [N] int64."""
        return np.diff(self.offsets)


# A column of a prepared set.
Stored = np.ndarray | Ragged


class Writer:
    """Writer of a .npy file of numbers.

    Attributes:
      size: how many numbers there are so far.
    """

    def __init__(self, file: pathlib.Path, dtype: type[np.generic]):
        """Create the file and its folder."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("wb")
        self._dtype, self.size = np.dtype(dtype), 0
        self._write_header()

    def _write_header(self) -> None:
        header = {
            "descr": self._dtype.str,
            "fortran_order": False,
            "shape": (self.size,),
        }
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, numbers: np.ndarray) -> None:
        """Append numbers [n]."""
        self._file.write(np.ascontiguousarray(numbers, self._dtype).data)
        self.size += len(numbers)

    def close(self) -> None:
        """Complete the header and close the file."""
        # NumPy pads the header, so that a larger first axis fits into the same space.
        self._file.seek(0)
        self._write_header()
        self._file.close()


def load(folder: pathlib.Path) -> dict[str, Stored]:
    """Map the columns in a folder into memory."""
    # Plain arrays in place of np.memmap, whose slices cost more. Pages are read when
    # they are used first.
    arrays = {
        file.stem: np.asarray(np.load(file, mmap_mode="r"))
        for file in sorted(folder.glob("*.npy"))
    }
    columns = {}
    for name, values in arrays.items():
        if name + OFFSETS in arrays:
            columns[name] = Ragged(values, arrays[name + OFFSETS])
        elif not name.endswith(OFFSETS):
            columns[name] = values
    return columns


def forget_pages(*columns: np.ndarray) -> None:
    """Release the memory of pages that were read from memory-mapped columns.

    Otherwise these pages count as memory of this process. They stay in the cache of the
    system while there is room. Nothing happens for other arrays, or if the system does
    not support it.
    """
    for column in columns:
        # A view refers to the array it was taken from, and the first one to the map
        # itself.
        while isinstance(column, np.ndarray):
            column = column.base
        if isinstance(column, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            column.madvise(mmap.MADV_DONTNEED)
