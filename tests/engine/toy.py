"""A linear fit of a few numbers, as an experiment for the tests of the engine."""

import itertools
import pathlib
import sys
import time
import types
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from lnrepro.config import variants
from lnrepro.engine import evaluation, loaded_run, train
from lnrepro.engine.checkpoint import Checkpoint
from lnrepro.engine.experiment import Eval, Evaluation, Experiment, Metric
from lnrepro.fields import Field

# Stands for `Run.data`.
DATA = types.SimpleNamespace(fingerprint="toy/1", facts={})
FIELDS = {
    "nan_at": Field(-1, "the batch whose loss is NaN"),
    "seconds": Field(0.0, "seconds that each batch takes"),
}
# 12 steps: logged at 4, 8 and 12, saved at 5, 10 and 12, evaluated at 10 and 12.
SETTINGS = {
    "norm": "none",
    "batch_size": 8,
    "epochs": 1.2,
    "data": {"name": "digits", "train_examples": 80},
    "optimizer": {"learning_rate": 1e-2},
    "log_every": 4,
    "save_every": 5,
    "evals": {"test": "epoch", "picture": "end"},
    "best": {"metric": "test/error"},
}
CURVES = (("loss", ("train/loss", "test/error"), "log"),)
get_config = variants("tests.engine.toy", {"": (SETTINGS,)}, FIELDS)


def make(config: ConfigDict) -> Experiment:
    truth = jnp.arange(6.0).reshape(3, 2)

    def init(key):
        return {
            "params": {"w": jax.random.normal(key, (3, 2))},
            "stats": {"seen": jnp.zeros(())},
        }

    def loss(vars, batch, key):
        # Dropout, so that a wrong key shows in the parameters.
        x = batch["x"] * jax.random.bernoulli(key, 0.9, batch["x"].shape)
        value = ((x @ vars["params"]["w"] - batch["x"] @ truth) ** 2).mean()
        value = jnp.where(batch["k"][0] == config.nan_at, jnp.nan, value)
        return value, (
            {"stats": {"seen": vars["stats"]["seen"] + 1}},
            # A metric may be a Python number.
            {"scale": jnp.abs(vars["params"]["w"]).mean(), "half": 0.5},
        )

    def batches(start):
        for k in itertools.count(start):
            rng = np.random.default_rng([config.seed, k])
            x = rng.normal(size=(config.batch_size, 3)).astype(np.float32)
            time.sleep(config.seconds)
            rows = config.batch_size // jax.process_count()
            mine = slice(jax.process_index() * rows, (jax.process_index() + 1) * rows)
            yield {"x": x[mine], "k": np.full(rows, k)}

    def values(vars, batch):
        return {"error": jnp.abs(batch["x"] @ (vars["params"]["w"] - truth)).mean(-1)}

    mean = evaluation.mean_over_examples(values)

    def picture(vars):
        return Evaluation(
            scalars={"sum": 1.5},
            images={"square": np.full((4, 4, 3), 200, np.uint8)},
            files={"note.txt": "done"},
        )

    def test(vars):
        x = np.random.default_rng(99).normal(size=(11, 3)).astype(np.float32)
        batches = [
            {"x": x[:8], "mask": np.ones(8)},
            # Five rows do not divide over the devices.
            {"x": x[6:], "mask": np.arange(5) >= 2.0},
        ]
        return Evaluation(mean(vars, batches))

    evals = {
        # A test keeps the checkpoint with the largest error.
        "test": Eval(test, {"error": Metric("m", config.best.mode)}),
        "picture": Eval(picture, {"sum": Metric()}),
    }
    return Experiment(init, loss, batches, evals)


def config(**changes) -> ConfigDict:
    """The config with changes, whose names have __ for a dot."""
    made = get_config()
    made.update_from_flattened_dict(
        {name.replace("__", "."): value for name, value in changes.items()}
    )
    return made


def change(monkeypatch, evaluate: Callable | None = None, **functions) -> None:
    """Replace functions of the experiment. Each takes the real one first.

    `evaluate` takes (the real one, vars, name), and replaces all evaluations.
    """
    real = make

    def changed(made):
        exp = real(made)
        new = {name: partial(f, getattr(exp, name)) for name, f in functions.items()}
        evals = {}
        for name, own in exp.evals.items():
            run = own.run
            if evaluate:
                run = partial(evaluate, lambda vars, _, run=run: run(vars), name=name)
            evals[name] = own._replace(run=run)
        return exp._replace(evals=evals, **new)

    monkeypatch.setattr(sys.modules[__name__], "make", changed)


def act_before(monkeypatch, at: int, act: Callable[[], object]) -> None:
    """Call `act` when batch `at` is asked for."""

    def batches(real, start):
        for k, batch in enumerate(real(start), start):
            if k == at:
                act()
            yield batch

    change(monkeypatch, batches=batches)


def train_until(monkeypatch, at: int, folder: pathlib.Path, **changes) -> None:
    """Train until a KeyError, when batch `at` is asked for."""
    with monkeypatch.context() as m:
        act_before(m, at, crash)
        with pytest.raises(KeyError):
            train.train(config(**changes), folder)


def crash(*arguments: object) -> None:
    """Fail with a KeyError."""
    raise KeyError("crash")


def final_state(folder: pathlib.Path) -> Checkpoint:
    """Read the newest checkpoint of a run."""
    saved = loaded_run.load(folder).checkpoint("last")
    assert saved is not None
    return saved


def assert_same_bits(a, b) -> None:
    """Check that two trees are equal."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)
