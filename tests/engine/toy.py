"""An experiment of a few numbers, for the engine's tests: a noisy linear fit whose every part can be watched."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro.engine import evaluation
from lnrepro.engine.experiment import Experiment


def get_config() -> ConfigDict:
    return ConfigDict(
        {
            "experiment": "tests.engine.toy",
            "norm": "none",
            "seed": 0,
            "batch_size": 8,
            "epochs": 3.0,
            "steps": 0,
            "steps_per_call": 1,
            "placement": "jit",
            "data": {"name": "digits", "train_examples": 80},
            "optimizer": {
                "name": "adam",
                "learning_rate": 1e-2,
                "b1": 0.9,
                "b2": 0.999,
                "eps": 1e-8,
                "clip": 0.0,
                "clip_mode": "global",
            },
            "log_every": 4,
            "eval_every": 0,
            "save_every": 5,
            "eval_splits": ("test",),
            "final_splits": ("picture",),
            "best": {"metric": "test/error", "mode": "min"},
            "curves": (("loss", ("train/loss", "test/error"), "log"),),
            "nan_at": -1,
        }
    )


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
            return {
                "square": np.full((4, 4, 3), 200, np.uint8),
                "note.html": "<p>done</p>",
                "sum": 1.5,
            }
        x = np.random.default_rng(99).normal(size=(11, 3)).astype(np.float32)
        return mean(
            vars,
            [
                {"x": x[:8], "mask": np.ones(8)},
                {"x": x[3:], "mask": np.arange(8) >= 5.0},
            ],
        )

    return Experiment(init, loss, batches, evaluate)
