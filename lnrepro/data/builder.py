"""Base class of the data sets: what a set is, and how its examples are read.

This module does not import TFDS, so that looking up a set is fast.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lnrepro.data.raw import Raw, RawFile
from lnrepro.data.seal import UnsealedSet
from lnrepro.errors import DataError

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

# What the readers of a set left out or read otherwise, and how often.
NOTES = "notes.json"
Example = Mapping[str, Any]
# Called with what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


def array(shape: tuple[int | None, ...], dtype: Any) -> tfds.features.FeatureConnector:
    """Return the TFDS feature of a numeric array.

    Args:
      shape: its shape. None is a dimension that differs between examples. If this is
        the first one, the column is `Ragged`.
      dtype: its NumPy dtype.
    """
    import tensorflow_datasets as tfds

    # By default, TFDS stores each uint8 as a varint and reads int32 back as int64.
    encoding = tfds.features.Encoding.BYTES
    return tfds.features.Tensor(shape=shape, dtype=np.dtype(dtype), encoding=encoding)


class Builder:
    """A data set.

    Attributes:
      name: its name in the table of sets. Default: the class name in snake case.
      version: raised whenever the examples change.
      source: where its official files are, as text for people.
      licence: its licence.
      size: number of examples and bytes, as text for people.
      configs: config files of the experiments that can be trained on it.
      files: its official files.
      embedded: True if it needs no files. Such a set is prepared at its first use.
      facts: facts of the whole set as JSON values, such as its vocabulary. `examples`
        fills them, at the latest when its last example is taken.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1.0.0"
    source: ClassVar[str] = "not stated"
    licence: ClassVar[str] = "not stated"
    size: ClassVar[str] = "not stated"
    configs: ClassVar[Sequence[str]] = ()
    files: ClassVar[Sequence[RawFile]] = ()
    embedded: ClassVar[bool] = False

    def __init_subclass__(cls):
        # "CnnTop4" -> "cnn_top4". An inherited name does not count.
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, progress: Progress):
        self._progress = progress
        self.facts: dict[str, Any] = {}

    def features(self) -> dict[str, Any]:
        """Return the TFDS features of one example."""
        raise NotImplementedError

    def examples(self, raw: Raw) -> Mapping[str, Sequence[Example]]:
        """Parse the official files.

        Returns:
          The examples of each split, in order.

        Raises:
          DataError: a file is missing or wrong.
        """
        raise NotImplementedError

    @classmethod
    def write(cls, raw: Raw, scratch: pathlib.Path, progress: Progress) -> UnsealedSet:
        """Write the set as ArrayRecord and as columns.

        A set that is too large for ArrayRecord overrides this and writes columns only.

        Args:
          raw: the official files.
          scratch: the folder below which the set is written.
          progress: called now and then.

        Raises:
          DataError: a file is missing or wrong.
        """
        from lnrepro.data import records

        builder = cls(progress)
        splits = builder.examples(raw)
        raw.verify()
        for split, examples in splits.items():
            if not len(examples):
                raise DataError(
                    f"{raw.folder}: the files hold no example of the split {split}; "
                    "get the official ones"
                )
        about = records.About(
            builder.name,
            builder.version,
            builder.features(),
            description=builder.__doc__,
            homepage=builder.source,
            license=builder.licence,
        )
        written = records.write(about, splits, scratch, progress)
        write_notes(written.folder, raw)
        return UnsealedSet(*written, builder.facts)


def write_notes(folder: pathlib.Path, raw: Raw) -> None:
    """Write the notes of the readers of a set, which are no part of its fingerprint.

    Args:
      folder: the prepared set.
      raw: its files.
    """
    if notes := {what: count for what, count in raw.notes.items() if count}:
        (folder / NOTES).write_text(json.dumps(notes), encoding="utf-8")


def read_notes(folder: pathlib.Path) -> dict[str, int]:
    """Return the notes of a prepared set, {} if it has none."""
    file = folder / NOTES
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
