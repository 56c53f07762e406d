"""Numbers that are not finite: they end a run, and its files stay valid JSON."""

import json
import math

import numpy as np
import pytest

from lnrepro.engine import evaluate, json_files, metrics, train, workdir
from lnrepro.errors import Diverged
from tests.engine import toy
from tests.engine.toy import config, crash_at
from tests.refused import refused

pytestmark = pytest.mark.usefixtures("toy_data")


def strict(text):
    """Parse JSON as other parsers do, which know no NaN and no Infinity."""

    def refuse(word):
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def measuring(monkeypatch, value, name="test"):
    """Let an evaluation of the toy measure a number beside its own ones."""

    def evaluate(real, vars, split):
        found = real(vars, split)
        if split != name:
            return found
        return found._replace(scalars={**found.scalars, "nll": value})

    toy.change(monkeypatch, evaluate=evaluate)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize(("name", "step"), [("test", 10), ("picture", 30)])
def test_an_evaluation_that_is_not_finite_ends_the_run(
    tmp_path, monkeypatch, value, name, step
):
    measuring(monkeypatch, value, name)
    with refused(f"{name}/nll is ", f"at step {step}", error=Diverged):
        train.train(config(), tmp_path)
    assert not (tmp_path / "results.json").exists()
    # The state of this evaluation is not the best one, whatever its other numbers are.
    assert (tmp_path / "checkpoints/best").exists() == (name == "picture")
    *_, last = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert strict(last)[f"{name}/nll"] is None
    assert math.isnan(metrics.read(tmp_path / "metrics.jsonl")[-1][f"{name}/nll"])
    assert workdir.is_diverged(tmp_path)
    noted = strict((tmp_path / workdir.DIVERGED).read_text())
    assert noted == {"metric": f"{name}/nll", "step": step}


def test_a_run_that_diverged_is_told_apart_until_it_is_mended(tmp_path, monkeypatch):
    with pytest.raises(Diverged):
        train.train(config(nan_at=13), tmp_path)
    assert workdir.is_diverged(tmp_path)
    # The machine that computed the NaN is repaired.
    real = toy.make
    monkeypatch.setattr(toy, "make", lambda c: real(config()))
    train.train(config(nan_at=13), tmp_path)
    assert not workdir.is_diverged(tmp_path)


def test_a_crash_is_not_divergence(tmp_path, monkeypatch):
    crash_at(monkeypatch, 7)
    with pytest.raises(KeyError):
        train.train(config(), tmp_path)
    assert not workdir.is_diverged(tmp_path)


def test_evaluating_a_state_that_is_not_finite_fails_after_its_numbers(
    tmp_path, monkeypatch
):
    train.train(config(), tmp_path)
    measuring(monkeypatch, math.nan)
    with refused("test/nll is nan", error=Diverged):
        evaluate.evaluate(config(), tmp_path)
    assert strict((tmp_path / "evaluation.json").read_text())["test/nll"] is None


def test_json_has_null_for_what_is_not_finite_at_any_depth():
    value = {"a": [1.5, math.nan, (math.inf,)], "b": {"c": -math.inf, "d": np.e}}
    expected = {"a": [1.5, None, [None]], "b": {"c": None, "d": np.e}}
    assert strict(json_files.text(value)) == expected


def test_finite_numbers_keep_every_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=100).tolist()
    json_files.write(tmp_path / "x.json", {"values": values})
    assert json.loads((tmp_path / "x.json").read_text())["values"] == values
    assert not (tmp_path / "x.new").exists()
