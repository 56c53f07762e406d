"""Recurrent cells: the LSTM, the GRU and the simple RNN with every norm."""

from lnrepro.functional.cells.base import Cell, Prepared, StepContext, clip_gradient
from lnrepro.functional.cells.gru import GRUCell
from lnrepro.functional.cells.lstm import LSTMCell
from lnrepro.functional.cells.simple import SimpleCell

__all__ = [
    "Cell",
    "GRUCell",
    "LSTMCell",
    "Prepared",
    "SimpleCell",
    "StepContext",
    "clip_gradient",
]
