"""ArrayRecord files of a data set, written by tensorflow-datasets (TFDS).

TFDS is used without TensorFlow. When the files are written, every example is read back
once: into the checksum of the set, and into the columns beside the records.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow_datasets as tfds

from lnrepro.data.ragged import OFFSETS, Writer
from lnrepro.data.text import is_text
from lnrepro.errors import DataError

# Examples read back together, and examples between two calls of `progress`.
CHUNK = 1000


Examples = Sequence[Mapping[str, Any]]
Progress = Callable[[str, int, int], None]


class About(NamedTuple):
    """Description of a set, which TFDS writes.

    Attributes:
      name: its name.
      version: its version.
      features: the TFDS features of one example.
      description: what it is.
      homepage: where its official files are.
      license: its licence.
    """

    name: str
    version: str
    features: Mapping[str, Any]
    description: str | None
    homepage: str
    license: str


class Records(NamedTuple):
    """Files that were written.

    Attributes:
      folder: where the files are.
      splits: number of examples of each split.
      digest: hashlib object, updated with all examples.
    """

    folder: pathlib.Path
    splits: dict[str, int]
    digest: Any


def write(
    about: About,
    splits: Mapping[str, Examples],
    scratch: pathlib.Path,
    progress: Progress,
) -> Records:
    """Write examples as ArrayRecord, read them back, and copy them into columns.

    Args:
      about: the set.
      splits: its examples, in order.
      scratch: the folder below which the files go.
      progress: called with what is done, examples done and their number.

    Raises:
      DataError: the library of ArrayRecord cannot write to a folder of this name.
    """
    if not is_text(str(scratch)):
        raise DataError(
            f"{scratch.parent}: its name is not in UTF-8; choose another data dir with "
            "$LNREPRO_DATA"
        )
    tfds.disable_progress_bar()
    records = _Records(about, splits, scratch, progress)
    # TFDS prints what it does.
    with contextlib.redirect_stdout(io.StringIO()):
        records.download_and_prepare(
            download_dir=str(scratch / "downloads"),
            download_config=tfds.download.DownloadConfig(try_download_gcs=False),
        )
    folder = pathlib.Path(records.data_dir)
    features = _flatten(cast(Any, records.info.features).get_tensor_info())
    # The digest is taken of what is read back, so it also covers what TFDS wrote.
    digest, sizes = hashlib.sha256(), {}
    for split in sorted(splits):
        source = cast(Any, records).as_data_source(split)
        sizes[split] = len(source)
        digest.update(f"{split}:{len(source)};".encode())
        checking = functools.partial(progress, f"checking {split}")
        _read_back(source, features, folder / "columns" / split, digest, checking)
    return Records(folder, sizes, digest)


class _OfflineInfo(tfds.core.DatasetInfo):
    """Description of a set, which is not looked up online."""

    def initialize_from_bucket(self) -> None:
        """Do nothing.

        TFDS would look for a set of this name among its own, and leave an empty folder
        in the system's temporary folder.
        """


class _Records(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """TFDS builder of one set.

    TFDS has its own sets of the same names, such as mnist. Therefore this class stays
    out of its registry.
    """

    def __init__(
        self,
        about: About,
        splits: Mapping[str, Examples],
        scratch: pathlib.Path,
        progress: Progress,
    ):
        self.name = about.name  # pyright: ignore[reportAttributeAccessIssue]
        self.VERSION = tfds.core.Version(about.version)
        self._about, self._splits, self._progress = about, splits, progress
        super().__init__(data_dir=str(scratch), file_format="array_record")

    def _info(self) -> tfds.core.DatasetInfo:
        return _OfflineInfo(
            builder=self,
            description=self._about.description,
            homepage=self._about.homepage,
            license=self._about.license,
            features=tfds.features.FeaturesDict(dict(self._about.features)),
            # The official order is kept. batches.py shuffles.
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {split: self._generate_examples(split) for split in self._splits}

    def _generate_examples(self, split: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        examples = self._splits[split]
        for i, example in enumerate(examples):
            if i % CHUNK == 0:
                self._progress(f"writing {split}", i, len(examples))
            yield i, example
        self._progress(f"writing {split}", len(examples), len(examples))


class _Column:
    """A column that is being written.

    If the first axis differs between examples, the examples are joined along it and a
    second file says where each begins.
    """

    def __init__(self, folder: pathlib.Path, name: str, info: Any):
        self._ragged = info.shape[:1] == (None,)
        shape = info.shape[1:] if self._ragged else info.shape
        self._rows = Writer(folder / f"{name}.npy", np.dtype(info.np_dtype), shape)
        self._offsets_file = folder / f"{name}{OFFSETS}.npy"
        self._offsets = [0]

    def append(self, value: np.ndarray) -> None:
        """Append one example."""
        self._rows.append(value if self._ragged else value[None])
        if self._ragged:
            self._offsets.append(self._offsets[-1] + len(value))

    def close(self) -> None:
        """Complete the files."""
        self._rows.close()
        if self._ragged:
            np.save(self._offsets_file, np.array(self._offsets, np.int64))


def _read_back(
    source: Any,
    features: Mapping[str, tfds.features.TensorInfo],
    folder: pathlib.Path,
    digest: Any,
    progress: Callable[[int, int], None],
) -> None:
    """Add all examples of a split to the digest and, if possible, copy them to columns.

    Columns are possible if all features are numbers whose shape is fixed after the
    first axis.
    """
    columns = {}
    if all(
        # Booleans, integers, unsigned integers and floats.
        np.dtype(info.np_dtype).kind in "biuf" and None not in info.shape[1:]
        for info in features.values()
    ):
        columns = {name: _Column(folder, name, info) for name, info in features.items()}
    total = len(source)
    for start in range(0, total, CHUNK):
        progress(start, total)
        rows = list(range(start, min(start + CHUNK, total)))
        for example in source.__getitems__(rows):
            for name, value in _flatten(example).items():
                array = np.asarray(value)
                # Strings are arrays of Python objects, whose memory holds only
                # pointers.
                is_object = array.dtype == object
                content = (
                    repr(array.tolist()).encode() if is_object else array.tobytes()
                )
                # Name, dtype and shape come before the bytes, so that equal bytes of
                # other arrays give another digest.
                digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
                digest.update(content)
                if columns:
                    columns[name].append(array)
    for column in columns.values():
        column.close()
    progress(total, total)


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested mapping as {"a/b": leaf}, sorted by key at each level."""
    flat = {}
    for key in sorted(tree):
        if isinstance(tree[key], Mapping):
            flat |= _flatten(tree[key], f"{prefix}{key}/")
        else:
            flat[prefix + key] = tree[key]
    return flat
