"""MNIST read pixel by pixel: does a norm speed up an LSTM over 784 steps?

This task is not in the paper. Le, Jaitly and Hinton (2015) made it a test of recurrent
networks: the network sees one pixel in each step, and names the digit after the last
one. Run with configs/sequential_mnist.py.
"""

from ml_collections import ConfigDict

from experiments import classification
from experiments.classification import sizes as sizes
from experiments.fields.sequential_mnist import FIELDS as FIELDS
from lnrepro.engine.experiment import Experiment

from .model import PixelLSTM


def make(config: ConfigDict) -> Experiment:
    """Make the experiment, see `classification.make`."""
    return classification.make(config, PixelLSTM(config))
