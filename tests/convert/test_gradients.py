"""Converted gradients are the gradients of the converted weights, in float64."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx

from lnrepro import convert, functional, linen
from lnrepro.functional import DreamerBlockGRUCell, bidirectional, unroll
from tests.convert.layers import LAYERS
from tests.convert.libraries import B, D, H, T, X, outputs
from tests.convert.test_torch import each_kind, state_dict, torch_outputs
from tests.functional.test_dreamer import block_gru_step

WEIGHTS = np.random.default_rng(1).standard_normal((B, T, H))
# Two of its parameters are one of the library's, and their gradients differ.
UNDETERMINED = ("theano-lstm", "theano-ln-lstm", "theano-ln-lstm-h0")


def leaves(tree):
    """{path: array} of a tree of weights, without those that are None."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): a for path, a in found}


def their_gradients(layer):
    """Gradients of a loss by the weights of the library, by the complex step."""
    flat, structure = jax.tree.flatten(layer.weights)

    def loss(flat):
        return (
            WEIGHTS * outputs(layer.step, jax.tree.unflatten(structure, flat))
        ).sum()

    gradients = [np.zeros_like(a) for a in flat]
    for number, a in enumerate(flat):
        for index in np.ndindex(a.shape):
            moved = a.astype(complex)
            moved[index] += 1e-30j
            value = loss([*flat[:number], moved, *flat[number + 1 :]])
            gradients[number][index] = value.imag / 1e-30
    return jax.tree.unflatten(structure, gradients)


def our_gradients(layer):
    """Gradients of the same loss by our parameters."""

    def loss(params):
        return jnp.sum(WEIGHTS * unroll(layer.cell, params, jnp.asarray(X)).outputs)

    with jax.enable_x64(True):
        params = layer.from_library(layer.weights)
        return jax.device_get(jax.jit(jax.grad(loss))(params))


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_and_second_moments(name):
    layer = LAYERS[name]
    ours, theirs = our_gradients(layer), their_gradients(layer)
    converters = layer.from_library, layer.to_library
    if name in UNDETERMINED:
        with pytest.raises(ValueError, match="inner_bias"):
            convert.gradients(*converters, theirs)
    else:
        found = convert.gradients(*converters, theirs)
        assert found.keys() == ours.keys()
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, ours
        )
        # A gradient of one entry for each step: the moments are squares.
        squares = jax.tree.map(np.square, theirs)
        found = convert.gradients(*converters, squares, squared=True)
        for key in ours:
            np.testing.assert_allclose(found[key], ours[key] ** 2, atol=1e-12)
    back = leaves(convert.gradients(*converters[::-1], ours))
    for key, gradient in leaves(theirs).items():
        np.testing.assert_allclose(back[key], gradient, atol=1e-12)


def check_both_ways(from_library, to_library, weights, our_loss, their_loss):
    """Compare converted gradients with slopes of the library's loss.

    Args:
      from_library: the converter into our parameters.
      to_library: the converter back.
      weights: {name: array} of the library.
      our_loss: of our parameters, in JAX.
      their_loss: of the library's weights, in NumPy.
    """
    with jax.enable_x64(True):
        ours = jax.device_get(jax.jit(jax.grad(our_loss))(from_library(weights)))
    theirs = convert.gradients(to_library, from_library, ours)
    assert theirs.keys() == weights.keys()
    rng = np.random.default_rng(2)
    for name, a in weights.items():
        # The slope along a random direction of one weight, by the complex step.
        direction = rng.standard_normal(a.shape)
        slope = their_loss(weights | {name: a + 1e-30j * direction}).imag / 1e-30
        converted = np.sum(theirs[name] * direction)
        np.testing.assert_allclose(converted, slope, rtol=1e-10, atol=1e-12)
    # The moments of Adam after its first step are such multiples.
    squares = jax.tree.map(lambda a: 1e-3 * a**2, theirs)
    back = convert.gradients(from_library, to_library, theirs)
    back_squared = convert.gradients(from_library, to_library, squares, squared=True)
    assert jax.tree.structure(back) == jax.tree.structure(ours)
    for ours_a, a, b in zip(
        *map(jax.tree.leaves, (ours, back, back_squared)), strict=True
    ):
        np.testing.assert_allclose(a, ours_a, rtol=1e-12)
        np.testing.assert_allclose(b, 1e-3 * ours_a**2, rtol=1e-12)


@each_kind
@pytest.mark.parametrize("directions", [1, 2])
def test_all_layers_of_torch(kind, directions):
    gates, step, cell, from_torch, to_torch = kind
    y_weights = np.random.default_rng(1).standard_normal((B, T, directions * H))

    def our_loss(layers):
        x = jnp.asarray(X)
        for layer in layers:
            if directions == 2:
                x = bidirectional(cell, cell, layer, x).outputs
            else:
                x = unroll(cell, layer, x).outputs
        return jnp.sum(y_weights * x)

    def their_loss(weights):
        return np.sum(y_weights * torch_outputs(step, weights, directions))

    weights = state_dict(gates, directions)
    check_both_ways(from_torch, to_torch, weights, our_loss, their_loss)


def test_the_block_gru_of_dreamer():
    sizes, epsilon = (D - 1, 1), 1e-4
    cell = DreamerBlockGRUCell(
        2 * H, hidden_features=4, input_sizes=sizes, blocks=2, epsilon=epsilon
    )
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0), D))
    params = {name: rng.standard_normal(a.shape) for name, a in shapes.items()}
    y_weights = rng.standard_normal((B, T, 2 * H))

    def our_loss(params):
        return jnp.sum(y_weights * unroll(cell, params, jnp.asarray(X)).outputs)

    def their_loss(weights):
        h, total = np.zeros((B, 2 * H)), 0
        for t in range(T):
            h = block_gru_step(weights, h, X[:, t], epsilon, sizes)
            total += np.sum(y_weights[:, t] * h)
        return total

    converters = convert.block_gru_from_dreamer, convert.block_gru_to_dreamer
    weights = convert.block_gru_to_dreamer(params)
    check_both_ways(*converters, weights, our_loss, their_loss)


def shifted(tree):
    """Flax's biases start at zero; every entry moves away from it."""
    return jax.tree.map(lambda a: a + 0.1 * np.arange(a.size).reshape(a.shape), tree)


class Program(nn.Module):
    """A program with cells at several depths: Flax's, or ours in their place."""

    cells: Any

    @nn.compact
    def __call__(self, x):
        LSTMCell, GRUCell, SimpleCell, RNN = self.cells
        x = RNN(LSTMCell(H), name="encoder")(x)
        x = nn.Dense(D, name="middle")(x)
        x = RNN(GRUCell(H))(x)
        return RNN(SimpleCell(H))(x)


def ours_of(make, **options):
    """A cell of ours without a norm, named as Flax's."""
    return lambda features: make(features, norm="none", **options)


def test_a_whole_flax_checkpoint_and_its_optimizer():
    theirs = nn.OptimizedLSTMCell, nn.GRUCell, nn.SimpleCell
    theirs = [functools.partial(cell, param_dtype=jnp.float64) for cell in theirs]
    flax_s = Program((*theirs, nn.RNN))
    gru = functools.partial(functional.GRUCell, norm="none", recurrent_bias=True)
    cells = (functional.LSTMCell, gru, functional.SimpleCell)
    ours = Program((*map(ours_of, cells), linen.RNN))
    optimizer = optax.adam(0.1)
    with jax.enable_x64(True):
        x = jnp.asarray(X)

        def train(program, params, state, steps):
            def loss(params):
                return jnp.sum(WEIGHTS * program.apply({"params": params}, x))

            def step(carry, _):
                params, state = carry
                updates, state = optimizer.update(jax.grad(loss)(params), state)
                return (optax.apply_updates(params, updates), state), None

            run = jax.jit(lambda *carry: jax.lax.scan(step, carry, None, steps)[0])
            return run(params, state)

        params = jax.jit(flax_s.init)(jax.random.key(0), x)["params"]
        params = shifted(jax.tree.map(jnp.float64, params))
        params, state = train(flax_s, params, optimizer.init(params), 3)
        renames = {
            "OptimizedLSTMCell_0": "encoder/cell",
            "GRUCell_0": "RNN_0/cell",
            "SimpleCell_0": "RNN_1/cell",
        }

        def converted(params, state):
            tree = {"params": params, "opt_state": state}
            return convert.flax_checkpoint(tree, renames).values()

        ours_params, ours_state = converted(params, state)
        np.testing.assert_allclose(
            ours.apply({"params": ours_params}, x),
            flax_s.apply({"params": params}, x),
            atol=1e-12,
        )
        # The next step has the same gradients, so that all moments stay the same.
        _, expected = converted(*train(flax_s, params, state, 1))
        _, found = train(ours, ours_params, ours_state, 1)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, expected
        )


def test_a_tree_without_a_cell_is_refused_in_one_line():
    with pytest.raises(ValueError, match=r"^convert: there is no LSTMCell.*tree$"):
        convert.flax_checkpoint({"params": {"Dense_0": {"kernel": np.ones((2, 2))}}})


def flax_cell(value):
    """The weights of a flax.linen.GRUCell, all of one value."""
    tree = {f"i{gate}": np.full((D, H), value) for gate in "rzn"}
    tree |= {f"h{gate}": np.full((H, H), value) for gate in "rzn"}
    return {name: {"kernel": a} for name, a in tree.items()}


@pytest.mark.parametrize("cell_first", [True, False])
def test_a_renamed_cell_joins_what_is_at_its_new_place(cell_first):
    parts = [("GRUCell_0", flax_cell(1.0)), ("RNN_0", {"norm": np.ones(3)})]
    tree = dict(parts if cell_first else reversed(parts))
    found = convert.flax_checkpoint(tree, {"GRUCell_0": "RNN_0/cell"})
    assert found["RNN_0"].keys() == {"norm", "cell"}
    expected = convert.gru_from_flax(tree["GRUCell_0"])
    jax.tree.map(np.testing.assert_array_equal, found["RNN_0"]["cell"], expected)


@pytest.mark.parametrize(
    ("renames", "message"),
    [
        ({"A": "B"}, "two arrays would be renamed to 'w_x'"),
        ({"A": "C", "B": "C"}, "two arrays would be renamed to 'w_x'"),
        ({"A": "scale"}, "two arrays would be renamed to 'scale'"),
        ({"A": "scale/cell"}, "two arrays would be renamed to 'scale'"),
    ],
)
def test_no_array_is_lost_by_a_name(renames, message):
    tree = {"A": flax_cell(1.0), "B": flax_cell(2.0), "scale": np.ones(3)}
    with pytest.raises(ValueError, match=f"^convert: {message}$"):
        convert.flax_checkpoint(tree, renames)


@pytest.mark.parametrize(
    ("converters", "tree", "options", "message"),
    [
        ("haiku haiku", None, {"nmae": "lstm"}, "neither converter has an option"),
        ("haiku torch", None, {}, "does not undo the first; it returns 'weight_ih_l0'"),
        ("haiku haiku", {}, {}, "a tree of arrays, and here are none"),
        ("haiku haiku", np.ones(3), {}, "a tree of arrays, and here are none"),
    ],
)
def test_gradients_that_cannot_be_converted(converters, tree, options, message):
    first, second = converters.split()
    pair = (
        getattr(convert, f"lstm_from_{first}"),
        getattr(convert, f"lstm_to_{second}"),
    )
    if tree is None:
        tree = LAYERS["haiku-lstm"].weights
    with pytest.raises(ValueError, match=f"^convert: .*{message}"):
        convert.gradients(*pair, tree, **options)


@pytest.mark.parametrize("cell", [nnx.OptimizedLSTMCell, nnx.LSTMCell, nnx.GRUCell])
def test_cells_of_nnx_are_found(cell):
    module = nnx.List([nnx.RNN(cell(D, H, rngs=nnx.Rngs(0)))])
    tree = {"encoder": [nnx.to_pure_dict(nnx.state(module, nnx.Param))]}
    converters = {3: convert.gru_from_nnx, 4: convert.lstm_from_nnx}
    weights = tree["encoder"][0][0]["cell"]
    expected = converters[3 if cell is nnx.GRUCell else 4](weights)
    found = convert.flax_checkpoint(tree)["encoder"][0][0]["cell"]
    jax.tree.map(np.testing.assert_array_equal, found, expected)
