"""The MNIST experiment."""

from ml_collections import ConfigDict

from experiments import classification
from lnrepro.checks import check_at_least, check_choice
from lnrepro.engine.experiment import Experiment

from .model import MLP, NORMS


def make(config: ConfigDict) -> Experiment:
    """Make the experiment, see `classification.make`."""
    check_choice(config, "norm", NORMS)
    check_at_least(config, 1, "model.hidden", "model.classes", "data.features")
    return classification.make(config, MLP(config))
