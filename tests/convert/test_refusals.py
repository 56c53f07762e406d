"""Cells, names and values that are refused, and what is said of them."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import convert
from lnrepro.functional import GRUCell, LSTMCell, SimpleCell
from tests.convert.cases import CASES, random_params, weights_of
from tests.convert.libraries import D, H
from tests.convert.test_layouts import line_of, same


@pytest.mark.parametrize(
    ("library", "cell", "text"),
    [
        ("torch", LSTMCell(H), "norm='none', not 'layer'"),
        ("torch", GRUCell(H, "none"), "recurrent_bias=True, not False"),
        ("torch", GRUCell(H, "none", reset="before"), "reset='after', not 'before'"),
        ("torch", LSTMCell(H, "none", learned_carry=True), "learned_carry=False"),
        ("torch", LSTMCell(H, "none", peephole=True), "no place for peephole"),
        ("flax", LSTMCell(H, "none", use_bias=False), "use_bias=True"),
        ("nnx", GRUCell(H, "none", recurrent_bias=True), "recurrent_bias=False"),
        ("haiku", SimpleCell(H, "none"), "activation_fn=relu, not tanh"),
        ("theano", LSTMCell(H), "inner_bias=True"),
        ("theano", LSTMCell(H, "rms", inner_bias=True), "'none' or 'layer'"),
        ("theano", LSTMCell(H, inner_bias=True, cell_norm="carry"), "'output'"),
        (
            "dreamer",
            dataclasses.replace(CASES["dreamer-block-gru"].cell, norm="layer"),
            "norm='rms'",
        ),
        ("tensorflow", LSTMCell(H), "libraries: dreamer"),
        ("torch", LSTMCell, "no layout of type in 'torch'; cells there: GRUCell"),
    ],
)
def test_another_cell_is_refused_by_its_option(library, cell, text):
    with line_of("convert: ", text):
        convert.load(library, cell, {})
    with line_of("convert: ", text):
        convert.dump(library, cell, {})


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        # An LSTM with proj_size.
        ("torch-lstm", "weight_hr_l0"),
        ("torch-lstm-no-bias", "bias_ih_l0"),
        ("keras-lstm", "kernel_norm/beta"),
        ("flax-gru", "norm:scale"),
        ("haiku-lstm", "lstm/linear:scale"),
        ("equinox-lstm", "bias_n"),
        ("theano-gru", "lngru_Wc"),
        ("theano-ln-lstm", "lnlstm_h0"),
        ("dreamer-gru", "norm/offset"),
        # Several hidden layers.
        ("dreamer-block-gru", "dynhid1/kernel"),
    ],
)
def test_further_weights_of_the_cell_are_refused(name, extra):
    case = CASES[name]
    with line_of(f"has no weight {extra}; it has "):
        case.load({**weights_of(name), extra: np.ones(H)})


def test_weights_that_are_none_or_stand_twice_are_named():
    with line_of("'bias' is a str, not an array"):
        CASES["keras-lstm"].load(weights_of("keras-lstm") | {"bias": "kernel.npy"})
    with line_of("two weights i:kernel"):
        CASES["flax-rnn"].load(weights_of("flax-rnn") | {"i:kernel": np.ones(1)})


LAYERS = ("_l0", "_l0_reverse", "_l1", "_l1_reverse", "_l11")


@pytest.mark.parametrize(
    ("name", "option", "places"),
    [
        ("torch-gru", "prefix", ("encoder", "encoder.rnn.")),
        ("torch-gru", "suffix", LAYERS),
        ("keras-rnn", "prefix", ("both/forward_rnn/cell/", "both/backward_rnn/cell/")),
        ("haiku-lstm", "prefix", ("network/lstm", "network/lstm_1")),
        ("theano-ln-gru", "prefix", ("encoder", "encoder_r")),
        ("dreamer-block-gru", "prefix", ("dyn/dyn", "enc/dyn")),
    ],
)
def test_one_cell_of_a_larger_program(name, option, places):
    case = CASES[name]
    program = {"Wemb": np.ones((7, D)), "head": {"w": np.ones((H, 2))}}
    params = {place: random_params(case.cell) for place in places}
    for place in places:
        program |= case.dump(params[place], **{option: place})
    for place in places:
        found = case.load(program, **{option: place})
        same(found, params[place], 1e-15)


def test_a_layer_of_torch_is_told_by_its_suffix():
    case, weights = CASES["torch-gru"], weights_of("torch-gru")
    with line_of("weight_hh_l1", "give one layer and direction as the suffix"):
        case.load({**weights, "weight_hh_l1": np.ones((3 * H, H))})
    # A torch.nn.GRUCell has none.
    single = case.dump(case.load(weights), suffix="")
    assert single.keys() == {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}
    case.load(single, suffix="")


def test_the_authors_lstm_has_one_bias_and_no_initial_cell():
    case = CASES["theano-ln-lstm-h0"]
    params = random_params(case.cell)
    for name in ("c0", "inner_bias"):
        with line_of(f"no place for {name} of its own"):
            case.dump(params)
        params[name] = params["bias"] if name == "inner_bias" else np.zeros(H)
    case.dump(params)


def test_a_haiku_rnn_with_double_bias_false():
    weights = weights_of("haiku-rnn")
    del weights["vanilla_rnn/linear_1"]["b"]
    bias = CASES["haiku-rnn"].load(weights)["bias"]
    same(bias, weights["vanilla_rnn/linear"]["b"], 0)


class Tensor:
    """Stands for a torch tensor of bfloat16, which NumPy gets by way of float32."""

    dtype = "torch.bfloat16"

    def __init__(self, a):
        self.a = a

    def detach(self):
        return self

    cpu = detach

    def float(self):
        return self.a.astype(np.float32)


def test_tensors_become_arrays_of_the_same_bits():
    case = CASES["torch-gru"]
    weights = {n: a.astype(jnp.bfloat16) for n, a in weights_of("torch-gru").items()}
    found = case.load({name: Tensor(a) for name, a in weights.items()})
    assert found["w_h"].dtype == jnp.bfloat16
    same(found, case.load(weights), 0)
