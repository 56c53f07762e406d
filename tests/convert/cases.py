"""Cells of other libraries: their layout, our cell and their equations.

Those without an entry in the table have a layout here, as a user would write it.
docs/cells.md says which cell belongs to which library.
"""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from lnrepro import convert
from lnrepro.convert import Layout, Row, needs
from lnrepro.functional import (
    Cell,
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    SimpleCell,
)
from tests.convert import libraries
from tests.convert.libraries import D, H

RNG = np.random.default_rng(0)


@dataclasses.dataclass(frozen=True)
class Case:
    """A cell of another library, and ours.

    Attributes:
      library: its name or layout.
      cell: our cell.
      step: the library's equations; None for Flax, whose cells are run themselves.
    """

    library: str | Layout
    cell: Cell
    step: Callable | None

    def load(self, weights, **options):
        """Our parameters from weights of the library."""
        return convert.load(self.library, self.cell, weights, **options)

    def dump(self, params, **options):
        """Weights of the library from our parameters."""
        return convert.dump(self.library, self.cell, params, **options)


def layer_norm_lstm(*rows, zeros=(), **options):
    """The layout of an LSTM with layer norm."""
    return Layout(rows, "f i o g", needs("layer", **options), zeros=zeros)


TORCHAUDIO = layer_norm_lstm(
    Row("x2g.weight", "w_x", "i f g o", transposed=True),
    Row("p2g.weight", "w_h", "i f g o", transposed=True),
    Row("g_norm.weight", "gain_joint", "i f g o"),
    Row("g_norm.bias", "bias", "i f g o"),
    Row("c_norm.weight", "gain_c"),
    Row("c_norm.bias", "bias_c"),
    norm_site="joint",
    cell_norm="carry",
)
TENSORFLOW_ADDONS = layer_norm_lstm(
    Row("kernel", "w_x", "i f g o"),
    Row("recurrent_kernel", "w_h", "i f g o"),
    Row("bias", "bias", "i f g o"),
    Row("kernel_norm/gamma", "gain_x", "i f g o"),
    Row("kernel_norm/beta", "bias_x", "i f g o"),
    Row("recurrent_norm/gamma", "gain_h", "i f g o"),
    Row("recurrent_norm/beta", "bias_h", "i f g o"),
    Row("state_norm/gamma", "gain_c"),
    Row("state_norm/beta", "bias_c"),
    cell_norm="carry",
)
HASTE_LSTM = layer_norm_lstm(
    Row("kernel", "w_x", "i g f o"),
    Row("recurrent_kernel", "w_h", "i g f o"),
    Row("bias", "bias", "i g f o"),
    Row("gamma", "gain_x gain_h", "i g f o"),
    Row("gamma_h", "gain_c"),
    Row("beta_h", "bias_c"),
    # There is one bias for both products.
    zeros=("bias_x", "bias_h"),
    cell_norm="output",
)
lstm, gru, rnn = LSTMCell(H, "none"), GRUCell(H, "none"), SimpleCell(H, "none")
gru_two_biases = GRUCell(H, "none", recurrent_bias=True)
gru_before = GRUCell(H, "none", reset="before")
rnn_relu = SimpleCell(H, "none", activation_fn=jax.nn.relu)
theano = LSTMCell(H, "none", inner_bias=True)
theano_norm = dataclasses.replace(theano, norm="layer")
theano_learned = dataclasses.replace(theano_norm, learned_carry=True)
dreamer = DreamerGRUCell(H, "layer", epsilon=1e-3)
dreamer_plain = DreamerGRUCell(H, "none")
block_gru = DreamerBlockGRUCell(H, hidden_features=4, input_sizes=(2, 1), blocks=2)
carried = LSTMCell(H, "layer", cell_norm="carry", epsilon=1e-3)
transducer = LSTMCell(H, "layer", norm_site="joint", cell_norm="carry")


CASES = {
    "torch-lstm": ("torch", lstm, libraries.torch_lstm),
    "torch-gru": ("torch", gru_two_biases, libraries.torch_gru),
    "torch-rnn": ("torch", rnn, libraries.torch_rnn),
    "keras-lstm": ("keras", lstm, libraries.keras_lstm),
    "keras-gru": ("keras", gru_two_biases, libraries.keras_gru_after),
    "keras-gru-before": ("keras", gru_before, libraries.keras_gru_before),
    "keras-rnn": ("keras", rnn, libraries.keras_rnn),
    "flax-lstm": ("flax", lstm, None),
    "flax-gru": ("flax", gru_two_biases, None),
    "flax-rnn": ("flax", rnn, None),
    "nnx-lstm": ("nnx", lstm, None),
    "nnx-lstm-optimized": ("nnx_optimized", lstm, None),
    "nnx-gru": ("nnx", gru, None),
    "nnx-rnn": ("nnx", rnn, None),
    "haiku-lstm": ("haiku", lstm, libraries.haiku_lstm),
    "haiku-gru": ("haiku", gru_before, libraries.haiku_gru),
    "haiku-rnn": ("haiku", rnn_relu, libraries.haiku_rnn),
    "equinox-lstm": ("equinox", lstm, libraries.equinox_lstm),
    "equinox-gru": ("equinox", gru_two_biases, libraries.equinox_gru),
    "theano-lstm": ("theano", theano, libraries.theano_lstm),
    "theano-ln-lstm": ("theano", theano_norm, libraries.theano_lstm),
    "theano-ln-lstm-h0": ("theano", theano_learned, libraries.theano_lstm),
    "theano-gru": ("theano", gru, libraries.theano_gru),
    "theano-ln-gru": ("theano", GRUCell(H), libraries.theano_gru),
    "dreamer-gru": ("dreamer", dreamer, libraries.dreamer_gru),
    "dreamer-gru-no-norm": ("dreamer", dreamer_plain, libraries.dreamer_gru),
    "dreamer-gru-state-first": (
        "dreamer_state_first",
        dreamer,
        libraries.dreamer_gru_state_first,
    ),
    "dreamer-block-gru": ("dreamer", block_gru, libraries.dreamer_block_gru),
    "torchaudio-ln": (TORCHAUDIO, transducer, libraries.torchaudio_lstm),
    "addons": (TENSORFLOW_ADDONS, carried, libraries.tfa_lstm),
    "haste-ln-lstm": (HASTE_LSTM, LSTMCell(H), libraries.haste_lstm),
}
CASES = {name: Case(*case) for name, case in CASES.items()}


# The same layers of use_bias=False, which have no recurrent bias either.
for name, case in list(CASES.items()):
    if name.startswith(("torch-", "keras", "equinox", "dreamer-gru", "addons")):
        options = {"use_bias": False}
        if isinstance(case.cell, GRUCell):
            options["recurrent_bias"] = False
        cell = dataclasses.replace(case.cell, **options)
        CASES[f"{name}-no-bias"] = dataclasses.replace(case, cell=cell)


def random_like(tree):
    """Random numbers in the shapes of a tree."""
    return jax.tree.map(lambda a: 0.5 * RNG.standard_normal(a.shape), tree)


def random_params(cell):
    """Parameters of a cell whose every entry is a random number."""
    return random_like(jax.eval_shape(lambda: cell.init(jax.random.key(0), D)))


def weights_of(name):
    """Random weights of a case's library, not made from parameters of ours."""
    case = CASES[name]
    # Every library can hold zeros.
    zeros = jax.tree.map(np.zeros_like, random_params(case.cell))
    return random_like(case.dump(zeros))
