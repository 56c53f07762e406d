"""The experiment of the pixel sequences."""

from ml_collections import ConfigDict

from experiments import classification
from lnrepro.checks import check_choice
from lnrepro.engine.experiment import Experiment

from .model import NORMS, PixelLSTM


def make(config: ConfigDict) -> Experiment:
    """Make the experiment, see `classification.make`."""
    check_choice(config, "norm", NORMS)
    return classification.make(config, PixelLSTM(config))
