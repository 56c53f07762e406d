"""Converted weights give the outputs of each library's published equations.

In float64 to 1e-12, in both directions; round trips keep every bit.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import convert
from lnrepro.functional import unroll
from tests.convert.layers import LAYERS
from tests.convert.libraries import D, X, draw, haiku_lstm, outputs

each_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
run = jax.jit(lambda cell, params, x: unroll(cell, params, x).outputs, static_argnums=0)


def ours(layer, params):
    """The outputs of our cell in float64."""
    with jax.enable_x64(True):
        return np.asarray(run(layer.cell, params, jnp.asarray(X)))


def present(tree):
    """A tree of weights without those that are None."""
    return {name: a for name, a in tree.items() if a is not None}


def names_and_shapes(tree):
    """The shapes of a dict of arrays by name."""
    return {name: a.shape for name, a in tree.items()}


@each_layer
def test_our_cell_computes_the_library_s_equations(layer):
    params = layer.from_library(layer.weights)
    theirs = outputs(layer.step, layer.weights)
    np.testing.assert_allclose(ours(layer, params), theirs, rtol=0, atol=1e-12)


@each_layer
def test_the_library_s_equations_compute_our_cell(layer):
    # Parameters of our own, not those of a library: every entry is a random number.
    shapes = jax.eval_shape(lambda: layer.cell.init(jax.random.key(0), D))
    params = {name: draw(*a.shape) for name, a in shapes.items()}
    if "inner_bias" in params:
        # The authors' LSTM has one bias in two places, and no initial cell.
        params["inner_bias"] = params["bias"]
    if "c0" in params:
        params["c0"] = np.zeros_like(params["c0"])
    theirs = outputs(layer.step, layer.to_library(params))
    np.testing.assert_allclose(theirs, ours(layer, params), rtol=0, atol=1e-12)


@each_layer
def test_parameters_are_those_of_our_cell(layer):
    shapes = jax.eval_shape(lambda: layer.cell.init(jax.random.key(0), D))
    params = layer.from_library(layer.weights)
    assert names_and_shapes(params) == names_and_shapes(shapes)
    assert {a.dtype for a in params.values()} == {np.dtype(np.float64)}


@each_layer
def test_round_trips_keep_every_bit(layer):
    params = layer.from_library(layer.weights)
    back = layer.to_library(params)
    if layer.comes_back:
        jax.tree.map(np.testing.assert_array_equal, back, present(layer.weights))
    again = layer.from_library(back)
    for name, a in params.items():
        np.testing.assert_allclose(again[name], a, rtol=0, atol=1e-15)
        # Haiku's 1 in the forget gate is added to a bias and taken out again.
        if layer.step is not haiku_lstm:
            np.testing.assert_array_equal(again[name], a)
    # Where a library has no use_bias, a bias of zeros comes back.
    for name in set(again) - set(params):
        assert not again[name].any()


@each_layer
def test_converted_arrays_are_copies(layer):
    params = layer.from_library(layer.weights)
    for a in jax.tree.leaves(present(layer.weights)):
        assert not any(np.shares_memory(a, b) for b in params.values())
    for a in jax.tree.leaves(layer.to_library(params)):
        assert not any(np.shares_memory(a, b) for b in params.values())


def test_every_converter_is_tested_and_documented():
    tested = set()
    for layer in LAYERS.values():
        for converter in (layer.from_library, layer.to_library):
            tested.add(getattr(converter, "func", converter).__name__)
    # Those of several layers, and of a cell of several products, have modules of tests.
    others = {n for n in convert.__all__ if "_layers_" in n or n.startswith("block_")}
    helpers = {"flax_checkpoint", "gradients", "reorder"}
    others |= helpers
    assert tested == set(convert.__all__) - others
    for name in set(convert.__all__) - helpers:
        converter = getattr(convert, name)
        doc = inspect.getdoc(converter)
        for section in ("Args:", "Returns:", "Raises:", ">>> "):
            assert section in doc, (name, section)
        source = inspect.getdoc(inspect.getmodule(converter))
        assert "Source: " in source, name
        assert "Shape letters: " in source, name
