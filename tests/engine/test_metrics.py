"""Means over intervals, records, evaluation of each example once; what is shown."""

import json
import math
import time

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageSequence

from lnrepro.engine import artifacts, evaluation, json_files, metrics, progress
from lnrepro.engine.experiment import Evaluation
from lnrepro.errors import RunError
from tests.refused import refused


def host(tree):
    return {k: np.array(v) for k, v in tree.items()}


def test_meter_continued_from_its_state_ends_with_the_same_mean():
    values = np.random.default_rng(0).normal(size=12).astype(np.float32)

    def fill(meter, start, end):
        for step in range(start, end, 3):
            part = {"loss": jnp.asarray(values[step : step + 3])}
            meter.add(step + 3, part, is_end=step == 9)
        return meter

    ((step, means),) = fill(metrics.Meter(host), 0, 12).drain()
    first = fill(metrics.Meter(host), 0, 6)
    # The newest call is not waited for.
    assert list(first.drain(keep=1)) == []
    assert first.state()["count"] == 3
    assert list(first.drain()) == []
    second = fill(metrics.Meter(host, first.state()), 6, 12)
    assert list(second.drain()) == [(step, means)]
    np.testing.assert_allclose(
        means["loss"], values.astype(np.float64).mean(), rtol=1e-12
    )


def test_meter_names_the_step_that_is_not_finite():
    meter = metrics.Meter(host)
    meter.add(23, {"loss": jnp.asarray([1.0, jnp.inf, 2.0])})
    with refused("train/loss is inf at step 22", error=RunError):
        list(meter.drain())


def test_torn_last_line_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert [r["step"] for r in metrics.read(path)] == [1, 2]


def test_mean_over_examples_ignores_padding():
    mean = evaluation.mean_over_examples(
        lambda vars, batch: {"v": vars["a"] * batch["x"]}
    )
    batches = [
        {"x": np.array([1.0, 2.0, 3.0]), "mask": np.ones(3)},
        {"x": np.array([10.0, 999.0, np.nan]), "mask": np.array([1.0, 0.0, 0.0])},
    ]
    assert mean({"a": np.float32(2.0)}, batches) == {"v": 8.0}


def rgb(image):
    return np.asarray(image.convert("RGB"))


def test_images_and_files_are_written(tmp_path):
    random = np.random.default_rng(0)
    picture = random.integers(0, 256, (90, 121, 3), np.uint8)
    # GIFs have 256 colours, so that the frames are grey.
    film = np.repeat(random.integers(0, 256, (3, 90, 120, 1), np.uint8), 3, axis=-1)
    evaluation = Evaluation(
        images={"plain": picture, "film": film}, files={"page.html": "<p>"}
    )
    artifacts.write(tmp_path, evaluation)
    np.testing.assert_array_equal(rgb(Image.open(tmp_path / "plain.png")), picture)
    frames = ImageSequence.Iterator(Image.open(tmp_path / "film.gif"))
    np.testing.assert_array_equal([rgb(frame) for frame in frames], film)
    assert (tmp_path / "page.html").read_text() == "<p>"


def test_json_has_null_for_what_is_not_finite_and_keeps_every_bit():
    value = {"a": [1.5, math.nan, (math.inf,)], "b": {"c": -math.inf, "d": np.e}}
    text = json_files.text(value)
    assert json.loads(text) == {"a": [1.5, None, [None]], "b": {"c": None, "d": np.e}}
    assert "NaN" not in text
    values = np.random.default_rng(0).normal(size=100).tolist()
    assert json.loads(json_files.text(values)) == values


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(50, "2.0 steps/s  0:00:50 left"), (400, "4.0 s/step  0:06:40 left")],
)
def test_a_line_has_the_rate_the_time_left_and_the_deciding_number_first(
    monkeypatch, seconds, shown
):
    monkeypatch.setattr(time, "monotonic", lambda: seconds + 7.0)
    values = {"test/bound": 1.0, "valid/bound": 2.0}
    line = progress.line(200, 300, values, "valid/bound", (100, 7.0))
    assert line == f"step 200/300  {shown}  valid/bound 2  test/bound 1"
    assert progress.line(200, 300, {"a": 1.0}, None, None) == "step 200/300    a 1"


def test_cells_of_a_column_begin_below_one_another():
    shown = progress.table(progress.HEAD, ("at [/5]", "0.333333", "nats"))
    assert shown == "metric   value     unit\nat [/5]  0.333333  nats"
