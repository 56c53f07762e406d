"""Numbers that are not finite: they end a run, are valid JSON, and are told apart."""

import json
import math

import numpy as np
import pytest

from lnrepro.engine import json_files, loaded_run, metrics, train, workdir
from lnrepro.engine.experiment import Evaluation
from lnrepro.errors import Diverged
from tests.engine import toy
from tests.engine.test_train import config, interrupt


@pytest.fixture(autouse=True)
def _no_data_set(monkeypatch):
    monkeypatch.setattr(train, "_data_identity", lambda config: ("toy/1", {}))


def strict(text):
    """Parse JSON as other parsers do, which know no NaN and no Infinity."""

    def refuse(word):
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def measuring(monkeypatch, value, name="test"):
    """Let an evaluation of the toy measure a number beside its own ones."""
    real = toy.make

    def make(c):
        exp = real(c)

        def evaluate(vars, split):
            found = exp.evaluate(vars, split)
            if split != name:
                return found
            return Evaluation({**found.scalars, "nll": value})

        return exp._replace(evaluate=evaluate)

    monkeypatch.setattr(toy, "make", make)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("name", "step"), [("test", 10), ("picture", 30)])
def test_an_evaluation_that_is_not_finite_ends_the_run(
    tmp_path, monkeypatch, value, name, step
):
    measuring(monkeypatch, value, name)
    c = config()
    with pytest.raises(Diverged, match=rf"{name}/nll is .* at step {step}: stopped"):
        train.train(c, tmp_path)
    assert not (tmp_path / "results.json").exists()
    # The state of this evaluation is not the best one, whatever its other numbers are.
    assert workdir.has_checkpoint(tmp_path, "best") == (name == "picture")
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    last = [strict(line) for line in lines][-1]
    assert last[f"{name}/nll"] is None
    assert math.isnan(metrics.read(tmp_path / "metrics.jsonl")[-1][f"{name}/nll"])
    assert workdir.is_diverged(tmp_path)
    assert strict((tmp_path / workdir.DIVERGED).read_text()) == {
        "metric": f"{name}/nll",
        "step": step,
    }


def test_a_run_that_diverged_in_training_is_told_apart_until_it_is_mended(
    tmp_path, monkeypatch
):
    c = config(nan_at=13)
    with pytest.raises(Diverged):
        train.train(c, tmp_path)
    assert workdir.is_diverged(tmp_path)
    with monkeypatch.context() as m:
        # The machine that computed the NaN is repaired.
        real = toy.make
        m.setattr(toy, "make", lambda c: real(config()))
        train.train(c, tmp_path)
    assert not workdir.is_diverged(tmp_path)


def test_a_crash_is_not_divergence(tmp_path, monkeypatch):
    interrupt(monkeypatch, 7)
    with pytest.raises(KeyError):
        train.train(config(), tmp_path)
    assert not workdir.is_diverged(tmp_path)


def test_evaluating_a_state_that_is_not_finite_fails_after_its_numbers(
    tmp_path, monkeypatch
):
    train.train(config(), tmp_path)
    measuring(monkeypatch, math.nan)
    with pytest.raises(Diverged, match="test/nll is nan"):
        train.evaluate(config(), tmp_path)
    assert strict((tmp_path / "evaluation.json").read_text())["test/nll"] is None


def test_runs_of_the_version_that_wrote_nan_are_read_as_diverged(tmp_path):
    (tmp_path / "results.json").write_text('{"test/error": 0.5, "test/nll": NaN}')
    assert workdir.is_diverged(tmp_path)
    (tmp_path / "results.json").write_text('{"test/error": 0.5, "test/nll": 1.0}')
    assert not workdir.is_diverged(tmp_path)


def test_json_has_null_for_what_is_not_finite_at_any_depth():
    value = {
        "a": [1.5, math.nan, (math.inf,)],
        "b": {"c": -math.inf},
        "d": np.float64(2),
    }
    assert strict(json_files.text(value)) == {
        "a": [1.5, None, [None]],
        "b": {"c": None},
        "d": 2.0,
    }


def test_finite_numbers_keep_every_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=100).astype(np.float64).tolist()
    json_files.write(tmp_path / "x.json", {"values": values})
    assert json.loads((tmp_path / "x.json").read_text())["values"] == values
    assert not (tmp_path / "x.new").exists()


def test_the_list_of_runs_names_what_diverged(tmp_path):
    from lnrepro.runs import describe

    with pytest.raises(Diverged):
        train.train(config(nan_at=13), tmp_path)
    line = describe(loaded_run.load(tmp_path), tmp_path.parent, set())
    assert line.state == "diverged"
    assert line.best.startswith("test/error ")
