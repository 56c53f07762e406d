"""Permutation-invariant MNIST classification (section 6.6, Figure 6).

A multi-layer perceptron with layer, batch or no normalisation. Figure 6 compares them
at batch sizes 128 and 4. Run with configs/mnist.py.
"""

from ml_collections import ConfigDict

from .fields import FIELDS as FIELDS

# A config file imports the fields, and need not wait for JAX.


def make(config: ConfigDict):
    """Make the experiment, see `classification.make`."""
    from experiments import classification

    from .model import MLP

    return classification.make(config, MLP(config))


def sizes(config: ConfigDict):
    """Return what the data set says about fields of the config."""
    from experiments import classification

    return classification.sizes(config)
