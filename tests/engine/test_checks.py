"""Ranges of a config's numbers: one line, before anything is written."""

import pytest

from lnrepro.checks import RANGES
from lnrepro.engine import config_file, experiment, train
from lnrepro.errors import UserError
from tests.engine import toy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((f, v) for f in ("log_every", "save_every", "steps") for v in (-1, 0)),
        ("steps_per_call", 0),
        ("eval_batch_size", 0),
        ("batch_size", -8),
        ("epochs", float("nan")),
        ("epochs", float("inf")),
        ("epochs", 0.0),
        ("seed", -1),
        ("seed", 2**32),
        ("seeds", 0),
        ("mesh.model", 0),
        ("data.train_examples", 0),
        *(("optimizer.learning_rate", v) for v in (0.0, -1e-3, float("nan"))),
        *(("optimizer.b1", v) for v in (-0.1, 1.0, float("nan"))),
        ("optimizer.b2", 1.0),
        ("optimizer.eps", 0.0),
        ("optimizer.clip", 0.0),
        ("optimizer.clip", float("inf")),
        ("seed", None),
        ("seeds", None),
        ("batch_size", None),
        ("steps_per_call", None),
        ("data.train_examples", None),
        ("optimizer.learning_rate", None),
    ],
)
def test_a_number_out_of_its_range_is_named(tmp_path, field, value):
    config = toy.get_config()
    config.update_from_flattened_dict({field: value})
    with pytest.raises(UserError) as e:
        train.train(config, tmp_path / "run")
    assert str(e.value).startswith(f"config.{field} = {value}: ")
    assert str(e.value).endswith(RANGES[field].words)
    assert not (tmp_path / "run").exists()


def test_a_data_set_without_a_name_is_refused(tmp_path):
    config = toy.get_config()
    config.update_from_flattened_dict({"data.name": None})
    with pytest.raises(UserError, match=r"config\.data\.name = None: the name"):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("schedule", ["-1", "0", "2.5", "often"])
def test_a_schedule_that_is_none_is_named(tmp_path, schedule):
    config = toy.get_config()
    config.evals.test = schedule
    with pytest.raises(UserError, match=f"config.evals.test = '{schedule}'"):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["", None, ".x", "x..y", "experiments."])
def test_what_is_no_name_of_a_module_is_one_line(name):
    config = toy.get_config()
    config.experiment = name
    with pytest.raises(UserError, match="give the dotted name of a module") as e:
        experiment.load(config)
    assert str(e.value).startswith(f"config.experiment = {name!r}: ")


def test_a_group_of_fields_cannot_be_none():
    with pytest.raises(UserError, match=r"config\.evals = None: it is a group of"):
        config_file.read("configs/mnist.py:smoke", ["--config.evals=None"])


def test_the_last_of_several_seeds_has_a_range_too(tmp_path):
    config = toy.get_config()
    config.seed, config.seeds = 2**32 - 2, 3
    with pytest.raises(UserError, match="the last seed would be 4294967296"):
        train.train(config, tmp_path / "run")


def test_best_is_the_largest_or_the_smallest(tmp_path):
    config = toy.get_config()
    config.best.mode = "lowest"
    with pytest.raises(UserError, match=r"config\.best.mode = 'lowest': choose one of"):
        train.train(config, tmp_path / "run")


def test_a_config_outside_of_the_checkout_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UserError, match="run the command in the folder of the checkout"
    ):
        config_file.check_file("configs/mnist.py")
