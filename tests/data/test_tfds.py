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
from lnrepro.data import readers, tfds_sets
from scripts import prepare
from tests.data import idx
from tests.data.reading import refused, write
from tests.data.small import prepare_own

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
        part = "train" if split == "train" else "t10k"
        images = np.frombuffer(idx.files()[idx.IMAGES.format(part)][16:], np.uint8)
        labels = idx.files()[idx.LABELS.format(part)][8:]
        for i, image in enumerate(images.reshape(-1, 28, 28)):
            # From an array, TFDS would encode the image with TensorFlow.
            png = io.BytesIO()
            Image.fromarray(image).save(png, "png")
            png.seek(0)
            yield i, {"image": png, "label": labels[i]}


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
    raw = write(tmp_path / "raw", idx.files())
    data.prepare("mnist", raw, tmp_path, own_name="from_files")
    checksum = data.open_set("from_files", tmp_path).sha256[:16]
    folder = stored
    if file_format == "tfrecord":
        folder = as_tfrecord(stored, tmp_path / "stored")
    flags = [f"--from_tfds={folder}", f"--data_dir={tmp_path}"]
    # Other images of the same format need another name.
    with refused(r"the official mnist: .* pass --as NAME"):
        prepare.main(["mnist", *flags])
    # No checksum of the content of mr is known.
    with refused("'mr' cannot be the name of a set of own files"):
        prepare.main(["mr", *flags])
    # The checksum of the content shows that it is the official one.
    reader = dataclasses.replace(data.reader_of("mnist"), sha256=checksum)
    monkeypatch.setattr(readers.mnist, "MNIST", reader)
    prepare.main(["mnist", *flags])
    found = data.open_set("mnist", tmp_path)
    assert found.fingerprint == f"mnist/1.0.0/{checksum}"


def write_labels(root, labels):
    """Write a set of three images with these labels in each split."""
    columns = {"image": np.zeros((3, 28, 28), np.uint8), "label": labels}
    prepare_own(root, dict.fromkeys(("train", "valid", "test"), columns))
    tfds_sets.write(data.open_set("own", root), root / "out")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 2**32, 1], "label of example 1 of .* is 4294967296; a whole"),
        (None, r"not a set of images .*dataset_info"),
    ],
)
def test_what_is_no_set_of_digits_is_refused(tmp_path, labels, message):
    if labels:
        write_labels(tmp_path, np.array(labels))
    flags = [f"--from_tfds={tmp_path / 'out'}", "--as=x", f"--data_dir={tmp_path}"]
    with refused(message):
        prepare.main(["mnist", *flags])


@pytest.mark.parametrize("name", ["digits", "story_mr"])
def test_tfds_opens_a_set_of_ours(tmp_path, name):
    flags = [name, f"--tfds={tmp_path / 'out'}"]
    prepare.main(flags)
    opened = data.open_set(name)
    builder = tfds.builder_from_directory(str(tmp_path / "out"))
    assert builder.name == name
    metadata = json.loads((tmp_path / "out/metadata.json").read_text())
    assert metadata == {"fingerprint": opened.fingerprint, "facts": opened.facts}
    for split, size in opened.splits.items():
        source = builder.as_data_source(split)
        assert len(source) == size
        for column, values in opened.columns(split).items():
            for i in (0, 1, size - 1):
                np.testing.assert_array_equal(source[i][column], values[i], strict=True)
    with refused("out: exists already; name a new folder"):
        prepare.main(flags)
    with refused("stories: its columns differ in length"):
        tfds_sets.write(data.open_set("stories"), tmp_path / "books")
