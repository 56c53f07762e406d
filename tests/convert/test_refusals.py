"""Cells, names and values that are refused, and what is said of them."""

import dataclasses
import functools

import numpy as np
import pytest

from lnrepro import convert
from lnrepro.convert.arrays import flatten, nest
from lnrepro.functional import GRUCell, LSTMCell, SimpleCell
from tests.convert.cases import CASES, random_params
from tests.convert.libraries import D, H
from tests.convert.test_layouts import same, weights_of
from tests.refused import refused

line_of = functools.partial(refused, error=ValueError)
LSTM = LSTMCell(H, "none")
TWO_BIASES = GRUCell(H, "none", recurrent_bias=True)


@pytest.mark.parametrize(
    ("library", "cell", "text"),
    [
        ("torch", LSTMCell(H), "norm='none', not 'layer'"),
        ("torch", GRUCell(H, "none"), "recurrent_bias=True, not False"),
        ("torch", GRUCell(H, "none", reset="before"), "reset='after', not 'before'"),
        ("torch", LSTMCell(H, "none", learned_carry=True), "learned_carry=False"),
        ("torch", LSTMCell(H, "none", peephole=True), "no place for peephole"),
        ("flax", LSTMCell(H, "none", use_bias=False), "use_bias=True"),
        ("nnx", TWO_BIASES, "recurrent_bias=False"),
        ("haiku", SimpleCell(H, "none"), "activation_fn=relu, not tanh"),
        ("theano", LSTMCell(H), "inner_bias=True"),
        ("theano", LSTMCell(H, "rms", inner_bias=True), "'none' or 'layer'"),
        ("theano", LSTMCell(H, inner_bias=True, cell_norm="carry"), "'output'"),
        (
            "dreamer",
            dataclasses.replace(CASES["dreamer-block-gru"].cell, norm="layer"),
            "norm='rms'",
        ),
        ("tensorflow", LSTM, "libraries: dreamer"),
        ({}, LSTM, "no layout of LSTMCell in 'dict'"),
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
    weights = nest({**flatten(weights_of(name)), extra: np.ones(H)})
    with line_of(f"has no weight {extra}; it has "):
        convert.load(case.library, case.cell, weights)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("torch-gru", ("encoder", "encoder.rnn.")),
        ("haiku-lstm", ("network/lstm", "network/lstm_1")),
        ("theano-ln-gru", ("encoder", "encoder_r")),
        ("dreamer-block-gru", ("dyn/dyn", "enc/dyn")),
    ],
)
def test_a_prefix_names_one_cell_of_a_larger_program(name, places):
    case = CASES[name]
    program = {"Wemb": np.ones((7, D)), "head": {"w": np.ones((H, 2))}}
    params = {place: random_params(case.cell) for place in places}
    for place in places:
        program |= convert.dump(case.library, case.cell, params[place], prefix=place)
    for place in places:
        found = convert.load(case.library, case.cell, program, prefix=place)
        same(found, params[place], 1e-15)


def test_layers_and_directions_of_torch_are_loaded_one_by_one():
    weights, layers = {}, {}
    for suffix in ("_l0", "_l0_reverse", "_l1", "_l1_reverse", "_l11"):
        layers[suffix] = random_params(TWO_BIASES)
        weights |= convert.dump("torch", TWO_BIASES, layers[suffix], suffix=suffix)
    for suffix, params in layers.items():
        found = convert.load("torch", TWO_BIASES, weights, suffix=suffix)
        same(found, params, 0)
    with line_of("weight_hh_l1", "give one layer and direction as the suffix"):
        convert.load("torch", TWO_BIASES, weights)
    # A torch.nn.GRUCell.
    single = convert.dump("torch", TWO_BIASES, params, suffix="")
    assert single.keys() == {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}
    same(convert.load("torch", TWO_BIASES, single, suffix=""), params, 0)


def test_a_weight_that_is_not_an_array_is_named():
    weights = {**weights_of("keras-lstm"), "bias": "kernel.npy"}
    with line_of("'bias' is a str, not an array"):
        convert.load("keras", LSTM, weights)


def test_the_authors_lstm_has_one_bias_and_no_initial_cell():
    cell = CASES["theano-ln-lstm-h0"].cell
    params = random_params(cell)
    for name in ("c0", "inner_bias"):
        with line_of(f"no place for {name} of its own"):
            convert.dump("theano", cell, params)
        params[name] = params["bias"] if name == "inner_bias" else np.zeros(H)
    convert.dump("theano", cell, params)


def test_a_haiku_rnn_with_double_bias_false():
    weights = weights_of("haiku-rnn")
    cell = CASES["haiku-rnn"].cell
    del weights["vanilla_rnn/linear_1"]["b"]
    bias = convert.load("haiku", cell, weights)["bias"]
    same(bias, weights["vanilla_rnn/linear"]["b"], 0)


class Tensor:
    """Stands for a torch tensor: an array only after detach() and cpu()."""

    def __init__(self, a):
        self.a, self.dtype = a, f"torch.{a.dtype}"

    def detach(self):
        return self

    def cpu(self):
        return self.a if self.dtype == "torch.float32" else self

    def float(self):
        return self.a.astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_become_arrays_of_the_same_bits(dtype):
    weights = weights_of("torch-gru")
    weights = {name: a.astype(np.dtype(dtype)) for name, a in weights.items()}
    tensors = {name: Tensor(a) for name, a in weights.items()}
    found = convert.load("torch", TWO_BIASES, tensors)
    assert found["w_h"].dtype == dtype
    same(found, convert.load("torch", TWO_BIASES, weights), 0)


def test_directions_of_keras_are_told_apart_by_their_paths():
    cell = SimpleCell(2, norm="none")
    arrays = [np.full((3, 2), 1.0), np.full((2, 2), 2.0), np.full(2, 3.0)]
    names = ("kernel", "recurrent_kernel", "bias")
    weights = {}
    for number, side in enumerate(("forward", "backward")):
        for name, a in zip(names, arrays, strict=True):
            path = f"bidirectional/{side}_simple_rnn/simple_rnn_cell/{name}"
            weights[path] = a + 10 * number
    for number, side in enumerate(("forward", "backward")):
        prefix = f"bidirectional/{side}_simple_rnn/simple_rnn_cell/"
        params = convert.load("keras", cell, weights, prefix=prefix)
        assert (params["w_h"] == 2 + 10 * number).all()


def test_two_weights_of_one_name_are_refused():
    weights = {"a": {"b": np.ones(1)}, "a:b": np.ones(1)}
    with line_of("two weights a:b"):
        convert.load("flax", SimpleCell(2, norm="none"), weights)
