"""Skip-thought vectors and the five transfer tasks (section 6.3, Figure 3, Table 3).

A GRU encodes a sentence of a book. Two more GRUs predict the sentences before and after
it. `config.norm` is "none", or "layer" for LN-GRUs in the encoder and in both decoders.
Run with configs/skip_thoughts.py.
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
