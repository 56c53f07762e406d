"""Layer norm and recurrent networks as flax.nnx modules, with Flax's arguments."""

from lnrepro.nnx.cells import FunctionalCell, GRUCell, LSTMCell, SimpleCell
from lnrepro.nnx.norms import LayerNorm
from lnrepro.nnx.sequences import GRU, LSTM, RNN, SimpleRNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "FunctionalCell",
    "GRUCell",
    "LSTMCell",
    "LayerNorm",
    "SimpleCell",
    "SimpleRNN",
]
