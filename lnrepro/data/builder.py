"""What all TFDS builders here share, and how one of them becomes a sealed folder. Imports TFDS, but not TensorFlow."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow_datasets as tfds

from lnrepro.data import FACTS, SEAL, TABLE
from lnrepro.data.ragged import OFFSETS, Writer
from lnrepro.data.raw import Raw, RawFile
from lnrepro.engine.errors import DataError

Example = Mapping[str, Any]
Progress = Callable[[str, int, int], None]  # (what, done, total)

CHUNK = 1000  # examples read back at once, and between two reports of progress


def array(shape: tuple[int | None, ...], dtype: Any) -> tfds.features.FeatureConnector:
    """The feature of a numeric array; None is a dimension that differs between examples (the first: `Ragged` columns).

    Stored as bytes: TFDS's default packs every uint8 as a varint of its own and gives int32 back as int64.
    """
    return tfds.features.Tensor(
        shape=shape, dtype=np.dtype(dtype), encoding=tfds.features.Encoding.BYTES
    )


class Written(NamedTuple):
    """A set written but not sealed: its folder, {split: examples}, a digest of all examples, and its facts."""

    folder: pathlib.Path
    splits: dict[str, int]
    digest: Any
    facts: dict[str, Any]


class _Info(tfds.core.DatasetInfo):
    def initialize_from_bucket(self) -> None:
        """Nothing: TFDS would look for a set of this name among its own, and leave an empty folder in /tmp behind."""


class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A data set: attributes say where it comes from, `features` what an example holds, `examples` parses the files."""

    source: ClassVar[str]  # where the official files are, for people
    licence: ClassVar[str]
    size: ClassVar[
        str
    ]  # examples per split, bytes to download and prepared, for people
    files: ClassVar[Sequence[RawFile]] = ()
    embedded: ClassVar[bool] = (
        False  # True: needs no files and prepares itself at first use
    )

    def __init_subclass__(cls, **kwargs: Any):
        # TFDS has sets of the same names (mnist): ours never enter its registry.
        super().__init_subclass__(skip_registration=True, **kwargs)
        if cls.name in TABLE:
            cls.VERSION = tfds.core.Version(TABLE[cls.name].version)

    def __init__(
        self, *, raw: Raw | None = None, progress: Progress | None = None, **kwargs: Any
    ):
        self._raw, self._progress = raw, progress
        # What is true of the whole set, as JSON values: `examples` fills it (vocabulary, statistics, what was skipped),
        # at the latest when its last example has been taken; `data.facts` gives it back.
        self.facts: dict[str, Any] = {}
        super().__init__(**kwargs)

    def features(self) -> dict[str, Any]:
        """The TFDS features of one example."""
        raise NotImplementedError

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Parse the official files: {split: its examples in order}. Raises DataError for anything wrong in them."""
        raise NotImplementedError

    @classmethod
    def write(cls, raw: Raw, scratch: pathlib.Path, progress: Progress) -> Written:
        """Write the set below `scratch` as ArrayRecord and read everything back, into the digest and into columns.

        A set too large for records overrides this and writes its columns itself.
        """
        tfds.disable_progress_bar()
        maker = cls(
            raw=raw,
            progress=progress,
            data_dir=str(scratch),
            file_format="array_record",
        )
        with contextlib.redirect_stdout(
            io.StringIO()
        ):  # TFDS announces itself with prints
            maker.download_and_prepare(
                download_dir=str(scratch / "downloads"),
                download_config=tfds.download.DownloadConfig(try_download_gcs=False),
            )
        folder = pathlib.Path(maker.data_dir)
        shapes = {
            key: info.shape
            for key, info in _leaves(maker.info.features.get_tensor_info()).items()
        }
        digest, splits = hashlib.sha256(), {}
        for split in sorted(maker.info.splits):
            source = maker.as_data_source(split)
            splits[split] = len(source)
            digest.update(f"{split}:{len(source)};".encode())
            checking = functools.partial(progress, f"checking {split}")
            _read_back(source, shapes, folder / "columns" / split, digest, checking)
        return Written(folder, splits, digest, maker.facts)

    def _info(self) -> tfds.core.DatasetInfo:
        return _Info(
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
        if empty := [split for split, examples in splits.items() if not len(examples)]:
            raise DataError(
                f"{self._raw.folder}: the files hold no example of the split {empty[0]}; get the official ones"
            )
        return {
            split: self._generate_examples(split, examples)
            for split, examples in splits.items()
        }

    def _generate_examples(
        self, split: str, examples: Sequence[Example]
    ) -> Iterator[tuple[int, Example]]:
        for i, example in enumerate(examples):
            if i % CHUNK == 0:
                self._progress(f"writing {split}", i, len(examples))
            yield i, example
        self._progress(f"writing {split}", len(examples), len(examples))


def build(
    cls: type[Builder], raw: Raw, scratch: pathlib.Path, progress: Progress
) -> pathlib.Path:
    """Write the set below `scratch`, seal it and return the sealed folder."""
    written = cls.write(raw, scratch, progress)
    folder, digest = written.folder, written.digest
    if written.facts:
        text = json.dumps(written.facts, ensure_ascii=False, sort_keys=True)
        digest.update(text.encode())
        (folder / FACTS).write_text(text, encoding="utf-8")
    seal = {
        "name": cls.name,
        "version": str(cls.VERSION),
        "sha256": digest.hexdigest(),
        "splits": written.splits,
        "files": {
            str(f.relative_to(folder)): f.stat().st_size
            for f in sorted(folder.rglob("*"))
            if f.is_file()
        },
    }
    (folder / SEAL).write_text(json.dumps(seal, indent=1))
    return folder


def _read_back(
    source: Any,
    shapes: Mapping[str, tuple[int | None, ...]],
    folder: pathlib.Path,
    digest: Any,
    progress: Callable[[int, int], None],
) -> None:
    """Feed every example to the digest and, if all its features are numeric, copy them into columns."""
    columns: dict[str, Writer] = {}
    offsets = {key: [0] for key, shape in shapes.items() if shape[:1] == (None,)}
    total = len(source)
    for i in range(total):
        if i % CHUNK == 0:
            progress(i, total)
            chunk = source.__getitems__(list(range(i, min(i + CHUNK, total))))
        leaves = _leaves(chunk[i % CHUNK])
        if i == 0 and all(
            v.dtype.kind in "biuf" and None not in shapes[key][1:]
            for key, v in leaves.items()
        ):
            columns = {
                key: Writer(
                    folder / f"{key}.npy",
                    v.dtype,
                    shapes[key][1 if key in offsets else 0 :],
                )
                for key, v in leaves.items()
            }
        for key, v in leaves.items():
            digest.update(f"{key}:{v.dtype.str}:{v.shape};".encode())
            digest.update(
                v.tobytes() if v.dtype != object else repr(v.tolist()).encode()
            )
            if columns:
                columns[key].append(v if key in offsets else v[None])
                if key in offsets:
                    offsets[key].append(offsets[key][-1] + len(v))
    for key, column in columns.items():
        column.close()
        if key in offsets:
            np.save(folder / f"{key}{OFFSETS}.npy", np.array(offsets[key], np.int64))
    progress(total, total)


def _leaves(example: Any, path: str = "") -> dict[str, Any]:
    """Nested examples as {"a/b": array}, in sorted order; anything but numbers and mappings as it is."""
    if not isinstance(example, Mapping):
        return {
            path: example
            if isinstance(example, tfds.features.TensorInfo)
            else np.asarray(example)
        }
    parts = [
        _leaves(example[key], f"{path}/{key}" if path else key)
        for key in sorted(example)
    ]
    return {key: v for part in parts for key, v in part.items()}
