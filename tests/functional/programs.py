"""Cells of different structure, and the compiled programs that tests of the core share.

Tests that ask for the same cell, shapes and arguments share one compiled program.

Shape letters: B batch, T time, D input features, H hidden units.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from lnrepro.functional import (
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    stack,
    step,
    unroll,
)
from lnrepro.functional.cells.sites import NORMS

B, T, D, H = 2, 6, 4, 4
AUTODIFF = ScanOptions(backward="autodiff")
_RNG = np.random.default_rng(0)
# Of NumPy, since an operation of JAX outside of `jax.jit` is a program to compile.
X = _RNG.standard_normal((B, T, D)).astype(np.float32)
# What AttentionCell reads; the other cells pass over it.
MEMORY = _RNG.standard_normal((B, 3, 5)).astype(np.float32)
CELLS = {
    "lstm": LSTMCell(H, "layer", learned_carry=True),
    "gru": GRUCell(H, "layer"),
    "gru_before": GRUCell(H, "none", reset="before", learned_carry=True),
    "simple": SimpleCell(H, "rms"),
    "lstm_batch": LSTMCell(H, "batch"),
    "stack": stack(
        LSTMCell(H, "layer", learned_carry=True), GRUCell(H, "none"), skip="residual"
    ),
    # Cells that a user writes, here those of the documentation.
    "projected": ProjectedLSTMCell(features=H, hidden=6),
    "attention": AttentionCell(H, memory_features=5),
}
STATIC = (
    "cell",
    "reverse",
    "keep_order",
    "time_major",
    "options",
)


def on_host(function):
    """The function with results of NumPy: reading parts of them compiles nothing."""

    @functools.wraps(function)
    def call(*arguments, **named):
        return jax.device_get(function(*arguments, **named))

    return call


run = on_host(jax.jit(unroll, static_argnames=STATIC))
one_step = on_host(jax.jit(step, static_argnames="cell"))


def norms_of(kind):
    """The names of the norms that a kind of cell takes."""
    names = []
    for name in NORMS:
        with contextlib.suppress(ValueError):
            names.append(kind(H, name).norm)
    return names


def total(tree):
    """A number that depends on all arrays of a tree, each in another way."""
    return sum(
        jnp.sum(jnp.sin(leaf + number))
        for number, leaf in enumerate(jax.tree.leaves(tree))
    )


@on_host
@functools.partial(jax.jit, static_argnames=STATIC)
def gradients_and_result(cell, params, x, carry, memory=MEMORY, **arguments):
    """Gradients of the `total` of a result: of params, x, the first carry, memory."""

    def loss(params, x, carry, memory):
        result = unroll(
            cell, params, x, initial_carry=carry, memory=memory, **arguments
        )
        return total(result), result

    return jax.grad(loss, (0, 1, 2, 3), has_aux=True)(params, x, carry, memory)


def same(a, b, tolerance=1e-6):
    """Compare all arrays of two trees."""
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance),
        a,
        b,
    )


def relative_error(found, exact):
    """|a - b| / |b| over all arrays of two trees, of which b may be of float64."""
    found, exact = (np.float64(ravel_pytree(tree)[0]) for tree in (found, exact))
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def is_zero(tree):
    """Whether all arrays of a tree are zeros."""
    return not any(np.any(leaf) for leaf in jax.tree.leaves(tree))


def at(tree, index):
    """All arrays of a tree at an index."""
    return jax.tree.map(lambda a: a[index], tree)


def drawn(shapes, seed=1):
    """Numbers for a tree of shapes: gains and lengths about 1, all others about 0.

    By NumPy, since what `init` draws is a program of its own for every cell.
    """
    rng = np.random.default_rng(seed)

    def draw(path, a):
        # Flax keeps arrays in boxes.
        names = [""] + [str(part.key) for part in path if hasattr(part, "key")]
        name = names[-1]
        centre = 1.0 if name.startswith(("gain", "length")) else 0.0
        return (centre + 0.4 * rng.standard_normal(a.shape)).astype(a.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


@functools.cache
def shapes_of(cell, features_in=D, dtype=jnp.float32, rows=B):
    """Shapes of parameters and of a carry of some rows."""

    def start(key):
        params = cell.init(key, features_in, dtype)
        x = jnp.zeros((rows, features_in), dtype)
        return params, cell.initial_carry(params, x)

    return jax.eval_shape(start, jax.eval_shape(jax.random.key, 0))


def problem(cell, dtype=jnp.float32):
    """Parameters and a first carry, all away from their starting values."""
    params, carry = shapes_of(cell, dtype=dtype)
    return drawn(params), drawn(carry, seed=2)
