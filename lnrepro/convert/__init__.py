"""Weights of recurrent layers from and to other libraries.

Dicts of arrays come in and dicts of NumPy arrays go out. No other library is imported.

`lstm_from_X(weights)`, `gru_from_X` and `rnn_from_X` return parameters for the cells of
`lnrepro.functional` and for the Flax modules, which use the same names. `lstm_to_X`,
`gru_to_X` and `rnn_to_X` go back. Each docstring names the cell that the weights belong
to. X is one of:

- torch, keras, flax (linen), nnx, haiku: LSTM, GRU and simple RNN;
- equinox, theano (the authors' code, with layer norm): LSTM and GRU;
- dreamer: the GRU of DreamerV2, and `block_gru_from_dreamer` for that of DreamerV3.

The modules of TorchRL, LSTMModule and GRUModule, have the weights of torch:
`lstm_from_torch(weights, prefix="lstm.")`, `gru_from_torch(weights, prefix="gru.")`.
Their `is_init` is our `resets`, where the states stored in a batch are zeros.

`lstm_layers_from_torch` and so on convert all layers and directions at once, and
`flax_checkpoint` all cells of a Flax checkpoint with the state of its optimizer.
`gradients(lstm_from_X, lstm_to_X, tree)` converts gradients and moments of Adam.

Four differences recur:

- Gate order. Ours is f, i, o, g (LSTM) and z, r, candidate (GRU). `reorder` changes it,
  for a library that has no converter.
- Update gate. Most libraries compute h_t = u h_{t-1} + (1 - u) n, and we compute
  h_t = (1 - z) h_{t-1} + z n. So u = sigmoid(-z), and the weights of z change sign.
- Two biases. Where only their sum counts, as in torch's LSTM, they come back as one.
- Constants. The 1 that Haiku adds to the forget gate is part of our bias.

A round trip gives the same bits, but for the last two differences.
"""

from lnrepro.convert.checkpoint import flax_checkpoint
from lnrepro.convert.derivatives import gradients
from lnrepro.convert.dreamer import (
    block_gru_from_dreamer,
    block_gru_to_dreamer,
    gru_from_dreamer,
    gru_to_dreamer,
)
from lnrepro.convert.equinox import (
    gru_from_equinox,
    gru_to_equinox,
    lstm_from_equinox,
    lstm_to_equinox,
)
from lnrepro.convert.flax import (
    gru_from_flax,
    gru_to_flax,
    lstm_from_flax,
    lstm_to_flax,
    rnn_from_flax,
    rnn_to_flax,
)
from lnrepro.convert.haiku import (
    gru_from_haiku,
    gru_to_haiku,
    lstm_from_haiku,
    lstm_to_haiku,
    rnn_from_haiku,
    rnn_to_haiku,
)
from lnrepro.convert.keras import (
    gru_from_keras,
    gru_to_keras,
    lstm_from_keras,
    lstm_to_keras,
    rnn_from_keras,
    rnn_to_keras,
)
from lnrepro.convert.layout import reorder
from lnrepro.convert.nnx import (
    gru_from_nnx,
    gru_to_nnx,
    lstm_from_nnx,
    lstm_to_nnx,
    rnn_from_nnx,
    rnn_to_nnx,
)
from lnrepro.convert.theano import (
    gru_from_theano,
    gru_to_theano,
    lstm_from_theano,
    lstm_to_theano,
)
from lnrepro.convert.torch import (
    gru_from_torch,
    gru_to_torch,
    lstm_from_torch,
    lstm_to_torch,
    rnn_from_torch,
    rnn_to_torch,
)
from lnrepro.convert.torch_layers import (
    gru_layers_from_torch,
    gru_layers_to_torch,
    lstm_layers_from_torch,
    lstm_layers_to_torch,
    rnn_layers_from_torch,
    rnn_layers_to_torch,
)

__all__ = [
    "block_gru_from_dreamer",
    "block_gru_to_dreamer",
    "flax_checkpoint",
    "gradients",
    "gru_from_dreamer",
    "gru_from_equinox",
    "gru_from_flax",
    "gru_from_haiku",
    "gru_from_keras",
    "gru_from_nnx",
    "gru_from_theano",
    "gru_from_torch",
    "gru_layers_from_torch",
    "gru_layers_to_torch",
    "gru_to_dreamer",
    "gru_to_equinox",
    "gru_to_flax",
    "gru_to_haiku",
    "gru_to_keras",
    "gru_to_nnx",
    "gru_to_theano",
    "gru_to_torch",
    "lstm_from_equinox",
    "lstm_from_flax",
    "lstm_from_haiku",
    "lstm_from_keras",
    "lstm_from_nnx",
    "lstm_from_theano",
    "lstm_from_torch",
    "lstm_layers_from_torch",
    "lstm_layers_to_torch",
    "lstm_to_equinox",
    "lstm_to_flax",
    "lstm_to_haiku",
    "lstm_to_keras",
    "lstm_to_nnx",
    "lstm_to_theano",
    "lstm_to_torch",
    "reorder",
    "rnn_from_flax",
    "rnn_from_haiku",
    "rnn_from_keras",
    "rnn_from_nnx",
    "rnn_from_torch",
    "rnn_layers_from_torch",
    "rnn_layers_to_torch",
    "rnn_to_flax",
    "rnn_to_haiku",
    "rnn_to_keras",
    "rnn_to_nnx",
    "rnn_to_torch",
]
