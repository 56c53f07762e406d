"""A `Reader` for a set that has a `Builder` still. Goes when all readers are moved."""
# ruff: noqa: D103

import pathlib

import numpy as np

from lnrepro.data.builder import Builder
from lnrepro.data.raw import Raw
from lnrepro.data.raw_folder import RawFile, RawFolder
from lnrepro.data.reader import Content, Reader, WrittenContent


def reader(cls: type[Builder]) -> Reader:
    def old_raw(raw: RawFolder):
        return Raw(raw.dataset, raw.folder, cls.files, any_checksum=not raw.official)

    def read(raw: RawFolder) -> Content:
        old = old_raw(raw)
        builder = cls(raw.progress)
        splits = {}
        for split, examples in builder.examples(old).items():
            features = builder.features()
            splits[split] = {}
            for name, feature in features.items():
                dtype = np.dtype(feature.np_dtype)
                rows = [np.asarray(e[name], dtype) for e in examples]
                is_ragged = feature.shape[:1] == (None,)
                splits[split][name] = rows if is_ragged else np.stack(rows)
        old.verify()
        return Content(splits, builder.facts)

    def write(raw: RawFolder, folder: pathlib.Path) -> WrittenContent:
        written = cls.write(old_raw(raw), folder.parent / "old", raw.progress)
        (written.folder / "columns").rename(folder)
        return WrittenContent(written.splits, written.facts)

    is_books = "write" in {k for c in cls.__mro__[:-2] for k in c.__dict__}
    return Reader(
        title=cls.__doc__.splitlines()[0],
        read=None if is_books else read,
        write=write if is_books else None,
        version=cls.version,
        source=cls.source,
        licence=cls.licence,
        size=cls.size,
        configs=cls.configs,
        files=tuple(RawFile(f.name, f.sha256, f.urls) for f in cls.files),
        embedded=cls.embedded,
    )
