"""Handwriting synthesis (section 6.5, Figure 5): pen steps that write a given text.

Three LSTMs with an attention window over the text (Graves 2013, section 5).
`config.norm` is "none", or "layer" for layer norm at all three sites (eq. 20-22) of all
three LSTMs. The window and the outputs are not normalised. Run with
configs/handwriting.py.
"""

from .data import SIZES as SIZES
from .data import sizes as sizes
from .experiment import make as make
