"""Sets that TFDS reads, and sets that TFDS has written."""

import dataclasses
import io
import json
import struct

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from lnrepro import data
from lnrepro.data import tfds_sets
from lnrepro.data.ragged import Ragged
from lnrepro.data.reader import Content, Reader
from scripts import prepare
from tests.data import idx, small
from tests.data.reading import refused

SIZES = {"train": 36, "test": 10}


class OfflineInfo(tfds.core.DatasetInfo):
    """Description of a set, for which TFDS does not look online."""

    def initialize_from_bucket(self):
        pass


class Digits(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """The images of `idx.files()` as TFDS stores mnist: shuffled by their numbers."""

    VERSION = tfds.core.Version("3.0.1")
    name = "small_digits"

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(28, 28, 1)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
        return OfflineInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in SIZES}

    def _generate_examples(self, split):
        contents = idx.files()
        part = "train" if split == "train" else "t10k"
        images = np.frombuffer(contents[idx.IMAGES.format(part)], np.uint8, offset=16)
        labels = np.frombuffer(contents[idx.LABELS.format(part)], np.uint8, offset=8)
        for i, image in enumerate(images.reshape(-1, 28, 28)):
            # From an array, TFDS would encode the image with TensorFlow.
            png = io.BytesIO()
            Image.fromarray(image).save(png, "png")
            png.seek(0)
            yield i, {"image": png, "label": int(labels[i])}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The folder of a set that TFDS has written as ArrayRecord."""
    builder = Digits(
        data_dir=str(tmp_path_factory.mktemp("tfds")), file_format="array_record"
    )
    builder.download_and_prepare()
    return builder.data_dir


def as_tfrecord(stored, folder):
    """Write the records of a set as TFRecord files, the default format of TFDS."""
    builder = tfds.builder_from_directory(stored)
    folder.mkdir()
    for split in SIZES:
        source = builder.as_data_source(split)
        records = source.data_source.__getitems__(list(range(len(source))))
        name = f"small_digits-{split}.tfrecord-00000-of-00001"
        with (folder / name).open("wb") as file:
            for record in records:
                # The checksums are not read.
                file.write(struct.pack("<QI", len(record), 0) + record + bytes(4))
    for name in ("features.json", "dataset_info.json"):
        text = (builder.data_path / name).read_text()
        (folder / name).write_text(text.replace("array_record", "tfrecord"))
    return folder


@pytest.mark.parametrize("file_format", ["array_record", "tfrecord"])
def test_a_set_of_tfds_is_the_set_of_the_official_files(
    stored, tmp_path, monkeypatch, file_format
):
    raw = idx.write(tmp_path / "raw", idx.files())
    data.prepare("mnist", raw, tmp_path, own_name="from_files")
    wanted = data.open_set("from_files", tmp_path)
    folder = stored
    if file_format == "tfrecord":
        folder = as_tfrecord(stored, tmp_path / "stored")
    flags = ["mnist", f"--from_tfds={folder}", f"--data_dir={tmp_path}"]
    # Other images of the same format need another name.
    with refused(r"the official mnist: .* pass --as NAME"):
        prepare.main(flags)
    # No checksum of the content of mr is known.
    with refused("'mr' cannot be the name of a set of own files"):
        prepare.main(["mr", *flags[1:]])
    prepare.main([*flags, "--as=from_tfds"])
    assert data.open_set("from_tfds", tmp_path).sha256 == wanted.sha256
    # The checksum of the content shows that it is the official one.
    reader = dataclasses.replace(data.reader_of("mnist"), sha256=wanted.sha256[:16])
    monkeypatch.setattr(small, "MNIST", reader, raising=False)
    monkeypatch.setitem(data.TABLE, "mnist", "tests.data.small:MNIST")
    prepare.main(flags)
    found = data.open_set("mnist", tmp_path)
    assert found.fingerprint == f"mnist/1.0.0/{reader.sha256}"


def test_what_is_no_set_of_images_is_refused(tmp_path):
    flags = ["mnist", f"--from_tfds={tmp_path}", "--as=x", f"--data_dir={tmp_path}"]
    with refused(r"not a set of images .*dataset_info"):
        prepare.main(flags)
    tfds_sets.write(data.open_set("story_mr"), tmp_path / "text")
    flags[1] += "/text"
    with refused(r"not a set of images .*KeyError..image"):
        prepare.main(flags)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            np.array([0, 1, -1]),
            "label of example 2 of test is -1; a whole number from 0",
        ),
        (np.array([0, 1 / 7, 1]), "label of .* has the type float.*; a whole"),
        (np.array([0, 2**32, 1]), "label of example 1 of test is 4294967296; a whole"),
        (None, "has no column 'label'"),
    ],
)
def test_labels_that_are_no_digits_are_refused(tmp_path, labels, message):
    splits = {}
    for split in ("train", "valid", "test"):
        splits[split] = {"image": np.zeros((3, 28, 28), np.uint8)}
        if labels is not None:
            is_test = split == "test"
            splits[split]["label"] = labels if is_test else np.abs(labels) % 2
    reader = Reader(title="Odd.", read=lambda raw: Content(splits))
    data.prepare("odd", tmp_path, tmp_path, reader=reader)
    tfds_sets.write(data.open_set("odd", tmp_path), tmp_path / "out")
    flags = ["mnist", f"--from_tfds={tmp_path / 'out'}", "--as=x"]
    with refused(message):
        prepare.main([*flags, f"--data_dir={tmp_path}"])


@pytest.mark.parametrize("name", ["digits", "story_mr"])
def test_tfds_opens_a_set_of_ours(tmp_path, name):
    prepare.main([name, f"--tfds={tmp_path / 'out'}"])
    opened = data.open_set(name)
    builder = tfds.builder_from_directory(str(tmp_path / "out"))
    assert builder.name == name
    metadata = json.loads((tmp_path / "out/metadata.json").read_text())
    assert metadata == {"fingerprint": opened.fingerprint, "facts": opened.facts}
    for split, size in opened.splits.items():
        source = builder.as_data_source(split)
        assert len(source) == size
        for column, values in opened.columns(split).items():
            dtype = (values.values if isinstance(values, Ragged) else values).dtype
            for i in (0, 1, size - 1):
                found = source[i][column]
                assert found.dtype == dtype
                np.testing.assert_array_equal(found, values[i])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with refused("out: exists already; name a new folder"):
        prepare.main([name, f"--tfds={tmp_path / 'out'}"])


def test_books_are_no_set_of_examples(tmp_path):
    with refused("stories: its columns differ in length"):
        tfds_sets.write(data.open_set("stories"), tmp_path / "out")
