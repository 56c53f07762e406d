"""The attentive reader (section 6.2, Figure 2).

It reads a passage and says which entity is missing in a sentence about it.
`config.norm` is one of

    none              no normalisation
    layer             layer norm in both LSTMs (eq. 20-22)
    batch             the BN-LSTM of Cooijmans et al. (2016): statistics by time step
    batch_everywhere  the same, and batch norm on the maps of attention and read-out
    layer_everywhere  the same with layer norm; the paper does not have it

Run with configs/attentive_reader.py.
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
