"""Sets of tensorflow-datasets (TFDS), written and read without TensorFlow.

`scripts/prepare.py NAME --tfds DIR` and `--from_tfds DIR` are for the exchange with
other programs. Training does not import this module.
"""

import dataclasses
import io
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core import hashing
from tensorflow_datasets.core.dataset_info import DatasetIdentity

from lnrepro.data.ragged import Ragged, Stored
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Content, Reader
from lnrepro.data.readers.mnist import divided
from lnrepro.data.set_folder import SetFolder
from lnrepro.errors import DataError

# Names of splits in TFDS and here.
SPLITS = {"validation": "valid"}


def write(opened: SetFolder, folder: str | os.PathLike) -> None:
    """Write a prepared set, in its order, as ArrayRecord files.

    `tfds.builder_from_directory(folder)` opens the result. Its metadata has the
    fingerprint and the facts of the set.

    Args:
      opened: the set.
      folder: the new folder.

    Raises:
      DataError: the folder exists, or the set does not consist of examples.
    """
    target = pathlib.Path(folder)
    if target.exists():
        raise DataError(f"{target}: exists already; name a new folder")
    if opened.by_file:
        raise DataError(
            f"{opened.name}: its columns differ in length, so that they are no "
            "features of examples"
        )
    target.mkdir(parents=True)
    splits = {split: opened.columns(split) for split in opened.splits}
    columns = next(iter(splits.values()))
    features = {name: _feature(column) for name, column in columns.items()}
    version = tfds.core.Version(opened.version)
    metadata = tfds.core.MetadataDict(
        fingerprint=opened.fingerprint, facts=opened.facts
    )
    info = tfds.core.DatasetInfo(
        builder=DatasetIdentity(opened.name, version, str(target), __name__),
        features=tfds.features.FeaturesDict(features),
        disable_shuffling=True,
        metadata=metadata,
    )
    # One file for each split.
    largest = max(opened.splits.values())
    writer = tfds.core.SequentialWriter(info, largest, file_format="array_record")
    writer.initialize_splits(list(splits))
    for split, columns in splits.items():
        # One after the other, as the writer asks for them.
        examples: Any = (
            {name: column[i] for name, column in columns.items()}
            for i in range(opened.splits[split])
        )
        writer.add_examples({split: examples})
    writer.close_all()


def _feature(column: Stored) -> tfds.features.Tensor:
    """Return the TFDS feature of a column."""
    if isinstance(column, Ragged):
        values, shape = column.values, (None, *column.values.shape[1:])
    else:
        values, shape = column, column.shape[1:]
    # By default, TFDS stores each uint8 as a varint and reads int32 back as int64.
    encoding = tfds.features.Encoding.BYTES
    return tfds.features.Tensor(shape=shape, dtype=values.dtype, encoding=encoding)


def reader(official: Reader) -> Reader:
    """Return a reader of a set that TFDS prepared, in place of the official files.

    Only the checksum of the content can show that it is the official one.

    Args:
      official: the reader of the official files.
    """
    return dataclasses.replace(official, read=_read, write=None, files={}, published={})


def _read(raw: RawFolder) -> Content:
    """Read images, and labels if there are any, of a folder of TFDS.

    Raises:
      DataError: it cannot be read, or has no images.
    """
    try:
        builder: Any = tfds.builder_from_directory(str(raw.folder))
        splits = {
            SPLITS.get(split, split): _columns(builder, split)
            for split in map(str, builder.info.splits)
        }
        train = splits["train"]
    # TFDS raises many kinds of errors for missing and damaged files. A set without
    # images is a KeyError.
    except Exception as e:
        raise DataError(
            f"{raw.folder}: not a set of images that TFDS has prepared ({e!r:.80}); "
            "name the folder that has its dataset_info.json"
        ) from e
    return Content(splits if "valid" in splits else splits | divided(train))


def _columns(builder: Any, split: str) -> dict[str, np.ndarray]:
    """Read a split, in the order in which its examples were numbered."""
    examples = list(_examples(builder, split))
    if not builder.info.disable_shuffling:
        # TFDS sorts the examples by a hash of their keys, which are numbers in sets
        # such as mnist.
        hash_key = hashing.Hasher(split).hash_key
        numbers = sorted(range(len(examples)), key=hash_key)
        examples = [examples[i] for i in np.argsort(numbers)]
    images = np.stack([example["image"] for example in examples])
    # Grey images have one channel in TFDS.
    columns = {"image": images[..., 0] if images.shape[-1] == 1 else images}
    if "label" in examples[0]:
        labels = np.stack([example["label"] for example in examples])
        as_int32 = labels.astype(np.int32)
        # Fractions and large numbers stay, and are refused by their range.
        same = (as_int32 == labels).all()
        columns["label"] = as_int32 if same else labels
    return columns


def _examples(builder: Any, split: str) -> Iterator[Mapping[str, Any]]:
    """Yield the decoded examples of a split in their stored order."""
    if builder.info.file_format.file_suffix != "tfrecord":
        yield from builder.as_data_source(split)
        return
    # TFDS reads TFRecord files with TensorFlow only.
    for path in builder.info.splits[split].filepaths:
        content = io.BytesIO(pathlib.Path(path).read_bytes())
        # A record follows its length and a checksum, and is followed by another one.
        while header := content.read(12):
            record = content.read(int.from_bytes(header[:8], "little"))
            content.read(4)
            yield builder.info.features.deserialize_example_np(record)
