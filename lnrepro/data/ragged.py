"""A column of a data set: examples appended to one .npy file, and examples of different lengths read back from it."""

from __future__ import annotations

import mmap
import pathlib
from collections.abc import Sequence

import numpy as np

OFFSETS = ".offsets"  # x.npy holds the values of all examples, x.offsets.npy where each begins


class Ragged(Sequence):
    """N arrays (t_i, ...) end to end in `values` (sum of t_i, ...); `r[i]` is a view of the i-th.

    offsets: (N + 1,), ascending from 0 to len(values): example i is values[offsets[i] : offsets[i + 1]].
    Raises ValueError if they do not fit together.
    """

    def __init__(self, values: np.ndarray, offsets: np.ndarray):
        ends = (int(offsets[0]), int(offsets[-1])) if len(offsets) else None
        if ends != (0, len(values)):
            raise ValueError(
                f"offsets from {ends} do not span the {len(values)} values"
            )
        self.values, self.offsets = values, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        i = range(len(self))[
            i
        ]  # negative numbers count from the end; IndexError outside
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """The length t_i of every example, (N,) int64."""
        return np.diff(self.offsets)


class Writer:
    """Appends arrays of one dtype to a .npy file whose length nobody knows beforehand."""

    def __init__(self, file: pathlib.Path, dtype: np.dtype, shape: tuple[int, ...]):
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._dtype, self._shape, self._rows = (
            open(file, "wb"),
            dtype,
            shape,
            0,
        )
        self._header()

    def _header(self) -> None:
        # NumPy leaves room in the header for the first axis to grow, so that it can be written over at the end.
        header = {
            "descr": self._dtype.str,
            "fortran_order": False,
            "shape": (self._rows, *self._shape),
        }
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, rows: np.ndarray) -> None:
        """Append (n, ...) rows."""
        self._file.write(np.ascontiguousarray(rows, self._dtype).data)
        self._rows += len(rows)

    def close(self) -> None:
        """Complete the header and close the file."""
        self._file.seek(0)
        self._header()
        self._file.close()


def load(folder: pathlib.Path) -> dict[str, np.ndarray | Ragged]:
    """The columns in a folder, memory-mapped: arrays (N, ...), and `Ragged` for those with offsets."""
    arrays = {
        file.relative_to(folder).as_posix().removesuffix(".npy"): np.asarray(
            np.load(file, mmap_mode="r")
        )
        for file in sorted(folder.rglob("*.npy"))
    }
    return {
        name: Ragged(v, arrays[name + OFFSETS]) if name + OFFSETS in arrays else v
        for name, v in arrays.items()
        if not name.endswith(OFFSETS)
    }


def forget_pages(*columns: np.ndarray) -> None:
    """Let go of the pages of memory-mapped columns that were read, which otherwise count as this process's memory.

    They stay in the system's cache while there is room. Does nothing to other arrays, or where the system cannot.
    """
    for column in columns:
        while isinstance(column, np.ndarray):
            column = column.base
        if isinstance(column, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            column.madvise(mmap.MADV_DONTNEED)
