"""Order-embeddings of images and captions (section 6.1, Figure 1, Table 2).

Captions and images are embedded in one space, in which each is retrieved by the other.
`config.norm` is "none", or "layer" for layer norm in the GRU that reads captions (eq.
26-28). Words and images are not normalised. `config.model.similarity` is "order", or
"cosine" for the symmetric row of Table 2 (with margin 0.2). Run with
configs/order_embeddings.py.
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
