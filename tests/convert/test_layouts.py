"""Every layout: equations of the library, round trips, gradients and refusals.

Numbers are compared in float64, to 1e-12.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import convert
from lnrepro.convert.arrays import flatten, nest
from lnrepro.functional import unroll
from tests.convert.cases import CASES, RNG, random_like, random_params
from tests.convert.libraries import B, D, H, T, outputs
from tests.refused import refused

X = RNG.standard_normal((B, T, D))
LOSS_WEIGHTS = RNG.standard_normal((B, T, H))
# Two of its parameters are one of the library's, and their gradients differ.
UNDETERMINED = ("theano-lstm", "theano-ln-lstm", "theano-ln-lstm-h0", "haste-ln-lstm")
# Parameters that are zero there.
ZEROS = {"theano-ln-lstm-h0": ["c0"], "haste-ln-lstm": ["bias_x", "bias_h"]}
each_case = pytest.mark.parametrize("name", CASES)

line_of = functools.partial(refused, error=ValueError)


@functools.partial(jax.jit, static_argnums=0)
def run(cell, params):
    """Outputs of our cell, and gradients of a loss by its parameters."""

    def loss(params):
        y = unroll(cell, params, jnp.asarray(X)).outputs
        return jnp.sum(LOSS_WEIGHTS * y), y

    gradients, y = jax.grad(loss, has_aux=True)(params)
    return y, gradients


def ours(cell, params):
    """As `run`, in float64."""
    with jax.enable_x64(True):
        return jax.device_get(run(cell, params))


def same(found, expected, tolerance=1e-12):
    """Compare two trees; a tolerance of 0 is to the bit."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)

    def compare(a, b):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)

    jax.tree.map(compare, found, expected)


def parameters(name):
    """Random parameters of a case's cell that its library can hold."""
    params = random_params(CASES[name].cell)
    if "inner_bias" in params:
        # The authors' LSTM has one bias in two places.
        params["inner_bias"] = params["bias"]
    for zero in ZEROS.get(name, ()):
        params[zero] = np.zeros_like(params[zero])
    return params


def weights_of(name):
    """Random weights of a case's library, not made from parameters of ours."""
    case = CASES[name]
    return random_like(convert.dump(case.library, case.cell, parameters(name)))


@each_case
def test_equations_and_round_trips(name):
    case = CASES[name]
    params = parameters(name)
    dumped = convert.dump(case.library, case.cell, params)
    y, _ = ours(case.cell, params)
    same(outputs(case.step, dumped, X), y)

    weights = weights_of(name)
    loaded = convert.load(case.library, case.cell, weights)
    y, _ = ours(case.cell, loaded)
    same(y, outputs(case.step, weights, X))
    again = convert.load(
        case.library, case.cell, convert.dump(case.library, case.cell, loaded)
    )
    # The 1 that Haiku adds to the forget gate is rounded with the bias.
    same(again, loaded, 1e-15 if name == "haiku-lstm" else 0)
    for old, new in ((params, dumped), (weights, loaded)):
        for a in jax.tree.leaves(new):
            assert not any(np.shares_memory(a, b) for b in jax.tree.leaves(old))


@each_case
def test_gradients_and_second_moments(name):
    case = CASES[name]
    load = functools.partial(convert.load, case.library, case.cell)
    dump = functools.partial(convert.dump, case.library, case.cell)
    weights = weights_of(name)
    _, gradients = ours(case.cell, load(weights))
    theirs = dump(gradients, gradients=True)
    # The slope of the library's loss along one direction of all weights, by the
    # complex step.
    direction = random_like(weights)
    moved = jax.tree.map(lambda a, b: a + 1e-30j * b, weights, direction)
    slope = np.sum(LOSS_WEIGHTS * outputs(case.step, moved, X)).imag / 1e-30
    products = jax.tree.map(lambda a, b: np.sum(a * b), theirs, direction)
    total = sum(jax.tree.leaves(products))
    np.testing.assert_allclose(total, slope, rtol=1e-10, atol=1e-12)

    if name in UNDETERMINED:
        with line_of("do not determine"):
            load(theirs, gradients=True)
        return
    # Loaded again, they are the gradients of our cell.
    same(load(theirs, gradients=True), gradients)
    squares = jax.tree.map(np.square, theirs)
    # Second moments have no signs.
    moments = jax.tree.map(np.abs, load(squares, gradients=True))
    same(moments, jax.tree.map(np.square, gradients))
    same(jax.tree.map(np.abs, dump(moments, gradients=True)), squares)


def is_refused(load, weights):
    """Whether weights are refused."""
    try:
        load(weights)
    except ValueError:
        return True
    return False


@each_case
def test_wrong_weights_are_refused(name):
    case = CASES[name]
    load = functools.partial(convert.load, case.library, case.cell)
    flat = flatten(weights_of(name))

    def changed(path, a):
        return nest(flatten({**flat, path: a}))

    for path, a in flat.items():
        if path != "vanilla_rnn/linear_1:b":
            with line_of(f"convert: no {path!r}; found "):
                load(changed(path, None))
        with line_of(path, "shape"):
            load(changed(path, a[None]))
        for smaller in (a[1:], a[..., 1:]):
            weights = changed(path, smaller)
            # Only the number of inputs is free.
            assert is_refused(load, weights) or load(weights)["w_x"].shape[0] == D - 1
    with line_of("a mapping of names to arrays, not a"):
        load(case.cell)


@each_case
def test_wrong_parameters_are_refused(name):
    case = CASES[name]
    dump = functools.partial(convert.dump, case.library, case.cell)
    params = parameters(name)
    for key in params:
        with line_of(key):
            dump({n: a for n, a in params.items() if n != key})
        for change in (np.s_[None], np.s_[..., 1:]):
            with line_of("shape"):
                dump({**params, key: params[key][change]})
    with line_of("peephole"):
        dump({**params, "peephole": np.ones((3, H))})


@each_case
def test_bfloat16_stays_bfloat16(name):
    case = CASES[name]
    weights = jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16), weights_of(name))
    params = convert.load(case.library, case.cell, weights)
    back = convert.dump(case.library, case.cell, params)
    for a in [*params.values(), *jax.tree.leaves(back)]:
        assert isinstance(a, np.ndarray)
        assert a.dtype == jnp.bfloat16
