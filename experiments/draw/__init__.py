"""DRAW on binarised MNIST (section 6.4, Figure 4).

An image is drawn in glimpses by two LSTMs. `config.norm` is one of

    none        no normalisation
    weight      weight normalisation of every kernel
    layer_cell  layer norm on the cells of the LSTMs (eq. 29-31), the paper's curve
    layer       layer norm at all three sites (eq. 20-22)

Run with configs/draw.py.
"""

from ml_collections import ConfigDict

from .fields import FIELDS as FIELDS

# A config file imports the fields, and need not wait for JAX.


def make(config: ConfigDict):
    """Make the experiment."""
    from . import experiment

    return experiment.make(config)


def sizes(config: ConfigDict):
    """Return what the data set says about fields of the config."""
    from . import data

    return data.sizes(config)
