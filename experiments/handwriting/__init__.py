"""Handwriting synthesis (section 6.5, Figure 5): pen steps that write a given text, with and without layer normalisation.

`config.norm`: "none" or "layer" (LN as in eq. 20-22 in all three LSTMs; window and outputs are not normalised).
"""

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.batches import (
    Plan,
    eval_batches,
    evenly_spaced,
    train_batches,
)
from lnrepro.engine import evaluation
from lnrepro.engine.errors import DataError
from lnrepro.engine.experiment import Evaluation, Experiment

from .lines import Lines
from .model import Network
from .window import one_hot


def make(config: ConfigDict) -> Experiment:
    """The experiment. Its unit is Figure 5's: nats per sequence of at most `config.model.steps` steps, in offsets
    normalised to mean 0 and variance 1 over the training set.

    evaluate's splits: those of the data set give "nll" in that unit, "nll_per_step", and "nll_original", per sequence in
    the data's own coordinates (the Jacobian's log sigma_x + log sigma_y a step added); "final" gives the pictures.
    """
    network = Network(config)
    sizes = config.model

    def values(vars, batch):
        text = one_hot(batch["text"], batch["text_length"], sizes.symbols)
        return network.nll(vars["params"], batch["steps"], batch["steps_length"], text)

    def loss(vars, batch, key):
        nll = values(vars, batch).mean()
        return nll, (
            {},
            {
                "nll": nll,
                "nll_per_step": nll / jnp.maximum(batch["steps_length"].mean(), 1),
            },
        )

    def per_line(vars, batch):
        nll, steps = values(vars, batch), batch["steps_length"].astype(jnp.float32)
        return {
            "nll": nll,
            "nll_original": nll + steps * batch["log_scale"],
            "steps": steps,
        }

    mean = evaluation.mean_over_examples(per_line)
    pad = {"steps": sizes.steps, "text": sizes.characters}

    def batches(start_step: int):
        lines = open_lines(config, "train")
        return train_batches(
            lines,
            Plan(len(lines), config.batch_size, config.seed),
            start_step=start_step,
            pad=pad,
        )

    def evaluate(vars, split):
        if split == "final":
            from . import pictures

            return pictures.all_of(
                network, vars["params"], open_lines(config, "valid"), config
            )
        lines = open_lines(config, split)
        log_scale = np.float32(np.log(lines.std).sum())
        some = [
            lines[i] | {"log_scale": log_scale}
            for i in evenly_spaced(len(lines), config.eval_examples)
        ]
        numbers = mean(vars, eval_batches(some, config.eval_batch_size, pad=pad))
        steps = numbers.pop("steps")
        return Evaluation(numbers | {"nll_per_step": numbers["nll"] / steps})

    return Experiment(
        lambda key: {"params": network.init(key)}, loss, batches, evaluate
    )


def open_lines(config: ConfigDict, split: str) -> Lines:
    """A split's lines, held against the sizes in the config. Raises DataError where they differ."""
    columns, facts = (
        data.open_config(config.data, split),
        data.facts(config.data.name, config.data.dir),
    )
    if len(facts["symbols"]) != config.model.symbols:
        raise DataError(
            f"config.model.symbols = {config.model.symbols}, but {config.data.name} has {len(facts['symbols'])}"
        )
    longest = int(columns["text"].lengths.max())
    if longest > config.model.characters:
        raise DataError(
            f"config.model.characters = {config.model.characters}, but {config.data.name} has a line of {longest}"
        )
    return Lines(columns, facts, config.model.steps)
