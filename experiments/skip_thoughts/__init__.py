"""Skip-thought vectors and the five transfer tasks (section 6.3, Figure 3, Table 3).

A GRU encodes a sentence of a book. Two more GRUs predict the sentences before and after
it. `config.norm` is "none", or "layer" for LN-GRUs in the encoder and in both decoders.
Run with configs/skip_thoughts.py.
"""

from experiments.fields.skip_thoughts import FIELDS as FIELDS

from .data import sizes as sizes
from .experiment import make as make
