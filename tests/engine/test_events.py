"""What TensorBoard reads of a run, and its metrics.csv."""

import csv
import io
import struct

import pytest
from tensorboardX.proto import event_pb2

from lnrepro.engine import metrics


def events(folder):
    """The events of a run, read as the format of TFRecord files states."""
    (path,) = (folder / "tensorboard").iterdir()
    file = io.BytesIO(path.read_bytes())
    # A record: its length (8 bytes), a checksum (4), the event, a checksum (4).
    while head := file.read(12):
        (length,) = struct.unpack("<Q", head[:8])
        yield event_pb2.Event.FromString(file.read(length))
        file.read(4)


def test_events_are_the_records(toy_run):
    expected, shown = {}, {}
    for record in metrics.read(toy_run / "metrics.jsonl"):
        numbers = {name for name in record if "/" in name}
        expected |= {(record["step"], name): record[name] for name in numbers}
    starts = []
    for event in events(toy_run):
        if event.HasField("session_log"):
            starts.append(event.step)
        for value in event.summary.value:
            shown[event.step, value.tag] = value.simple_value
    assert shown == pytest.approx(expected, rel=1e-6)
    # TensorBoard hides what earlier starts wrote from this step on.
    assert starts[-1] == 1


def test_metrics_csv_has_the_numbers_of_every_record(toy_run):
    with open(toy_run / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    filled = [{k: v for k, v in row.items() if v} for row in rows]
    records = metrics.read(toy_run / "metrics.jsonl")
    assert filled == [{k: str(v) for k, v in record.items()} for record in records]
