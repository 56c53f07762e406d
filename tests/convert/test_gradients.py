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
from lnrepro.functional import unroll
from tests.convert.layers import LAYERS
from tests.convert.libraries import B, D, H, T, X, outputs

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
    gru = functools.partial(functional.GRUCell, recurrent_bias=True)
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


@pytest.mark.parametrize("cell", [nnx.OptimizedLSTMCell, nnx.LSTMCell, nnx.GRUCell])
def test_cells_of_nnx_are_found(cell):
    module = nnx.RNN(cell(D, H, rngs=nnx.Rngs(0)))
    tree = {"encoder": [nnx.to_pure_dict(nnx.state(module, nnx.Param))]}
    converters = {3: convert.gru_from_nnx, 4: convert.lstm_from_nnx}
    weights = tree["encoder"][0]["cell"]
    expected = converters[3 if cell is nnx.GRUCell else 4](weights)
    found = convert.flax_checkpoint(tree)["encoder"][0]["cell"]
    jax.tree.map(np.testing.assert_array_equal, found, expected)
