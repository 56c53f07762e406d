"""What TensorBoard reads of a run, and its metrics.csv."""

import csv
import io
import json
import struct
import time

import pytest
from PIL import Image
from tensorboardX.proto import event_pb2

from lnrepro.engine import metrics
from lnrepro.engine.events import Events


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


def test_starts_are_read_in_their_order_when_the_clock_is_set_back(
    tmp_path, monkeypatch
):
    # The file of an older version.
    seen = [tmp_path / "events.out.tfevents.1800000000.host"]
    seen[0].touch()
    for now in (1_700_000_000, 1_600_000_000, 1_500_000_000):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        Events(tmp_path, 5).close()
        seen += set(tmp_path.iterdir()) - set(seen)
    assert sorted(tmp_path.iterdir()) == seen


def records(folder):
    """The step and the numbers of each record."""
    for record in metrics.read(folder / "metrics.jsonl"):
        step = record.pop("step")
        yield step, {k: v for k, v in record.items() if k not in ("epoch", "data")}


def test_the_scalars_are_the_records(toy_run):
    expected = {}
    for step, numbers in records(toy_run):
        expected |= {(step, name): value for name, value in numbers.items()}
    shown = {}
    for step, value in values(toy_run):
        if value.HasField("simple_value"):
            shown[step, value.tag] = value.simple_value
    assert shown == pytest.approx(expected, rel=1e-6)


def test_the_pictures_are_the_artifacts(toy_run):
    ((step, value),) = [x for x in values(toy_run) if x[1].HasField("image")]
    assert (step, value.tag) == (30, "square")
    saved = toy_run / "artifacts/square.png"
    assert value.image.encoded_image_string == saved.read_bytes()
    assert (value.image.width, value.image.height) == Image.open(saved).size


def test_the_config_is_text(toy_run):
    of_tag = {value.tag: value for _, value in values(toy_run)}
    block = of_tag["config/text_summary"].tensor.string_val[0].decode()
    assert json.loads(block)["optimizer"]["learning_rate"] == 1e-2


def test_metrics_csv_has_the_numbers_of_every_record(toy_run):
    with open(toy_run / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row, (step, numbers) in zip(rows, records(toy_run), strict=True):
        assert int(row["step"]) == step
        filled = {k: v for k, v in row.items() if v and k not in ("step", "epoch")}
        assert filled.pop("data") == "digits"
        assert {name: float(text) for name, text in filled.items()} == numbers
