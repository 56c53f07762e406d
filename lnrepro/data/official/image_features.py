"""Image features in .npy files, and which row belongs to which image.

Features have one row for each image. Those of VSE++ and SCAN have one for each caption:
the rows of an image are equal, and stand in a row.
"""

from __future__ import annotations

import pathlib
import warnings

import numpy as np

from lnrepro.data.npy import CHUNK, check_finite, open_npy
from lnrepro.data.official.caption_files import Split
from lnrepro.errors import DataError


def with_rows(split: Split, images: np.ndarray, where: object, stem: str) -> Split:
    """Find the row of the features of each image.

    The features may have one row for each caption in place of each image, as those of
    VSE++ and SCAN: then the rows of an image are equal.

    Args:
      split: the captions.
      images: features [N, D].
      where: name of the file of the features, for messages.
      stem: name of the split in the files.

    Returns:
      The captions with `rows`. Images that only the features tell apart are those of
      different rows.

    Raises:
      DataError: the numbers of rows and images differ, or rows of an image do.
    """
    rows, count = len(images), len(split.captions)
    if rows == len(split.ids):
        starts = np.arange(rows)
        # One caption for each image is also what features repeated for each caption
        # look like. Equal neighbours tell the two apart; a look at the first rows
        # spares reading all of the file.
        if rows == count and _repeats(images[:CHUNK]):
            is_new = np.concatenate([[True], _changes(images)])
            starts = np.flatnonzero(is_new)
            counts = np.diff(starts, append=rows)
            split = Split(split.captions, split.ids[starts], counts)
            _warn_of_repeats(where, rows, starts)
        return split._replace(rows=starts)
    if rows != count:
        raise DataError(
            f"{where}: {rows} rows, but {stem} has captions of {len(split.ids)} images"
        )
    # From here on there is one row for each caption. The first row of an image stands
    # for all of them.
    starts = np.cumsum(split.counts) - split.counts
    is_first = np.zeros(rows, bool)
    is_first[starts] = True
    # Rows may change only where an image begins, else rows and captions are out of
    # step.
    wrong = np.flatnonzero(_changes(images) & ~is_first[1:])
    if len(wrong):
        raise DataError(
            f"{where}, row {wrong[0] + 1}: has other features than the row before it, "
            f"but both belong to one of {len(split.ids)} images; one row for each "
            "image is needed, or the same row for each of its captions"
        )
    _warn_of_repeats(where, rows, starts)
    return split._replace(rows=starts)


def _warn_of_repeats(where: object, rows: int, starts: np.ndarray) -> None:
    warnings.warn(
        f"{where}: {rows:,} rows repeat the features of {len(starts):,} images, one "
        "for each caption; each image is taken once",
        stacklevel=3,
    )


def _changes(images: np.ndarray) -> np.ndarray:
    """Return whether each row but the first differs from the one before it [N - 1]."""
    parts = [np.zeros(0, bool)]
    # A piece has one row of the next one, since neighbours are compared.
    for i in range(0, len(images) - 1, CHUNK):
        rows = images[i : i + CHUNK + 1]
        parts.append((rows[1:] != rows[:-1]).any(axis=1))
    return np.concatenate(parts)


def _repeats(images: np.ndarray) -> bool:
    """Return whether at least half of the rows repeat the row before them."""
    changes = _changes(images)
    return len(changes) > 0 and 2 * (1 + int(changes.sum())) <= len(images)


def read_features(file: pathlib.Path) -> np.ndarray:
    """Map a .npy file of features [N, D] into memory. Pickles are never read.

    Raises:
      DataError: the file is missing, or is not a float32 array of this shape.
    """
    found = open_npy(file)
    if found.dtype != np.float32:
        problem = f"contains {str(found.dtype)[:40]} values instead of float32"
    elif found.ndim != 2 or not found.size:
        shape = " x ".join(map(str, found.shape[:5]))
        problem = f"is {shape} instead of images x features"
    else:
        return found
    raise DataError(f"{file}: {problem}; get the official file")


def check_features(images: np.ndarray, where: object, used: np.ndarray) -> int:
    """Check that features are finite, and warn if rows do not have unit length.

    Args:
      images: features [N, D].
      where: name of the file, for messages.
      used: the rows that images have. Others repeat them, or have no caption.

    Returns:
      The number of used rows whose length differs from 1 by more than 1 %.

    Raises:
      DataError: a value is NaN or infinite.
    """
    check_finite(images, where)
    # The authors divide features by their length. Other features are allowed, but their
    # results are not comparable.
    lengths = np.empty(len(used))
    for i in range(0, len(used), CHUNK):
        rows = images[used[i : i + CHUNK]].astype(np.float64)
        lengths[i : i + CHUNK] = np.linalg.norm(rows, axis=1)
    if count := int((np.abs(lengths - 1) > 0.01).sum()):
        warnings.warn(
            f"{where}: {count:,} of {len(used):,} images are not of unit length "
            f"({lengths.min():.3g} to {lengths.max():.3g}); these are not the authors' "
            "features",
            stacklevel=2,
        )
    return count
