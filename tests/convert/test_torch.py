"""State dicts of torch: layers, directions, prefixes, bfloat16; no torch needed."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from lnrepro import convert
from lnrepro.functional import (
    GRUCell,
    LSTMCell,
    SimpleCell,
    bidirectional,
    stack,
    unroll,
)
from tests.convert.libraries import (
    D,
    H,
    X,
    draw,
    outputs,
    torch_gru,
    torch_lstm,
    torch_rnn,
    torch_weights,
)

LAYERS = 3
KINDS = {
    "lstm": (
        4,
        torch_lstm,
        LSTMCell(H, "none"),
        convert.lstm_layers_from_torch,
        convert.lstm_layers_to_torch,
    ),
    "gru": (
        3,
        torch_gru,
        GRUCell(H, "none", recurrent_bias=True),
        convert.gru_layers_from_torch,
        convert.gru_layers_to_torch,
    ),
    "rnn": (
        1,
        torch_rnn,
        SimpleCell(H, "none"),
        convert.rnn_layers_from_torch,
        convert.rnn_layers_to_torch,
    ),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


class Tensor:
    """Stands for a torch tensor: an array only after detach() and cpu()."""

    def __init__(self, array, dtype):
        """Keep the array and the name of torch's dtype."""
        self.array, self.dtype = array, dtype

    def detach(self):
        """Return the tensor."""
        return self

    def cpu(self):
        """Return a tensor that NumPy reads, unless its dtype is bfloat16."""
        return self if self.dtype == "torch.bfloat16" else self.array

    def float(self):
        """Return the numbers in float32."""
        return self.array.astype(np.float32)


def state_dict(gates, directions, bias=True):
    """Draw the state dict of LAYERS layers."""
    weights = {}
    for k in range(LAYERS):
        inputs = D if k == 0 else directions * H
        for suffix in (f"_l{k}", f"_l{k}_reverse")[:directions]:
            weights |= torch_weights(gates, bias, inputs, suffix)
    return weights


def torch_outputs(step, weights, directions):
    """Run torch's layers; the backward direction reads the sequence reversed."""
    x = X
    for k in range(LAYERS):
        y = outputs(functools.partial(step, suffix=f"_l{k}"), weights, x)
        if directions == 2:
            backward = functools.partial(step, suffix=f"_l{k}_reverse")
            reverse = outputs(backward, weights, x[:, ::-1])[:, ::-1]
            y = np.concatenate([y, reverse], -1)
        x = y
    return x


@each_kind
def test_all_layers_of_one_direction(kind):
    gates, step, cell, from_torch, to_torch = kind
    weights = state_dict(gates, directions=1)
    layers = from_torch(weights)
    with jax.enable_x64(True):
        network = stack(*[cell] * LAYERS)
        y = jax.jit(lambda params, x: unroll(network, params, x).outputs)(layers, X)
    np.testing.assert_allclose(y, torch_outputs(step, weights, 1), rtol=0, atol=1e-12)
    back = to_torch(layers)
    assert list(back) == list(weights)
    np.testing.assert_allclose(
        torch_outputs(step, back, 1),
        torch_outputs(step, weights, 1),
        rtol=0,
        atol=1e-12,
    )
    jax.tree.map(np.testing.assert_array_equal, from_torch(back), layers)


@each_kind
def test_all_layers_of_two_directions(kind):
    gates, step, cell, from_torch, to_torch = kind
    weights = state_dict(gates, directions=2)
    layers = from_torch(weights)

    @jax.jit
    def run(layers, x):
        for pair in layers:
            x = bidirectional(cell, cell, pair, x).outputs
        return x

    with jax.enable_x64(True):
        y = run(layers, jnp.asarray(X))
    np.testing.assert_allclose(y, torch_outputs(step, weights, 2), rtol=0, atol=1e-12)
    back = to_torch(layers)
    assert list(back) == list(weights)
    jax.tree.map(np.testing.assert_array_equal, from_torch(back), layers)


@each_kind
@pytest.mark.parametrize("directions", [1, 2])
def test_layers_without_bias_come_back_to_the_bit(kind, directions):
    gates, _, _, from_torch, to_torch = kind
    weights = state_dict(gates, directions, bias=False)
    back = to_torch(from_torch(weights))
    jax.tree.map(np.testing.assert_array_equal, back, weights)


def test_prefix_selects_one_module_of_a_larger_state_dict():
    encoder, decoder = state_dict(3, 2), state_dict(3, 1)
    model = {f"encoder.{name}": a for name, a in encoder.items()}
    model |= {f"encoder.rnn.{name}": a for name, a in decoder.items()}
    model["head.weight"] = draw(2, H)
    for prefix, weights in (("encoder.", encoder), ("encoder.rnn.", decoder)):
        layers = convert.gru_layers_from_torch(model, prefix=prefix)
        again = convert.gru_layers_from_torch(weights)
        jax.tree.map(np.testing.assert_array_equal, layers, again)
        back = convert.gru_layers_to_torch(layers, prefix=prefix)
        assert back.keys() == {f"{prefix}{name}" for name in weights}


def test_suffix_selects_one_layer_and_direction():
    weights = state_dict(4, 2)
    pairs = convert.lstm_layers_from_torch(weights)
    backward = convert.lstm_from_torch(weights, "_l1_reverse")
    jax.tree.map(np.testing.assert_array_equal, backward, pairs[1][1])
    # A torch.nn.LSTMCell has no suffix. It is found, as any only layer is.
    cell = torch_weights(4, bias=True, suffix="")
    found, named = convert.lstm_from_torch(cell), convert.lstm_from_torch(cell, "")
    jax.tree.map(np.testing.assert_array_equal, found, named)


@pytest.mark.parametrize(
    "converter", ["lstm_from_torch", "gru_from_torch", "rnn_from_torch"]
)
def test_one_of_several_layers_must_be_named(converter):
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[converter[: converter.index("_")]]
    for directions in (1, 2):
        weights = state_dict(gates, directions)
        with pytest.raises(ValueError, match="give one as the suffix, or convert all"):
            getattr(convert, converter)(weights)


def test_projection_is_refused():
    weights = state_dict(4, 2)
    weights["weight_hr_l1_reverse"] = draw(2, H)
    message = "'weight_hr_l1_reverse'; an LSTM with proj_size"
    with pytest.raises(ValueError, match=message):
        convert.lstm_layers_from_torch(weights)
    with pytest.raises(ValueError, match=message):
        convert.lstm_from_torch(weights, "_l1_reverse")


def test_a_missing_layer_or_direction_is_refused():
    for name in ("weight_ih_l1", "weight_ih_l0", "weight_ih_l2_reverse", "bias_hh_l1"):
        weights = state_dict(4, 2)
        del weights[name]
        with pytest.raises(ValueError, match=f"no '{name}'; found "):
            convert.lstm_layers_from_torch(weights)
    with pytest.raises(ValueError, match="no 'weight_ih_l0'; found nothing"):
        convert.lstm_layers_from_torch({})


def test_layers_that_do_not_fit_together_are_refused():
    weights = state_dict(1, 1)
    weights["weight_ih_l1"] = draw(H, H + 1)
    message = "layer 1 has 6 inputs and 5 units; beside the layers below it needs 5"
    with pytest.raises(ValueError, match=message):
        convert.rnn_layers_from_torch(weights)


def simple(inputs=D, units=H, **others):
    """Parameters of a SimpleCell."""
    return {"w_x": draw(inputs, units), "w_h": draw(units, units), **others}


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "no layers"),
        (simple(), "one dict, not a sequence"),
        ([simple(), simple()], "layer 1 has 3 inputs"),
        ([simple(), simple(H, H + 1)], "layer 1 has 5 inputs and 6 units"),
        ([(simple(), simple(units=H + 1))], "layer 0 has 3 inputs and 6 units"),
        ([(simple(), simple()), simple(2 * H)], "layer 1 has 1 directions"),
        ([(simple(), simple(), simple())], "1 or 2 directions, not 3"),
        ([simple(), simple(H, bias=draw(H))], "layer 1 has the parameters"),
        ([simple(), simple(H, h0=draw(H))], "no place for h0"),
    ],
)
def test_layers_that_torch_cannot_have_are_refused(layers, message):
    with pytest.raises(ValueError, match=message):
        convert.rnn_layers_to_torch(layers)


def test_tensors_keep_their_bits():
    arrays = torch_weights(3, bias=False)
    single = {name: a.astype(np.float32) for name, a in arrays.items()}
    tensors = {name: Tensor(a, "torch.float32") for name, a in single.items()}
    back = convert.gru_to_torch(convert.gru_from_torch(tensors))
    jax.tree.map(np.testing.assert_array_equal, back, single)
    assert {a.dtype for a in back.values()} == {np.dtype(np.float32)}


def test_bfloat16_tensors_become_bfloat16_arrays():
    arrays = torch_weights(3, bias=True)
    halves = {name: a.astype(ml_dtypes.bfloat16) for name, a in arrays.items()}
    tensors = {name: Tensor(a, "torch.bfloat16") for name, a in halves.items()}
    params = convert.gru_from_torch(tensors)
    assert {a.dtype for a in params.values()} == {np.dtype(ml_dtypes.bfloat16)}
    back = convert.gru_to_torch(params)
    jax.tree.map(np.testing.assert_array_equal, back, halves)
