"""Layers of other libraries, and the cells and converters that belong to them."""

import dataclasses
import functools
from collections.abc import Callable

import jax

from lnrepro import convert
from lnrepro.functional import Cell, DreamerGRUCell, GRUCell, LSTMCell, SimpleCell
from tests.convert.libraries import (
    D,
    H,
    draw,
    dreamer_gru,
    dreamer_weights,
    equinox_gru,
    equinox_lstm,
    equinox_weights,
    flax_gru,
    flax_gru_weights,
    flax_lstm,
    flax_lstm_weights,
    flax_rnn,
    flax_rnn_weights,
    haiku_gru,
    haiku_lstm,
    haiku_rnn,
    haiku_rnn_weights,
    keras_gru,
    keras_lstm,
    keras_rnn,
    keras_weights,
    nnx_gru,
    nnx_optimized_lstm,
    nnx_rnn,
    nnx_weights,
    theano_gru,
    theano_gru_weights,
    theano_lstm,
    theano_lstm_weights,
    torch_gru,
    torch_lstm,
    torch_rnn,
    torch_weights,
)


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of another library, and ours that it is converted into.

    Attributes:
      weights: random weights of the library's layer.
      step: its equations.
      cell: our cell.
      from_library: the converter into parameters of our cell.
      to_library: the converter back.
      comes_back: whether a round trip gives `weights` again, to the bit. It does not
        where two biases become one, or where the library's layer always has a bias.
    """

    weights: dict
    step: Callable
    cell: Cell
    from_library: Callable
    to_library: Callable
    comes_back: bool = True


lstm, gru, rnn = LSTMCell(H, "none"), GRUCell(H, "none"), SimpleCell(H, "none")
lstm_no_bias = LSTMCell(H, "none", use_bias=False)
gru_no_bias = GRUCell(H, "none", use_bias=False)
rnn_no_bias = SimpleCell(H, "none", use_bias=False)
gru_two_biases = GRUCell(H, "none", recurrent_bias=True)
gru_before = GRUCell(H, "none", reset="before")
gru_before_no_bias = GRUCell(H, "none", reset="before", use_bias=False)
rnn_relu = SimpleCell(H, "none", activation_fn=jax.nn.relu)
theano_cell = LSTMCell(H, "none", inner_bias=True)
theano_ln_cell = dataclasses.replace(theano_cell, norm="layer")
theano_learned_cell = dataclasses.replace(theano_ln_cell, learned_carry=True)
keras_gru_after = functools.partial(keras_gru, reset_after=True)
keras_gru_before = functools.partial(keras_gru, reset_after=False)
optimized_to_nnx = functools.partial(convert.lstm_to_nnx, optimized=True)
single_bias_to_haiku = functools.partial(convert.rnn_to_haiku, double_bias=False)

torch_lstms = convert.lstm_from_torch, convert.lstm_to_torch
torch_grus = convert.gru_from_torch, convert.gru_to_torch
torch_rnns = convert.rnn_from_torch, convert.rnn_to_torch
keras_lstms = convert.lstm_from_keras, convert.lstm_to_keras
keras_grus = convert.gru_from_keras, convert.gru_to_keras
keras_rnns = convert.rnn_from_keras, convert.rnn_to_keras
flax_lstms = convert.lstm_from_flax, convert.lstm_to_flax
flax_grus = convert.gru_from_flax, convert.gru_to_flax
flax_rnns = convert.rnn_from_flax, convert.rnn_to_flax
nnx_lstms = convert.lstm_from_nnx, convert.lstm_to_nnx
nnx_optimized = convert.lstm_from_nnx, optimized_to_nnx
nnx_grus = convert.gru_from_nnx, convert.gru_to_nnx
nnx_rnns = convert.rnn_from_nnx, convert.rnn_to_nnx
haiku_lstms = convert.lstm_from_haiku, convert.lstm_to_haiku
haiku_grus = convert.gru_from_haiku, convert.gru_to_haiku
haiku_rnns = convert.rnn_from_haiku, convert.rnn_to_haiku
haiku_single = convert.rnn_from_haiku, single_bias_to_haiku
equinox_lstms = convert.lstm_from_equinox, convert.lstm_to_equinox
equinox_grus = convert.gru_from_equinox, convert.gru_to_equinox
theano_lstms = convert.lstm_from_theano, convert.lstm_to_theano
theano_grus = convert.gru_from_theano, convert.gru_to_theano
dreamers = convert.gru_from_dreamer, convert.gru_to_dreamer
dreamers_state_first = [functools.partial(f, state_first=True) for f in dreamers]
dreamer_gru_state_first = functools.partial(dreamer_gru, state_first=True)
dreamer_cell = DreamerGRUCell(H, "layer", epsilon=1e-3)
dreamer_no_bias = dataclasses.replace(dreamer_cell, use_bias=False)

haiku_lstm_weights = {"lstm/linear": {"w": draw(D + H, 4 * H), "b": draw(4 * H)}}
haiku_gru_weights = {
    "gru": {"w_i": draw(D, 3 * H), "w_h": draw(H, 3 * H), "b": draw(3 * H)}
}


LAYERS = {
    "torch-lstm": Layer(
        torch_weights(4, bias=True), torch_lstm, lstm, *torch_lstms, comes_back=False
    ),
    "torch-lstm-no-bias": Layer(
        torch_weights(4, bias=False), torch_lstm, lstm_no_bias, *torch_lstms
    ),
    "torch-gru": Layer(
        torch_weights(3, bias=True), torch_gru, gru_two_biases, *torch_grus
    ),
    "torch-gru-no-bias": Layer(
        torch_weights(3, bias=False), torch_gru, gru_no_bias, *torch_grus
    ),
    "torch-rnn": Layer(
        torch_weights(1, bias=True), torch_rnn, rnn, *torch_rnns, comes_back=False
    ),
    "torch-rnn-no-bias": Layer(
        torch_weights(1, bias=False), torch_rnn, rnn_no_bias, *torch_rnns
    ),
    "keras-lstm": Layer(keras_weights(4, (4 * H,)), keras_lstm, lstm, *keras_lstms),
    "keras-lstm-no-bias": Layer(
        keras_weights(4, None), keras_lstm, lstm_no_bias, *keras_lstms
    ),
    "keras-gru-after": Layer(
        keras_weights(3, (2, 3 * H)), keras_gru_after, gru_two_biases, *keras_grus
    ),
    "keras-gru-before": Layer(
        keras_weights(3, (3 * H,)), keras_gru_before, gru_before, *keras_grus
    ),
    "keras-gru-after-no-bias": Layer(
        keras_weights(3, None), keras_gru_after, gru_no_bias, *keras_grus
    ),
    "keras-gru-before-no-bias": Layer(
        keras_weights(3, None), keras_gru_before, gru_before_no_bias, *keras_grus
    ),
    "keras-rnn": Layer(keras_weights(1, (H,)), keras_rnn, rnn, *keras_rnns),
    "keras-rnn-no-bias": Layer(
        keras_weights(1, None), keras_rnn, rnn_no_bias, *keras_rnns
    ),
    "flax-lstm": Layer(flax_lstm_weights(bias=True), flax_lstm, lstm, *flax_lstms),
    "flax-lstm-no-bias": Layer(
        flax_lstm_weights(bias=False),
        flax_lstm,
        lstm_no_bias,
        *flax_lstms,
        comes_back=False,
    ),
    "flax-gru": Layer(
        flax_gru_weights(bias=True), flax_gru, gru_two_biases, *flax_grus
    ),
    "flax-gru-no-bias": Layer(
        flax_gru_weights(bias=False),
        flax_gru,
        gru_no_bias,
        *flax_grus,
        comes_back=False,
    ),
    "flax-rnn": Layer(flax_rnn_weights(bias=True), flax_rnn, rnn, *flax_rnns),
    "flax-rnn-no-bias": Layer(
        flax_rnn_weights(bias=False),
        flax_rnn,
        rnn_no_bias,
        *flax_rnns,
        comes_back=False,
    ),
    "nnx-lstm": Layer(
        flax_lstm_weights(bias=True, forget="f_"), flax_lstm, lstm, *nnx_lstms
    ),
    "nnx-optimized-lstm": Layer(
        nnx_weights(4, "dense_h"), nnx_optimized_lstm, lstm, *nnx_optimized
    ),
    "nnx-optimized-lstm-no-bias": Layer(
        nnx_weights(4, None),
        nnx_optimized_lstm,
        lstm_no_bias,
        *nnx_optimized,
        comes_back=False,
    ),
    "nnx-gru": Layer(nnx_weights(3, "dense_i"), nnx_gru, gru, *nnx_grus),
    "nnx-gru-no-bias": Layer(
        nnx_weights(3, None), nnx_gru, gru_no_bias, *nnx_grus, comes_back=False
    ),
    "nnx-rnn": Layer(nnx_weights(1, "dense_i"), nnx_rnn, rnn, *nnx_rnns),
    "nnx-rnn-no-bias": Layer(
        nnx_weights(1, None), nnx_rnn, rnn_no_bias, *nnx_rnns, comes_back=False
    ),
    # The 1 in the forget gate is added to the bias and rounded with it.
    "haiku-lstm": Layer(
        haiku_lstm_weights, haiku_lstm, lstm, *haiku_lstms, comes_back=False
    ),
    "haiku-gru": Layer(haiku_gru_weights, haiku_gru, gru_before, *haiku_grus),
    "haiku-rnn": Layer(
        haiku_rnn_weights(double_bias=True),
        haiku_rnn,
        rnn_relu,
        *haiku_rnns,
        comes_back=False,
    ),
    "haiku-rnn-single-bias": Layer(
        haiku_rnn_weights(double_bias=False), haiku_rnn, rnn_relu, *haiku_single
    ),
    "equinox-lstm": Layer(
        equinox_weights(4, ["bias"], bias=True), equinox_lstm, lstm, *equinox_lstms
    ),
    "equinox-lstm-no-bias": Layer(
        equinox_weights(4, ["bias"], bias=False),
        equinox_lstm,
        lstm_no_bias,
        *equinox_lstms,
    ),
    "equinox-gru": Layer(
        equinox_weights(3, ["bias", "bias_n"], bias=True),
        equinox_gru,
        gru_two_biases,
        *equinox_grus,
    ),
    "equinox-gru-no-bias": Layer(
        equinox_weights(3, ["bias", "bias_n"], bias=False),
        equinox_gru,
        gru_no_bias,
        *equinox_grus,
    ),
    "theano-lstm": Layer(
        theano_lstm_weights(norms=False), theano_lstm, theano_cell, *theano_lstms
    ),
    "theano-ln-lstm": Layer(
        theano_lstm_weights(norms=True), theano_lstm, theano_ln_cell, *theano_lstms
    ),
    "theano-ln-lstm-h0": Layer(
        theano_lstm_weights(norms=True, learned=True),
        theano_lstm,
        theano_learned_cell,
        *theano_lstms,
    ),
    "theano-gru": Layer(theano_gru_weights(norms=False), theano_gru, gru, *theano_grus),
    "theano-ln-gru": Layer(
        theano_gru_weights(norms=True),
        theano_gru,
        GRUCell(H, norm="layer"),
        *theano_grus,
    ),
    "dreamer-gru": Layer(
        dreamer_weights(norm=True, bias=True), dreamer_gru, dreamer_cell, *dreamers
    ),
    "dreamer-gru-state-first": Layer(
        dreamer_weights(norm=True, bias=False),
        dreamer_gru_state_first,
        dreamer_no_bias,
        *dreamers_state_first,
    ),
    "dreamer-gru-no-norm": Layer(
        dreamer_weights(norm=False, bias=True),
        dreamer_gru,
        DreamerGRUCell(H, "none"),
        *dreamers,
    ),
}
