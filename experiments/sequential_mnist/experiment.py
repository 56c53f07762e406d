"""The experiment of the pixel sequences."""

from ml_collections import ConfigDict

from experiments import classification
from lnrepro.engine.experiment import Experiment

from .model import PixelLSTM


def make(config: ConfigDict) -> Experiment:
    """Make the experiment, see `classification.make`."""
    return classification.make(config, PixelLSTM(config))
