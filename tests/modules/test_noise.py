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
NOISY = {
    "zoneout": functional.zoneout(CELL, rate_h=0.5),
    "variational": functional.variational_dropout(CELL, rate_h=0.5),
}
each_noise = pytest.mark.parametrize("noise", NOISY)


@each_package
@each_noise
def test_keys_draw_the_noise(package, noise):
    cell = NOISY[noise]
    layer = package.rnn(cell)
    quiet = layer.apply(X, deterministic=True)
    without_noise = jax.jit(lambda params: functional.unroll(cell, params, X).outputs)
    same(quiet, without_noise(layer.params))
    keys = [jax.random.key(seed) for seed in (0, 0, 1)]
    first, again, other = (layer.apply(X, deterministic=False, key=k) for k in keys)
    same(first, again)
    assert differ(first, quiet)
    assert differ(first, other)
    carry = layer.initialize_carry()
    step = {"deterministic": False, "key": keys[0]}
    if noise == "variational":
        with refused(ValueError, "one mask for a whole sequence"):
            layer.step(carry, X[:, 0], **step)
    else:
        assert differ(layer.step(carry, X[:, 0], **step)[1], np.asarray(quiet)[:, 0])


def test_no_key_is_read_twice():
    cell = functional.stack(functional.LSTMCell(H, "none"), CELL)
    cell = functional.zoneout(functional.variational_dropout(cell, 0.1, 0.1), 0.1, 0.1)
    module = linen.RNN(cell)
    init = functools.partial(module.init, deterministic=True)
    variables = drawn(jax.eval_shape(init, jax.random.key(0), X))

    def loss(variables, key):
        return module.apply(
            variables, X, deterministic=False, rngs={"dropout": key}
        ).sum()

    with jax.debug_key_reuse(True):
        jax.jit(jax.value_and_grad(loss))(variables, jax.random.key(1))


def test_linen_asks_for_deterministic_and_for_a_key():
    module = linen.RNN(NOISY["zoneout"])
    init = functools.partial(module.init, deterministic=True)
    variables = drawn(jax.eval_shape(init, jax.random.key(0), X))
    with pytest.raises(errors.InvalidRngError):
        module.apply(variables, X, deterministic=False)
    with pytest.raises(ValueError, match="deterministic"):
        module.apply(variables, X, rngs=jax.random.key(0))
    quiet = linen.RNN(linen.FunctionalCell(NOISY["zoneout"], deterministic=True))

    @jax.jit
    def both(variables):
        quietly = module.apply(variables, X, deterministic=True)
        return quiet.apply(variables, X), quietly

    same(*both(variables))
    # A key without a name is taken where there is none for "dropout".
    module.apply(variables, X, deterministic=False, rngs=jax.random.key(0))


def noisy(rngs, cell=NOISY["zoneout"]):
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


@each_noise
def test_nnx_without_rngs_raises(noise):
    module = noisy(nnx.Rngs(params=0), NOISY[noise])
    with refused(ValueError, "has noise", "rngs"):
        module(X)
    module(X, deterministic=True)


def test_views_and_modes_of_nnx():
    module = noisy(nnx.Rngs(0))
    quiet = module(X, deterministic=True)
    same(nnx.view(module, deterministic=True)(X), quiet)
    module.eval()
    same(module(X), quiet)
    same(module.step(module.initialize_carry((B, D)), X[:, 0])[1], quiet[:, 0])
    module.train()
    assert differ(module(X), quiet)


def test_flax_s_stream_of_carries_draws_no_noise():
    def pair():
        return [noisy(nnx.Rngs(seed)) for seed in range(2)]

    left, right = pair()
    y = nnx.Bidirectional(*pair())(X)
    backward = right(X, reverse=True, keep_order=True)
    same(y, jnp.concatenate([left(X), backward], -1))
