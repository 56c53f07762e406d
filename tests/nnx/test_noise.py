"""Noise of the recurrent nnx modules follows flax.nnx.Dropout."""

import functools

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from lnrepro import functional
from lnrepro.nnx import RNN, Bidirectional, FunctionalCell, Stack
from tests.nnx.common import (
    B,
    D,
    H,
    X,
    differ,
    noisy_gru,
    params_of,
    same,
    variational_dropout,
    zoneout,
)

NOISY = [
    zoneout(functional.GRUCell(H, "layer")),
    variational_dropout(functional.GRUCell(H, "layer")),
    functional.GRUCell(H, "layer", recurrent_dropout=0.5),
]
each_noise = pytest.mark.parametrize(
    "noisy", NOISY, ids=["zoneout", "variational", "recurrent"]
)


@each_noise
def test_noise_takes_the_default_stream(noisy):
    module = RNN(noisy, in_features=D, rngs=nnx.Rngs(0))
    quiet = module(X, deterministic=True)
    same(quiet, functional.unroll(noisy, params_of(module)["cell"], X).outputs)
    assert differ(module(X), quiet)
    assert differ(module(X), module(X))
    given = module(X, rngs=nnx.Rngs(3))
    same(given, module(X, rngs=nnx.Rngs(params=9, dropout=3)))
    assert differ(given, module(X, rngs=jax.random.key(3)))


@each_noise
@pytest.mark.parametrize("is_sequence", [True, False])
def test_noise_without_rngs_raises(noisy, is_sequence):
    cell = FunctionalCell(noisy, D, rngs=nnx.Rngs(params=0))
    carry = cell.initialize_carry((B, D))
    run = RNN(cell) if is_sequence else functools.partial(cell, carry)
    x = X if is_sequence else X[:, 0]
    with pytest.raises(ValueError, match=r"has noise, but .* rngs=nnx.Rngs"):
        run(x)
    with pytest.raises(KeyError, match="No RngStream named 'dropout'"):
        run(x, rngs=nnx.Rngs(params=0))
    same(run(x, deterministic=True), run(x, deterministic=True))


def test_train_eval_and_view():
    rngs = nnx.Rngs(0)
    module = Stack([noisy_gru(rngs=rngs), noisy_gru(features_in=H, rngs=rngs)])
    quiet = module(X, deterministic=True)
    assert differ(module(X), quiet)
    same(nnx.view(module, deterministic=True)(X), quiet)
    assert differ(module(X), quiet)
    module.eval()
    same(module(X), quiet)
    assert differ(nnx.view(module, deterministic=False)(X), quiet)
    assert differ(module(X, deterministic=False), quiet)
    module.train()
    assert differ(module(X), quiet)
    built = RNN(FunctionalCell(NOISY[0], D, deterministic=True, rngs=rngs))
    same(built(X), built(X))


def test_noise_is_new_in_every_call_under_jit():
    module = noisy_gru()
    run = nnx.jit(lambda module, x: module(x))
    assert differ(run(module, X), run(module, X))


@pytest.mark.slow
def test_a_key_is_split_over_the_parts():
    cell = zoneout(functional.GRUCell(D, "layer"))
    first, second = (RNN(cell, in_features=D, rngs=nnx.Rngs(0)) for _ in range(2))
    key = jax.random.key(1)
    key_1, key_2 = jax.random.split(key)
    backward = second(X, reverse=True, keep_order=True, rngs=key_2)
    both = jnp.concatenate([first(X, rngs=key_1), backward], -1)
    same(Bidirectional(first, second)(X, rngs=key), both)
    stack = Stack([first, second])
    same(stack(X, rngs=key), second(first(X, rngs=key_1), rngs=key_2))
    carry = stack.initialize_carry((B, D))
    lower, y = first.step(carry[0], X[:, 0], rngs=key_1)
    upper, y = second.step(carry[1], y, rngs=key_2)
    same(stack.step(carry, X[:, 0], rngs=key), ((lower, upper), y))


def test_steps_of_variational_dropout():
    """One key gives one mask for all steps; a stream would give others."""
    noisy = functional.variational_dropout(functional.GRUCell(H, "layer"), rate_h=0.5)
    module = RNN(noisy, in_features=D, rngs=nnx.Rngs(0))
    params, key = params_of(module)["cell"], jax.random.key(5)
    quiet, masked, carry = (module.initialize_carry((B, D)) for _ in range(3))
    for t in range(3):
        expected = functional.step(noisy, params, masked, X[:, t], key=key)
        masked, _ = module.step(masked, X[:, t], rngs=key)
        same(masked, expected[0])
        quiet, _ = module.step(quiet, X[:, t], deterministic=True)
    assert differ(masked, quiet)
    same(module.cell(carry, X[:, 0], rngs=key), module.step(carry, X[:, 0], rngs=key))
    for step in (module.step, module.cell):
        with pytest.raises(ValueError, match="one mask for a whole sequence"):
            step(carry, X[:, 0])
