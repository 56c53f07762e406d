"""Norms and recurrent networks as flax.linen modules, with Flax's argument names."""

from lnrepro.linen.cells import FunctionalCell, GRUCell, LSTMCell, SimpleCell
from lnrepro.linen.combine import Bidirectional, Stack
from lnrepro.linen.norms import BatchNorm, LayerNorm, RMSNorm
from lnrepro.linen.scanned import ScannedRNN
from lnrepro.linen.sequences import GRU, LSTM, RNN, SimpleRNN

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
    "ScannedRNN",
    "SimpleCell",
    "SimpleRNN",
    "Stack",
]
