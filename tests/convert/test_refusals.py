"""What cannot be converted is refused in one line, and no dtype is changed."""

import copy

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from lnrepro import convert
from lnrepro.convert.layout import flatten, reorder, to_numpy
from lnrepro.functional import GRUCell, LSTMCell, SimpleCell
from tests.convert.layers import LAYERS
from tests.convert.libraries import D, H, draw, tfa_weights

SHORTER = {0: lambda a: a[1:], -1: lambda a: a[..., 1:]}
each_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
# torch's state dicts hold whole networks, so that further names are no mistake.
CLOSED = {name: layer for name, layer in LAYERS.items() if "torch" not in name}


def present(tree):
    """A tree of weights without those that are None."""
    return {name: a for name, a in tree.items() if a is not None}


def paths(weights):
    """The paths of all arrays of a tree."""
    leaves = jax.tree_util.tree_leaves_with_path(present(weights))
    return [[key.key for key in path] for path, _ in leaves]


def changed(weights, path, change):
    """A copy of a tree in which one array is changed, or removed where it is None."""
    weights = copy.deepcopy(weights)
    *parents, name = path
    node = weights
    for parent in parents:
        node = node[parent]
    node[name] = change(node[name])
    if node[name] is None:
        del node[name]
    return weights


def refusal(converter, *args, **options):
    """The message with which a converter refuses its input, or None if it does not."""
    try:
        converter(*args, **options)
    except ValueError as error:
        message = str(error)
        assert message.startswith("convert: ")
        assert "\n" not in message
        return message
    return None


def params_of(cell):
    """Random parameters of a cell of ours."""
    shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0), D))
    return {name: draw(*a.shape) for name, a in shapes.items()}


@each_layer
def test_missing_weights_are_named(layer):
    for path in paths(layer.weights):
        weights = changed(layer.weights, path, lambda a: None)
        message = refusal(layer.from_library, weights)
        name = "/".join(path)
        if message is None:
            # Only the one bias and the authors' h0 may be missing.
            params = layer.from_library(weights)
            assert "bias" not in params or name.endswith(("_h0", "linear_1/b"))
        else:
            assert f"no '{name}'; found " in message


@each_layer
def test_wrong_shapes_are_refused(layer):
    for path in paths(layer.weights):
        with_axis = changed(layer.weights, path, lambda a: a[None])
        assert refusal(layer.from_library, with_axis), path
        for axis in (0, -1):
            smaller = changed(layer.weights, path, SHORTER[axis])
            if refusal(layer.from_library, smaller) is None:
                # The number of inputs is free.
                assert layer.from_library(smaller)["w_x"].shape[0] == D - 1


@pytest.mark.parametrize("layer", CLOSED.values(), ids=CLOSED)
def test_unknown_weights_are_refused(layer):
    weights = copy.deepcopy(layer.weights)
    # The name stands where further weights of this layer would be.
    first = next(iter(weights))
    if first.startswith(("lnlstm_", "lngru_")):
        weights[f"{first[: first.index('_')]}_extra"] = draw(H)
    elif isinstance(weights[first], dict):
        weights[first]["extra"] = draw(H)
    else:
        weights["extra"] = draw(H)
    assert "extra" in refusal(layer.from_library, weights)


@each_layer
def test_our_parameters_are_checked(layer):
    params = layer.from_library(layer.weights)
    for name in ("w_x", "w_h"):
        message = refusal(layer.to_library, changed(params, [name], lambda a: None))
        assert f"no '{name}'; found " in message
    for name in params:
        with_axis = changed(params, [name], lambda a: a[None])
        assert refusal(layer.to_library, with_axis), name
        narrow = changed(params, [name], lambda a: a[..., 1:])
        assert refusal(layer.to_library, narrow), name
    with_peephole = {**params, "peephole": draw(3, H)}
    assert "has no place for peephole" in refusal(layer.to_library, with_peephole)


@each_layer
def test_bfloat16_stays_bfloat16(layer):
    weights = jax.tree.map(
        lambda a: jnp.asarray(a, jnp.bfloat16), present(layer.weights)
    )
    params = layer.from_library(weights)
    back = layer.to_library(params)
    for a in [*params.values(), *jax.tree.leaves(back)]:
        assert isinstance(a, np.ndarray)
        assert a.dtype == ml_dtypes.bfloat16
    if layer.comes_back:
        jax.tree.map(np.testing.assert_array_equal, back, weights)


def test_norms_without_a_counterpart_are_refused():
    plain = ["torch", "keras", "flax", "nnx", "haiku", "equinox"]
    for cell in (LSTMCell, GRUCell, SimpleCell):
        kind = {LSTMCell: "lstm", GRUCell: "gru", SimpleCell: "rnn"}[cell]
        libraries = plain[:-1] if kind == "rnn" else plain
        for norm in sorted(set(cell.norm_names) - {"none"}):
            params = params_of(cell(H, norm=norm))
            for library in libraries:
                to_library = getattr(convert, f"{kind}_to_{library}")
                message = refusal(to_library, params)
                assert "has no place for" in message, (norm, library)
    for norm in ("layer_cell", "rms", "batch", "weight"):
        params = params_of(LSTMCell(H, norm=norm, inner_bias=True))
        params["inner_bias"] = params["bias"]
        assert refusal(convert.lstm_to_theano, params), norm
    for norm in ("rms", "batch", "weight"):
        assert refusal(convert.gru_to_theano, params_of(GRUCell(H, norm=norm))), norm
    before = GRUCell(H, norm="layer", reset="before")
    assert refusal(convert.gru_to_theano, params_of(before))


def test_layer_norm_is_not_dropped():
    message = refusal(convert.lstm_from_keras, tfa_weights())
    assert "keras.layers.LSTM has no weight kernel_norm/beta" in message


def test_the_authors_lstm_has_one_bias_and_no_initial_cell():
    params = params_of(LSTMCell(H, "none", inner_bias=True, learned_carry=True))
    assert "one b in both places" in refusal(convert.lstm_to_theano, params)
    params["inner_bias"] = params["bias"]
    assert "no place for c0 but zeros" in refusal(convert.lstm_to_theano, params)


def test_one_file_of_the_authors_holds_several_layers():
    layer = LAYERS["theano-ln-gru"]
    file = {"Wemb": draw(7, D)}
    for name, a in layer.weights.items():
        file[name.replace("lngru", "encoder")] = a
        file[name.replace("lngru", "encoder_r")] = a
    params = convert.gru_from_theano(file, "encoder")
    jax.tree.map(
        np.testing.assert_array_equal, params, layer.from_library(layer.weights)
    )
    back = convert.gru_to_theano(params, "encoder_r")
    assert back.keys() == {name for name in file if name.startswith("encoder_r")}


def test_biases_that_have_no_place():
    two_biases = params_of(GRUCell(H, "none", recurrent_bias=True))
    message = refusal(convert.gru_to_theano, two_biases)
    assert "no place for bias_recurrent" in message


def test_recurrent_bias_is_added_where_the_reset_comes_before():
    # There only the sum of the two biases counts.
    params = params_of(GRUCell(H, "none", reset="before", recurrent_bias=True))
    keras = convert.gru_to_keras(params, reset_after=False)
    haiku = convert.gru_to_haiku(params)
    total = params["bias"] + params["bias_recurrent"]
    for again in (convert.gru_from_keras(keras), convert.gru_from_haiku(haiku)):
        np.testing.assert_array_equal(again["bias"], total)
        assert "bias_recurrent" not in again


def test_keras_reset_after_can_be_chosen():
    params = params_of(GRUCell(H, "none"))
    assert convert.gru_to_keras(params)["bias"].shape == (3 * H,)
    bias = convert.gru_to_keras(params, reset_after=True)["bias"]
    assert bias.shape == (2, 3 * H)
    assert not bias[1].any()


@pytest.mark.parametrize("value", [object(), 1.0, "kernel.npy"])
def test_a_weight_that_is_not_an_array_is_named(value):
    weights = {"kernel": value, "recurrent_kernel": draw(H, 4 * H)}
    message = refusal(convert.lstm_from_keras, weights)
    assert f"'kernel' is a {type(value).__name__}, not an array" in message


@pytest.mark.parametrize(
    "name", [n for n in convert.__all__ if "_from_" in n or "_to_" in n]
)
def test_weights_are_a_mapping(name):
    # A module in place of its weights is the common mistake.
    module = SimpleCell(H, "none")
    weights = [module] if name.endswith("_layers_to_torch") else module
    message = refusal(getattr(convert, name), weights)
    assert message.endswith("a mapping of names to arrays, not a SimpleCell")


def test_reorder_and_flatten():
    blocks = reorder(np.arange(8), "ifgo", "fiog")
    np.testing.assert_array_equal(blocks, [2, 3, 0, 1, 6, 7, 4, 5])
    for old, new in (
        ("ifgo", "fig"),
        ("ifgo", "figg"),
        ("ifgg", "ggfi"),
        ("zrn", "zr"),
    ):
        message = refusal(reorder, np.arange(12), old, new)
        assert f"{new!r} are not the gates {old!r} in another order" in message
    assert "no 4 gates of one size" in refusal(reorder, np.arange(9), "ifgo", "fiog")
    assert "not an array" in refusal(reorder, 1.0, "ifgo", "fiog")
    assert flatten({"a": {"b": {"c": 1}}, "d": 2}) == {"a/b/c": 1, "d": 2}
    assert to_numpy("x", [1.0, 2.0]).dtype == np.float64
