"""The optimiser step of a config, as the trainer takes it."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from lnrepro.engine import experiment, optim
from lnrepro.engine.experiment import Experiment
from lnrepro.engine.train_step import make_init, make_step


class Steps(NamedTuple):
    """The parts of a training.

    Attributes:
      experiment: the experiment.
      init: (key) -> the state before the first step.
      step: (state, batches [K, B, ...]) -> (state, metrics).
    """

    experiment: Experiment
    init: Callable
    step: Callable


def steps_of(config: ConfigDict, key: jax.Array) -> Steps:
    """Make the parts of a training, which nothing has compiled.

    Args:
      config: the config.
      key: the random key of the steps.
    """
    exp = experiment.load(config)
    optimizer = optim.make(config.optimizer, experiment.total_steps(config))
    step = functools.partial(make_step(exp, optimizer, key), axis=None)
    return Steps(exp, make_init(exp, optimizer), step)
