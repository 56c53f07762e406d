"""What all TFDS builders here share, and how one of them becomes a sealed folder. Imports TFDS, but not TensorFlow."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

from lnrepro.data import SEAL, TABLE
from lnrepro.data.raw import Raw, RawFile

Example = Mapping[str, Any]
Progress = Callable[[str, int, int], None]  # (what, done, total)

CHUNK = 1000  # examples read back at once, and between two reports of progress


def array(shape: tuple[int | None, ...], dtype: Any) -> tfds.features.FeatureConnector:
    """The feature of a numeric array; None is a dimension that differs between examples.

    Stored as bytes: TFDS's default packs every uint8 as a varint of its own and gives int32 back as int64.
    """
    return tfds.features.Tensor(shape=shape, dtype=np.dtype(dtype), encoding=tfds.features.Encoding.BYTES)


class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A data set: attributes say where it comes from, `features` what an example holds, `examples` parses the files."""

    source: ClassVar[str]  # where the official files are, for people
    licence: ClassVar[str]
    size: ClassVar[str]  # examples per split, bytes to download and prepared, for people
    files: ClassVar[Sequence[RawFile]] = ()
    embedded: ClassVar[bool] = False  # True: needs no files and prepares itself at first use

    def __init_subclass__(cls, **kwargs: Any):
        # TFDS has sets of the same names (mnist): ours never enter its registry.
        super().__init_subclass__(skip_registration=True, **kwargs)
        if cls.name in TABLE:
            cls.VERSION = tfds.core.Version(TABLE[cls.name].version)

    def __init__(self, *, raw: Raw | None = None, progress: Progress | None = None, **kwargs: Any):
        self._raw, self._progress = raw, progress
        super().__init__(**kwargs)

    def features(self) -> dict[str, Any]:
        """The TFDS features of one example."""
        raise NotImplementedError

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Parse the official files: {split: its examples in order}. Raises DataError for anything wrong in them."""
        raise NotImplementedError

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.__doc__,
            homepage=self.source,
            license=self.licence,
            features=tfds.features.FeaturesDict(self.features()),
            disable_shuffling=True,  # stored in the official order; shuffling belongs to batches.py
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        splits = self.examples(self._raw)
        self._raw.verify()
        return {split: self._generate_examples(split, examples) for split, examples in splits.items()}

    def _generate_examples(self, split: str, examples: Sequence[Example]) -> Iterator[tuple[int, Example]]:
        for i, example in enumerate(examples):
            if i % CHUNK == 0:
                self._progress(f"writing {split}", i, len(examples))
            yield i, example
        self._progress(f"writing {split}", len(examples), len(examples))


def build(cls: type[Builder], raw: Raw, scratch: pathlib.Path, progress: Progress) -> pathlib.Path:
    """Write the set below `scratch`, read everything back, seal it and return the sealed folder."""
    tfds.disable_progress_bar()
    maker = cls(raw=raw, progress=progress, data_dir=str(scratch), file_format="array_record")
    with contextlib.redirect_stdout(io.StringIO()):  # TFDS announces itself with prints
        maker.download_and_prepare(
            download_dir=str(scratch / "downloads"),
            download_config=tfds.download.DownloadConfig(try_download_gcs=False),
        )
    folder = pathlib.Path(maker.data_dir)
    digest, splits = hashlib.sha256(), {}
    for split in sorted(maker.info.splits):
        source = maker.as_data_source(split)
        splits[split] = len(source)
        digest.update(f"{split}:{len(source)};".encode())
        _read_back(source, folder / "columns" / split, digest, functools.partial(progress, f"checking {split}"))
    seal = {
        "name": cls.name,
        "version": str(cls.VERSION),
        "sha256": digest.hexdigest(),
        "splits": splits,
        "files": {str(f.relative_to(folder)): f.stat().st_size for f in sorted(folder.rglob("*")) if f.is_file()},
    }
    (folder / SEAL).write_text(json.dumps(seal, indent=1))
    return folder


def _read_back(source: Any, folder: pathlib.Path, digest: Any, progress: Callable[[int, int], None]) -> None:
    """Feed every example to the digest and, while all of them share their shapes, copy them to one .npy per column."""
    columns: dict[str, np.ndarray] | None = None
    total = len(source)
    for i in range(total):
        if i % CHUNK == 0:
            progress(i, total)
            chunk = source.__getitems__(list(range(i, min(i + CHUNK, total))))
        leaves = _leaves(chunk[i % CHUNK])
        if i == 0 and all(v.dtype.kind in "biuf" for v in leaves.values()):
            columns = {key: _column(folder / f"{key}.npy", v.dtype, (total, *v.shape)) for key, v in leaves.items()}
        if columns and any(columns[key].shape[1:] != v.shape for key, v in leaves.items()):
            columns = None
            shutil.rmtree(folder)
        for key, v in leaves.items():
            digest.update(f"{key}:{v.dtype.str}:{v.shape};".encode())
            digest.update(v.tobytes() if v.dtype != object else repr(v.tolist()).encode())
            if columns:
                columns[key][i] = v
    progress(total, total)


def _column(file: pathlib.Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    file.parent.mkdir(parents=True, exist_ok=True)
    return np.lib.format.open_memmap(file, "w+", dtype, shape)


def _leaves(example: Any, path: str = "") -> dict[str, np.ndarray]:
    """Nested examples as {"a/b": array}, in sorted order."""
    if not isinstance(example, Mapping):
        return {path: np.asarray(example)}
    parts = [_leaves(example[key], f"{path}/{key}" if path else key) for key in sorted(example)]
    return {key: v for part in parts for key, v in part.items()}
