"""MNIST read pixel by pixel: does a norm speed up an LSTM over 784 steps?

This task is not in the paper. Le, Jaitly and Hinton (2015) made it a test of recurrent
networks: the network sees one pixel in each step, and names the digit after the last
one. Run with configs/sequential_mnist.py.
"""

from ml_collections import ConfigDict

from .fields import FIELDS as FIELDS

# A config file imports the fields, and need not wait for JAX.


def make(config: ConfigDict):
    """Make the experiment, see `classification.make`."""
    from experiments import classification

    from .model import PixelLSTM

    return classification.make(config, PixelLSTM(config))


def sizes(config: ConfigDict):
    """Return what the data set says about fields of the config."""
    from experiments import classification

    return classification.sizes(config)
