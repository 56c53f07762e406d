"""Permutation-invariant MNIST classification (section 6.6, Figure 6).

A multi-layer perceptron with layer, batch or no normalisation. Figure 6 compares them
at batch sizes 128 and 4. Run with configs/mnist.py.
"""

from ml_collections import ConfigDict

from experiments import classification
from experiments.classification import sizes as sizes
from experiments.fields.mnist import FIELDS as FIELDS
from lnrepro.engine.experiment import Experiment

from .model import MLP


def make(config: ConfigDict) -> Experiment:
    """Make the experiment, see `classification.make`."""
    return classification.make(config, MLP(config))
