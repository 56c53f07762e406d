"""Handwriting synthesis (section 6.5, Figure 5): pen steps that write a given text.

Three LSTMs with an attention window over the text (Graves 2013, section 5).
`config.norm` is "none"; "layer" for layer norm at all three sites (eq. 20-22) of all
three LSTMs; or "layer_cell" for layer norm on their cells alone (eq. 29-31), which the
paper has in DRAW. The window and the outputs are not normalised. Run with
configs/handwriting.py.
"""

from experiments.fields.handwriting import FIELDS as FIELDS

from .data import sizes as sizes
from .experiment import make as make
