"""Noise of the modules follows Flax's Dropout."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import errors, nnx

from lnrepro import functional, linen
from lnrepro import nnx as lnnx
from tests.functional.programs import drawn
from tests.modules.adaptor import B, D, H, X, differ, each_package, refused, same

CELL = functional.SimpleCell(H, "none")
ZONEOUT = functional.zoneout(CELL, rate_h=0.5)
VARIATIONAL = functional.variational_dropout(CELL, rate_h=0.5)


@each_package
@pytest.mark.parametrize("cell", [ZONEOUT, VARIATIONAL])
def test_keys_draw_the_noise(package, cell):
    layer = package.rnn(cell)
    quiet = jax.jit(lambda params: functional.unroll(cell, params, X).outputs)
    quiet = quiet(layer.params)
    same(layer.apply(X, deterministic=True), quiet)
    keys = [jax.random.key(seed) for seed in (0, 0, 1)]
    first, again, other = (layer.apply(X, deterministic=False, key=k) for k in keys)
    same(first, again)
    assert differ(first, quiet)
    assert differ(first, other)
    step = {"deterministic": False, "key": keys[0]}
    carry = layer.initialize_carry()
    if cell is VARIATIONAL:
        with refused(ValueError, "one mask for a whole sequence"):
            layer.step(carry, X[:, 0], **step)
    else:
        assert differ(layer.step(carry, X[:, 0], **step)[1], np.asarray(quiet)[:, 0])


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
    same(quiet.apply(variables, X), module.apply(variables, X, deterministic=True), 0)
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


def test_nnx_keeps_a_stream_of_its_own():
    module = noisy(nnx.Rngs(0))
    assert differ(module(X), module(X))
    given = module(X, rngs=nnx.Rngs(3))
    same(given, module(X, rngs=nnx.Rngs(params=9, dropout=3)))
    assert differ(given, module(X, rngs=jax.random.key(3)))
    # Other modules that share the keys do not change it.
    alone, rngs = noisy(nnx.Rngs(0)), nnx.Rngs(0)
    shared = noisy(rngs)
    noisy(rngs)(X)
    same(shared(X), alone(X))


def test_views_and_modes_of_nnx():
    module = noisy(nnx.Rngs(0))
    quiet = module(X, deterministic=True)
    same(nnx.view(module, deterministic=True)(X), quiet)
    module.eval()
    same(module(X), quiet)
    same(module.step(module.initialize_carry((B, D)), X[:, 0])[1], quiet[:, 0])
    module.train()
    assert differ(module(X), quiet)
    for cell in (ZONEOUT, VARIATIONAL):
        without_keys = noisy(nnx.Rngs(params=0), cell)
        with refused(ValueError, "has noise", "rngs"):
            without_keys(X)
        without_keys(X, deterministic=True)


def test_flax_s_stream_of_carries_draws_no_noise():
    left, right, *pair = (noisy(nnx.Rngs(seed)) for seed in (0, 1, 0, 1))
    backward = right(X, reverse=True, keep_order=True)
    same(nnx.Bidirectional(*pair)(X), jnp.concatenate([left(X), backward], -1))
