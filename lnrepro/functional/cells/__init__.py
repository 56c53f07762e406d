"""Recurrent cells: the paper's with every norm, and those of world models."""

from lnrepro.functional.cells.base import Cell, Prepared, StepContext, clip_gradient
from lnrepro.functional.cells.dreamer import DreamerBlockGRUCell, DreamerGRUCell
from lnrepro.functional.cells.gru import GRUCell
from lnrepro.functional.cells.lstm import LSTMCell
from lnrepro.functional.cells.simple import SimpleCell

__all__ = [
    "Cell",
    "DreamerBlockGRUCell",
    "DreamerGRUCell",
    "GRUCell",
    "LSTMCell",
    "Prepared",
    "SimpleCell",
    "StepContext",
    "clip_gradient",
]
