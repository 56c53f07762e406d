"""What TensorBoard reads of a run, and its metrics.csv."""

import csv
import io
import json
import struct

import numpy as np
import pytest
from PIL import Image
from tensorboardX.proto import event_pb2, plugin_hparams_pb2

from lnrepro.engine import train
from tests.engine import toy


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "_data_identity", lambda config: ("toy/1", {}))
        train.train(toy.get_config(), folder)
    return folder


def values(folder):
    """(step, value) of the events, read as the format of TFRecord files states."""
    found = []
    for path in (folder / "tensorboard").iterdir():
        file = io.BytesIO(path.read_bytes())
        # A record: its length (8 bytes), a checksum (4), the event, a checksum (4).
        while head := file.read(12):
            (length,) = struct.unpack("<Q", head[:8])
            event = event_pb2.Event.FromString(file.read(length))
            file.read(4)
            found += [(event.step, value) for value in event.summary.value]
    return found


def test_the_scalars_are_the_records(run):
    records = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    expected = []
    for record in records:
        names = record.keys() - {"step", "epoch", "data"}
        expected += [(record["step"], name, record[name]) for name in names]
    shown = [
        (step, value.tag, value.simple_value)
        for step, value in values(run)
        if value.HasField("simple_value")
    ]
    assert [x[:2] for x in sorted(shown)] == [x[:2] for x in sorted(expected)]
    np.testing.assert_allclose(
        [x[2] for x in sorted(shown)], [x[2] for x in sorted(expected)], rtol=1e-6
    )


def test_the_pictures_are_the_artifacts(run):
    ((step, value),) = [x for x in values(run) if x[1].HasField("image")]
    assert (step, value.tag) == (30, "square")
    shown = Image.open(io.BytesIO(value.image.encoded_image_string))
    saved = Image.open(run / "artifacts/square.png")
    assert shown.size == (value.image.width, value.image.height)
    np.testing.assert_array_equal(np.asarray(shown), np.asarray(saved))


def test_the_config_is_text_and_hyperparameters(run):
    of_tag = {value.tag: value for _, value in values(run)}
    block = of_tag["config/text_summary"].tensor.string_val[0].decode()
    config = json.loads(block)
    assert config["optimizer"]["learning_rate"] == 1e-2
    plugin = of_tag["_hparams_/session_start_info"].metadata.plugin_data
    data = plugin_hparams_pb2.HParamsPluginData.FromString(plugin.content)
    fields = data.session_start_info.hparams
    assert fields["optimizer.learning_rate"].number_value == 1e-2
    assert fields["norm"].string_value == "none"


def test_metrics_csv_has_the_numbers_of_every_record(run):
    records = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    with open(run / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        filled = {name: text for name, text in row.items() if text}
        assert filled.keys() == record.keys()
        for name in filled.keys() - {"data"}:
            assert float(filled[name]) == record[name]
