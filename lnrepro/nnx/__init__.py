"""Norms and recurrent networks as flax.nnx modules, with Flax's argument names."""

from lnrepro.nnx.cells import FunctionalCell, GRUCell, LSTMCell, SimpleCell
from lnrepro.nnx.combine import Bidirectional, Stack
from lnrepro.nnx.norms import BatchNorm, LayerNorm, RMSNorm
from lnrepro.nnx.sequences import GRU, LSTM, RNN, SimpleRNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "BatchNorm",
    "Bidirectional",
    "FunctionalCell",
    "GRUCell",
    "LSTMCell",
    "LayerNorm",
    "RMSNorm",
    "SimpleCell",
    "SimpleRNN",
    "Stack",
]
