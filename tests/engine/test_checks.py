"""Ranges of a config's numbers: one line, before anything is written."""

import pytest

from lnrepro.checks import RANGES
from lnrepro.engine import experiment, train
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
        ("epochs", float("nan")),
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
    with refused(f"config.{field} = {value}: {RANGES[field].words}"):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("named", "changes"),
    [
        ("config.data.name", {"data.name": None}),
        ("config.best.mode", {"best.mode": "lowest"}),
        ("'xmap': choose one of jit, pmap", {"placement": "xmap"}),
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
