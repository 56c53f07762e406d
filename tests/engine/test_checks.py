"""Ranges of a config's numbers: one line, before anything is written."""

import collections

import numpy as np
import pytest

from lnrepro.config import FIELDS
from lnrepro.engine import experiment, run_config, train
from lnrepro.engine.run import Run
from tests.engine import toy
from tests.refused import refused


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("log_every", 0),
        ("save_every", -1),
        ("steps", 0),
        ("steps_per_call", 0),
        ("eval_batch_size", 0),
        ("batch_size", -8),
        ("epochs", 0.0),
        ("seed", -1),
        ("data.train_examples", 0),
        ("optimizer.learning_rate", 0.0),
        ("optimizer.b1", 1.0),
        ("optimizer.b2", 1.0),
        ("optimizer.eps", 0.0),
        ("optimizer.clip", 0.0),
        ("seed", None),
        ("batch_size", None),
    ],
)
def test_a_number_out_of_its_range_is_named(tmp_path, field, value):
    config = toy.get_config()
    config.update_from_flattened_dict({field: value})
    with refused(f"config.{field} = {value}: give {FIELDS[field].words}"):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("named", "changes"),
    [
        ("config.data.name", {"data.name": None}),
        ("config.curves", {"curves": (("a", (1,), "log"),)}),
        ("config.curves", {"curves": (("a", ("test/error",), "log", 0),)}),
        ("config.best.mode", {"best.mode": "lowest"}),
        ("'xmap': give one of jit, pmap", {"placement": "xmap"}),
        ("'sgd': give one of adam, kiros_adam", {"optimizer.name": "sgd"}),
        ("'each': give one of global, ", {"optimizer.clip_mode": "each"}),
        ("'linear': give one of cosine", {"optimizer.decay": "linear"}),
        ("config.epochs = nan", {"epochs": float("nan")}),
        # JAX counts steps in 32 bits.
        ("config.epochs", {"epochs": 1e12}),
        *(("config.evals.test", {"evals.test": v}) for v in ("-1", "0", "2.5", "x")),
    ],
)
def test_a_value_that_cannot_be_is_named(tmp_path, named, changes):
    config = toy.get_config()
    config.update_from_flattened_dict(changes)
    with refused(named):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["", ".x", "x..y", "experiments."])
def test_what_is_no_name_of_a_module_is_one_line(name):
    config = toy.get_config()
    config.experiment = name
    with refused(f"config.experiment = {name!r}: "):
        experiment.load(config)


Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        float("nan"),
        (1.0, [float("-inf")]),
        np.int64(3),
        np.float32(0.5),
        np.float64(0.5),
        np.bool_(True),
        np.str_("a"),
        (1, np.int8(2)),
        np.zeros((2, 2)),
        Pair(1, 2),
        {1, 2},
        b"bytes",
        1j,
        {"inner": {1: 2}},
        ({True: 1},),
    ],
    ids=repr,
)
def test_what_a_config_json_does_not_keep_is_refused(tmp_path, value):
    config = toy.get_config().unlock()
    config.model.own = value
    with refused("config.model.own", "a config.json does not keep it"):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_trained_is_what_a_config_json_keeps(tmp_path):
    config = toy.get_config().unlock()
    config.model.own = [1, (2.0, "a"), None, True]
    config.model.inner = {"empty": {}, "tiny": 5e-324, "in a tuple": ({"b": 1},)}
    trained = Run(config, tmp_path).config
    assert trained.model.own == (1, (2.0, "a"), None, True)
    again = run_config.from_json(run_config.as_json(trained))
    assert again.to_dict() == trained.to_dict()
    assert trained.model.inner.to_dict() == config.model.inner.to_dict()


@pytest.mark.parametrize(("there", "now"), [(1, True), (2, 2.0), ((1,), (True,))])
def test_a_value_of_another_type_is_another_config(there, now):
    """A whole number and a real one are computed with in different types."""
    whole = run_config.as_json(toy.get_config())
    there, now = ({"config": whole | {"model": {"own": v}}} for v in (there, now))
    run_config.check_same("it", there, there, "no remedy")
    with refused("config.model.own: "):
        run_config.check_same("it", there, now, "no remedy")


@pytest.mark.parametrize(
    ("epochs", "steps"),
    [(1.1, 110), (0.07, 7), (0.28, 28), (2.2, 220), (1.101, 111), (2, 200), (1e-9, 1)],
)
def test_steps_are_those_of_the_decimal_number_of_epochs(epochs, steps):
    config = toy.get_config()
    config.batch_size, config.data.train_examples = 8, 800
    config.epochs = epochs
    assert experiment.total_steps(config) == steps
