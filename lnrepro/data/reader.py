"""What a data set is, and how its official files become columns.

A reader is one `Reader`, which describes the set and names the function that reads its
files. To add a set, write a module with a reader, and name it in one line of
`lnrepro.data.table.TABLE`. The sets of other packages: docs/data.md.
"""

import dataclasses
import math
import pathlib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lnrepro.data.raw_folder import RawFolder
from lnrepro.fields import Bounds

# A feature of all examples of a split. An array [N, ...] or a list of N numbers has the
# examples along its first axis. A sequence of N arrays [t, ...] has examples that
# differ in length, and becomes `Ragged`, also where all lengths happen to be equal.
Column = np.ndarray | Sequence[Any]
Columns = Mapping[str, Column]


@dataclasses.dataclass(frozen=True)
class ColumnSpec(Bounds):
    """What a column may hold: finite numbers, and examples of some dimensions.

    Attributes:
      low: the smallest number.
      high: the largest number.
      integer: whether the numbers are integers.
      ndim: number of dimensions of an example; None if there may be any.
      ragged: whether examples differ in length, as in `Ragged`; None if they may.
    """

    low: float = -math.inf
    high: float = math.inf
    ndim: int | None = None
    ragged: bool | None = None


NUMBERS = ColumnSpec()
# The number of a class or of a word, or a sequence of them.
INDEX = ColumnSpec(0, integer=True, ndim=0)
INDICES = ColumnSpec(0, integer=True, ndim=1)
BYTES = ColumnSpec(0, 255, integer=True)
TEXT = dataclasses.replace(BYTES, ndim=1)


class Content(NamedTuple):
    """What a reader returns: a whole set.

    Attributes:
      splits: the columns of each split, in memory or mapped into it. `Reader.write`
        returns the number of examples of each split in their place.
      facts: facts of the whole set as JSON values, such as its vocabulary. They are
        part of the fingerprint.
      counts: further numbers of the set that are compared with the published ones, such
        as that of its forms. The sizes of the splits need not be repeated.
    """

    splits: Mapping[str, Any]
    facts: Mapping[str, Any] = types.MappingProxyType({})
    counts: Mapping[str, int] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader:
    """A data set.

    A set may have its own name only if its content is shown to be the official one: by
    the checksums of `files`, by `sha256`, or by the `published` counts. Other files of
    the format are prepared under another name (--as).

    Attributes:
      title: what it is, in one line.
      read: reads the official files. Raises DataError where a file is missing or wrong.
      write: in place of `read`, for sets that are too large for memory. It is called as
        write(raw, folder), writes the columns of each split as .npy files into
        folder/SPLIT/, and returns their sizes in `Content`.
      version: raised whenever the examples change.
      source: where the official files are, as text for people.
      licence: its licence.
      size: number of examples and bytes, as text for people.
      configs: config files of the experiments that can be trained on it.
      columns: the columns of every split, and the numbers that each may hold. They are
        checked when a set is prepared, whatever its files are. Further columns may hold
        any finite numbers.
      files: the name of each official file, without the suffix of a packing, and the
        SHA-256 of its unpacked content, if it is known.
      published: published sizes of splits and other counts, see `Content.counts`. A
        comment beside them says where each number is published.
      sha256: beginning of the checksum of the official content, as in the fingerprint,
        if it is known.
      embedded: True if it needs no files. Such a set is prepared at its first use.
    """

    title: str
    read: Callable[[RawFolder], Content] | None = None
    write: Callable[[RawFolder, pathlib.Path], Content] | None = None
    version: str = "1.0.0"
    source: str = "not stated"
    licence: str = "not stated"
    size: str = "not stated"
    configs: Sequence[str] = ()
    columns: Mapping[str, ColumnSpec] = dataclasses.field(default_factory=dict)
    files: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    published: Mapping[str, int] = dataclasses.field(default_factory=dict)
    sha256: str = ""
    embedded: bool = False
