"""Inputs and helpers of the tests of the recurrent nnx modules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from lnrepro import functional
from lnrepro.nnx import (
    GRU,
    LSTM,
    RNN,
    GRUCell,
    LSTMCell,
    SimpleCell,
    SimpleRNN,
)

B, T, D, H = 4, 6, 3, 4
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.standard_normal((B, T, D)), jnp.float32)
LENGTHS = jnp.array([6, 0, 3, 5])
MASK = jnp.arange(T) < jnp.array([[6], [2], [4], [5]])
RESETS = jnp.arange(T) == jnp.array([[2], [0], [3], [6]])
MEMORY = jnp.asarray(RNG.standard_normal((B, 2, 5)), jnp.float32)
ARGUMENTS = {
    "lengths": {"seq_lengths": LENGTHS},
    "mask": {"mask": MASK},
    "resets": {"resets": RESETS, "seq_lengths": LENGTHS},
    "reverse": {"reverse": True, "seq_lengths": LENGTHS},
    "keep_order": {"reverse": True, "keep_order": True, "seq_lengths": LENGTHS},
}

CELLS = [LSTMCell, GRUCell, SimpleCell]
SEQUENCES = [LSTM, GRU, SimpleRNN]
FUNCTIONAL = [functional.LSTMCell, functional.GRUCell, functional.SimpleCell]
USER_CELLS = [ProjectedLSTMCell(H, 6), AttentionCell(H, memory_features=5)]
each_cell = pytest.mark.parametrize("cell", CELLS)
each_sequence = pytest.mark.parametrize("sequence", SEQUENCES)
each_kind = pytest.mark.parametrize(
    ("sequence", "cell", "functional_cell"),
    list(zip(SEQUENCES, CELLS, FUNCTIONAL, strict=True)),
    ids=["lstm", "gru", "simple"],
)
zoneout = functools.partial(functional.zoneout, rate_h=0.5)
variational_dropout = functools.partial(functional.variational_dropout, rate_h=0.5)
normal = nnx.initializers.normal(1.0)


def same(a, b, tolerance=1e-5):
    """Assert that two trees of arrays are equal up to rounding."""
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance),
        a,
        b,
    )


def differ(a, b):
    """Whether two arrays differ by more than rounding."""
    return np.abs(np.asarray(a) - np.asarray(b)).max() > 1e-3


def params_of(module):
    """The parameters of a module, by their names."""
    return nnx.to_pure_dict(nnx.state(module, nnx.Param))


def shift(module):
    """Move all parameters away from their starting values."""
    rng = np.random.default_rng(1)

    def moved(a):
        return a + jnp.asarray(0.2 * rng.standard_normal(a.shape), a.dtype)

    nnx.update(module, jax.tree.map(moved, nnx.state(module, nnx.Param)))
    return module


def some_carry(module, batch=(B,)):
    """A carry that is not the module's own."""
    carry = module.initialize_carry((*batch, D))
    return jax.tree.map(lambda c: c + 0.3, carry)


def partitioned(initializer, *axes):
    """An initialiser whose parameters have the names of mesh axes."""
    return nnx.with_partitioning(initializer, axes)


def noisy_gru(wrap=zoneout, features_in=D, rngs=None):
    """A GRU layer with noise."""
    rngs = nnx.Rngs(0) if rngs is None else rngs
    cell = wrap(functional.GRUCell(H, "layer"))
    return RNN(cell, in_features=features_in, rngs=rngs)


def two_layers():
    """An LSTM of H units and a GRU of 5 on top of it."""
    rngs = nnx.Rngs(0)
    return LSTM(D, H, rngs=rngs), RNN(GRUCell(H, 5, rngs=rngs))
