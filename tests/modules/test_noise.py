"""Noise of the modules follows Flax's Dropout."""

import functools

import jax
import jax.numpy as jnp
import pytest
from flax import errors, nnx

from lnrepro import functional, linen
from lnrepro import nnx as lnnx
from tests.functional.programs import drawn
from tests.modules.adaptor import (
    D,
    H,
    X,
    differ,
    each_package,
    refused,
    same,
    same_program,
)

CELL = functional.SimpleCell(H, "none")
ZONEOUT = functional.zoneout(CELL, rate_h=0.5)
VARIATIONAL = functional.variational_dropout(CELL, rate_h=0.5)


@each_package
@pytest.mark.parametrize("cell", [ZONEOUT, VARIATIONAL])
def test_keys_draw_the_noise(package, cell):
    layer = package.rnn(cell)

    def quiet(params, x):
        return functional.unroll(cell, params, x).outputs

    run = functools.partial(layer.run, deterministic=True)
    same_program(run, quiet, layer.params, X)
    keys = [jax.random.key(seed) for seed in range(2)]
    noisy = jax.jit(functools.partial(layer.run, deterministic=False))
    assert differ(*(noisy(layer.params, X, key=key) for key in keys))
    given = layer.params, layer.initialize_carry(), X[:, 0]
    step = jax.jit(functools.partial(layer.run, deterministic=False, method="step"))
    if cell is VARIATIONAL:
        with refused(ValueError, "one mask for a whole sequence"):
            step(*given, key=keys[0])
    else:
        assert differ(*(step(*given, key=key)[1] for key in keys))


def test_no_key_is_read_twice():
    cell = functional.stack(functional.SimpleCell(H), CELL)
    cell = functional.zoneout(functional.variational_dropout(cell, 0.1, 0.1), 0.1, 0.1)
    module = linen.RNN(linen.FunctionalCell(cell, deterministic=False))
    variables = drawn(jax.eval_shape(module.init, jax.random.key(0), X))

    def loss(variables, key):
        return module.apply(variables, X, rngs={"dropout": key}).sum()

    with jax.debug_key_reuse(True):
        jax.jit(jax.value_and_grad(loss))(variables, jax.random.key(1))


def test_linen_asks_for_deterministic_and_for_a_key():
    module, key = linen.RNN(ZONEOUT), jax.random.key(0)
    quiet = linen.RNN(linen.FunctionalCell(ZONEOUT, deterministic=True))
    variables = drawn(jax.eval_shape(quiet.init, key, X))
    given = functools.partial(module.apply, deterministic=True)
    same_program(given, quiet.apply, variables, X)
    with pytest.raises(errors.InvalidRngError):
        module.apply(variables, X, deterministic=False)
    with pytest.raises(ValueError, match="deterministic"):
        module.apply(variables, X, rngs=key)
    # A key without a name is taken where there is none for "dropout".
    jax.eval_shape(
        functools.partial(module.apply, deterministic=False, rngs=key), variables, X
    )


def noisy(rngs, cell=ZONEOUT):
    return lnnx.RNN(cell, in_features=D, rngs=rngs)


# Modules of equal graph definitions share a program.
run = nnx.jit(lambda module, **arguments: module(X, **arguments))


def test_nnx_keeps_a_stream_of_its_own():
    module = noisy(nnx.Rngs(0))
    first = run(module)
    assert differ(first, run(module))
    given = run(module, rngs=nnx.Rngs(3))
    same(given, run(module, rngs=nnx.Rngs(params=9, dropout=3)))
    assert differ(given, run(module, rngs=jax.random.key(3)))
    # Other modules that share the keys do not change it.
    rngs = nnx.Rngs(0)
    shared = noisy(rngs)
    run(noisy(rngs))
    same(run(shared), first)


def test_views_and_modes_of_nnx():
    def program(module, **arguments):
        graph, state = nnx.split(module)
        return state, lambda state: nnx.merge(graph, state)(X, **arguments)

    module = noisy(nnx.Rngs(0))
    state, quiet = program(module, deterministic=True)
    view = nnx.view(module, deterministic=True)
    module.eval()
    for silent in (view, module):
        same_program(program(silent)[1], quiet, state)
    module.train()
    assert differ(run(module), run(module))
    for cell in (ZONEOUT, VARIATIONAL):
        without_keys = noisy(nnx.Rngs(params=0), cell)
        with refused(ValueError, "has noise", "rngs"):
            without_keys(X)
        jax.eval_shape(functools.partial(without_keys, deterministic=True), X)


def test_flax_s_stream_of_carries_draws_no_noise():
    left, right, *pair = (noisy(nnx.Rngs(seed)) for seed in (0, 1, 0, 1))

    @nnx.jit
    def both(left, right, pair):
        backward = right(X, reverse=True, keep_order=True)
        return pair(X), jnp.concatenate([left(X), backward], -1)

    same(*both(left, right, nnx.Bidirectional(*pair)))
