"""DRAW on binarised MNIST (section 6.4, Figure 4).

An image is drawn in glimpses by two LSTMs. `config.norm` is one of

    none        no normalisation
    weight      weight normalisation of every kernel
    layer_cell  layer norm on the cells of the LSTMs (eq. 29-31), the paper's curve
    layer       layer norm at all three sites (eq. 20-22)

Run with configs/draw.py.
"""

from experiments.fields.draw import FIELDS as FIELDS

from .data import sizes as sizes
from .experiment import make as make
