"""Small networks that the tests of experiments share."""

import jax
import numpy as np

from lnrepro.engine import config_file
from tests.functional.programs import drawn
from tests.runs import ROOT


def config_of(name, variant="smoke", **changes):
    """A config of an experiment; `changes` are values by dotted names."""
    config = config_file.read(f"{ROOT}/configs/{name}.py:{variant}")
    config.update_from_flattened_dict(changes)
    return config


def random_params(init):
    """Parameters in float64, none of them 0; `init` would have to be compiled."""
    shapes = jax.eval_shape(init, jax.random.key(0))
    return jax.tree.map(np.float64, drawn(shapes))
