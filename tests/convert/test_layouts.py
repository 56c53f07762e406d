"""Every layout: equations of the library, round trips, gradients and refusals.

Numbers are compared in float64, to 1e-12.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.convert.arrays import flatten
from lnrepro.functional import step, unroll
from tests.convert.cases import CASES, RNG, random_like, weights_of
from tests.convert.libraries import B, D, H, T
from tests.refused import refused

X = RNG.standard_normal((B, T, D))
# Two of its parameters are one of the library's, and their gradients differ.
UNDETERMINED = ("theano-lstm", "theano-ln-lstm", "theano-ln-lstm-h0", "haste-ln-lstm")
each_case = pytest.mark.parametrize("name", CASES)
# One of each form: transposed, two biases in one, nested, optional, with zeros.
FORMS = "torch-gru", "keras-gru", "flax-gru", "haiku-rnn", "theano-ln-lstm-h0", "addons"
each_form = pytest.mark.parametrize("name", FORMS)

line_of = functools.partial(refused, error=ValueError)


def ours(cell, params):
    """Outputs of our cell in float64."""
    with jax.enable_x64(True):
        return jax.device_get(run(cell, params))


@functools.partial(jax.jit, static_argnums=0)
def run(cell, params):
    return unroll(cell, params, jnp.asarray(X)).outputs


def same(found, expected, tolerance=1e-12):
    """Compare two trees; a tolerance of 0 is to the bit."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)

    def compare(a, b):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)

    jax.tree.map(compare, found, expected)


@functools.partial(jax.jit, static_argnums=0)
def one_step(cell, params, h, c):
    """The new (h, c) of our cell; c is None where there is none."""
    x = jnp.asarray(X[:, 0])
    first = cell.initial_carry(params, x)
    if isinstance(first, tuple):
        (c, h), _ = step(cell, params, (first[0] + c, first[1] + h), x)
        return h, c
    return step(cell, params, first + h, x)[0], c


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].step])
def test_loaded_weights_compute_what_the_library_does(name):
    case, weights = CASES[name], weights_of(name)
    h, c = 0.5 * RNG.standard_normal((2, B, H))
    with jax.enable_x64(True):
        found = jax.device_get(one_step(case.cell, case.load(weights), h, c))
    h = h + weights.get("lnlstm_h0", 0)
    same(found, case.step(weights, X[:, 0], h, c))


@each_case
@pytest.mark.parametrize("dtype", [np.float64, jnp.bfloat16])
def test_round_trips(name, dtype):
    """The same bits, in arrays of their own, and of the same dtype."""
    case = CASES[name]
    weights = jax.tree.map(lambda a: a.astype(dtype), weights_of(name))
    params = case.load(weights)
    back = case.dump(params)
    # The 1 that Haiku adds to the forget gate is rounded with the bias.
    rounding = 4 * jnp.finfo(dtype).eps if name == "haiku-lstm" else 0
    same(case.load(back), params, rounding)
    for old, new in ((weights, params), (params, back)):
        for a in jax.tree.leaves(new):
            assert isinstance(a, np.ndarray)
            assert a.dtype == dtype
            assert not any(np.shares_memory(a, b) for b in jax.tree.leaves(old))


def product(a, b):
    """The sum of the products of two trees of arrays."""
    return sum(jax.tree.leaves(jax.tree.map(lambda u, v: np.sum(u * v), a, b)))


def assert_transposed(gradients_of, function, start, gradient):
    """Check the gradient of what follows on an affine function, along one direction."""
    direction = random_like(start)
    moved = function(jax.tree.map(np.add, start, direction))
    change = jax.tree.map(np.subtract, moved, function(start))
    found = product(gradients_of(gradient, gradients=True), direction)
    np.testing.assert_allclose(found, product(gradient, change), rtol=1e-10)


@each_case
def test_gradients_and_second_moments(name):
    load, dump, weights = CASES[name].load, CASES[name].dump, weights_of(name)
    params = load(weights)
    assert_transposed(dump, load, weights, random_like(params))
    gradients = random_like(weights)
    if name in UNDETERMINED:
        with line_of("do not determine"):
            load(gradients, gradients=True)
        return
    assert_transposed(load, dump, params, gradients)
    gradients = load(gradients, gradients=True)
    theirs = dump(gradients, gradients=True)
    same(load(theirs, gradients=True), gradients)
    squares = jax.tree.map(np.square, theirs)
    # Second moments have no signs.
    moments = jax.tree.map(np.abs, load(squares, gradients=True))
    same(moments, jax.tree.map(np.square, gradients))
    same(jax.tree.map(np.abs, dump(moments, gradients=True)), squares)


@each_form
def test_wrong_weights_are_refused(name):
    load = CASES[name].load
    flat = flatten(weights_of(name))
    for path, a in flat.items():
        if path != "vanilla_rnn/linear_1:b":
            with line_of(f"convert: no {path!r}; found "):
                load({**flat, path: None})
        with line_of(path, "shape"):
            load({**flat, path: a[None]})
        for smaller in (a[1:], a[..., 1:]):
            with contextlib.suppress(ValueError):
                # Only the number of inputs is free.
                assert load({**flat, path: smaller})["w_x"].shape[0] == D - 1


@each_form
def test_wrong_parameters_are_refused(name):
    dump, params = CASES[name].dump, CASES[name].load(weights_of(name))
    for key, a in params.items():
        with line_of(key):
            dump({n: a for n, a in params.items() if n != key})
        with line_of("shape"):
            dump({**params, key: a[..., 1:]})
    with line_of("peephole"):
        dump({**params, "peephole": np.ones((3, H))})
