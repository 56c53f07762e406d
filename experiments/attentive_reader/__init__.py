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

from experiments.fields.attentive_reader import FIELDS as FIELDS

from .data import sizes as sizes
from .experiment import make as make
