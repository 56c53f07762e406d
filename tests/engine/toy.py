"""A linear fit of a few numbers, as an experiment for the tests of the engine."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro.config import adam, base, update
from lnrepro.engine import evaluation
from lnrepro.engine.experiment import Evaluation, Experiment


def get_config() -> ConfigDict:
    config = base("tests.engine.toy")
    update(
        config,
        {
            "norm": "none",
            "batch_size": 8,
            "epochs": 3.0,
            "data": {"name": "digits", "train_examples": 80},
            "optimizer": adam(1e-2),
            "log_every": 4,
            "save_every": 5,
            "evals": {"test": "epoch", "picture": "end"},
            "best": {"metric": "test/error", "mode": "min"},
            "curves": (("loss", ("train/loss", "test/error"), "log"),),
            "nan_at": -1,
        },
    )
    return config


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
            {"scale": jnp.abs(vars["params"]["w"]).mean()},
        )

    def batches(start):
        for k in itertools.count(start):
            rng = np.random.default_rng([config.seed, k])
            x = rng.normal(size=(config.batch_size, 3)).astype(np.float32)
            rows = config.batch_size // jax.process_count()
            mine = slice(jax.process_index() * rows, (jax.process_index() + 1) * rows)
            yield {"x": x[mine], "k": np.full(rows, k)}

    def values(vars, batch):
        return {"error": jnp.abs(batch["x"] @ (vars["params"]["w"] - truth)).mean(-1)}

    mean = evaluation.mean_over_examples(values)

    def evaluate(vars, split):
        if split == "picture":
            return Evaluation(
                scalars={"sum": 1.5},
                images={"square": np.full((4, 4, 3), 200, np.uint8)},
                files={"note.html": "<p>done</p>"},
            )
        x = np.random.default_rng(99).normal(size=(11, 3)).astype(np.float32)
        batches = [
            {"x": x[:8], "mask": np.ones(8)},
            {"x": x[3:], "mask": np.arange(8) >= 5.0},
        ]
        return Evaluation(mean(vars, batches))

    return Experiment(init, loss, batches, evaluate)
