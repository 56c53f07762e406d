"""Layer norm and recurrent networks as flax.linen modules, with Flax's arguments."""

from lnrepro.linen.cells import FunctionalCell, GRUCell, LSTMCell, SimpleCell
from lnrepro.linen.norms import LayerNorm
from lnrepro.linen.scanned import ScannedRNN
from lnrepro.linen.sequences import GRU, LSTM, RNN, SimpleRNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "FunctionalCell",
    "GRUCell",
    "LSTMCell",
    "LayerNorm",
    "ScannedRNN",
    "SimpleCell",
    "SimpleRNN",
]
