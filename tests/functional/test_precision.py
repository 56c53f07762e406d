"""Dtypes of parameters, inputs, carries and results, and what narrow ones cost.

Errors of gradients are relative to those in float64. docs/capabilities.md has the
numbers of a larger network.

The gains are 0.3. At 1 a fresh network is chaotic, so that even float32 is far from
float64 after some hundred steps.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import (
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)
from tests.functional import programs
from tests.functional.programs import norms_of, problem, run, same

B, T, H = 4, 128, 32
# Relative errors of the whole gradient, about twice those that were measured.
LIMITS = {"float32": 6e-6, "bfloat16": 0.04, "float16": 0.008}
CELLS = {"lstm": LSTMCell, "gru": GRUCell, "dreamer": DreamerGRUCell}
slow = functools.partial(pytest.param, marks=pytest.mark.slow)


def gradient_errors(cell, dtypes, scale=1.0):
    """{dtype: |g - g64| / |g64| over all parameters} of the narrow gradients."""
    keys = jax.random.split(jax.random.key(0), 3)
    params = cell.init(keys[0], H, jnp.float64)
    x, w = (jax.random.normal(key, (B, T, H), jnp.float64) for key in keys[1:])

    # The program in float64 is traced once for all dtypes.
    @jax.jit
    @jax.grad
    def gradient(params, x):
        outputs = unroll(cell, params, x).outputs
        assert outputs.dtype == x.dtype
        return scale * jnp.sum(outputs.astype(jnp.float32) * w.astype(jnp.float32))

    def flat(tree):
        return np.concatenate(
            [np.asarray(a, np.float64).ravel() for a in tree.values()]
        )

    errors = {}
    for dtype in dtypes:
        # Both start from the numbers that the narrow dtype can hold.
        narrow = jax.tree.map(lambda a, d=dtype: a.astype(d), (params, x))
        mine = gradient(*narrow)
        exact = flat(gradient(*jax.tree.map(lambda a: a.astype(jnp.float64), narrow)))
        assert {a.dtype for a in mine.values()} == {jnp.dtype(dtype)}
        errors[dtype] = np.linalg.norm(flat(mine) - exact) / np.linalg.norm(exact)
    return errors


@pytest.mark.parametrize("norm", ["layer", slow("none"), slow("rms")])
@pytest.mark.parametrize("name", CELLS)
def test_error_of_the_gradient(x64, name, norm):
    gain = jax.nn.initializers.constant(0.3)
    cell = CELLS[name](H, norm, scale_init=gain)
    errors = gradient_errors(cell, LIMITS)
    for dtype, limit in LIMITS.items():
        assert errors[dtype] < limit, errors
    # Where the loss is scaled, float16 is the more exact of the two.
    assert errors["float16"] < errors["bfloat16"]


def test_float16_needs_a_scaled_loss(x64):
    """The terms of a mean over many outputs are below its range."""
    cell = LSTMCell(H, "none")
    errors = gradient_errors(cell, ("float16", "bfloat16"), scale=2.0**-20)
    assert errors["float16"] > 0.05
    assert errors["bfloat16"] < LIMITS["bfloat16"]


def test_sums_over_time_are_taken_in_float32():
    """The sum of 4096 ones is 256 in bfloat16, where each is added by itself."""
    cell = LSTMCell(1, "none")
    params = jax.tree.map(jnp.zeros_like, cell.init(jax.random.key(0), 1))
    arguments = params, jnp.ones((1, 4096, 1))

    def loss(params, x):
        return run(cell, params, x).outputs.astype(jnp.float32).sum()

    gradient = jax.grad(loss)
    narrow = gradient(*as_dtype(arguments, jnp.bfloat16))["bias"]
    same(narrow.astype(jnp.float32), gradient(*arguments)["bias"], 0.01)


# Dtypes of results


def dtypes_of(tree):
    return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}


def as_dtype(tree, dtype):
    return jax.tree.map(lambda a: a.astype(dtype), tree)


@pytest.mark.parametrize("name", programs.CELLS)
def test_outputs_are_bfloat16_and_carries_float32(name):
    cell = programs.CELLS[name]
    arguments = problem(cell)[0], programs.X, programs.MEMORY
    params, x, memory = as_dtype(arguments, jnp.bfloat16)
    result = run(cell, params, x, memory=memory)
    assert result.outputs.dtype == jnp.bfloat16
    assert dtypes_of(result.carry) == {"float32"}
    # A narrower carry is taken as it is.
    narrow = as_dtype(result.carry, jnp.bfloat16)
    again = run(cell, params, x, memory=memory, initial_carry=narrow)
    assert dtypes_of(again.carry) == {"float32"}
    params, x, memory = as_dtype((params, x, memory), jnp.float32)
    wide = run(cell, params, x, memory=memory).outputs
    same(result.outputs.astype(jnp.float32), wide, 0.06)


def test_a_bfloat16_cell_keeps_what_it_remembers_for_a_thousand_steps():
    """c is off by 0.7 %; with a carry of bfloat16 it would be 10 %."""
    cell = LSTMCell(32, "none", forget_bias=6.0)
    params = cell.init(jax.random.key(0), 32, jnp.bfloat16)
    x = jax.random.normal(jax.random.key(1), (4, 1000, 32), jnp.bfloat16)
    c = run(cell, params, x).carry[0]
    with jax.enable_x64(True):
        expected = run(cell, *as_dtype((params, x), jnp.float64)).carry[0]
        error = float(jnp.linalg.norm(c - expected) / jnp.linalg.norm(expected))
    assert error < 0.02


@pytest.mark.parametrize("name", ["lstm", "gru", "simple"])
def test_the_wider_of_two_dtypes_is_that_of_the_computation(name):
    cell = programs.CELLS[name]
    params, _ = problem(cell)

    def loss(params, x):
        result = unroll(cell, params, x)
        return result.outputs.sum(), result

    x = programs.X.astype(jnp.bfloat16)
    (d_params, d_x), result = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(params, x)
    assert dtypes_of((result, d_params)) == {"float32"}
    assert d_x.dtype == jnp.bfloat16
    narrow = as_dtype(params, jnp.bfloat16)
    assert run(cell, narrow, programs.X).outputs.dtype == jnp.float32


def test_a_float32_carry_serves_inputs_in_float64(x64):
    cell = programs.CELLS["lstm"]
    params, _ = problem(cell)
    x = programs.X.astype(jnp.float64)
    carry = cell.initial_carry(params, programs.X[:, 0])
    same(run(cell, params, x, initial_carry=carry), run(cell, params, x), 0)
    new, _ = step(cell, params, carry, x[:, 0])
    assert dtypes_of(new) == {"float64"}


@pytest.mark.parametrize("name", ["lstm", "gru", "stack"])
def test_a_fresh_carry_can_be_donated(name):
    """Its parts are arrays of their own."""
    cell, x = programs.CELLS[name], programs.X[:, 0]
    params, _ = problem(cell)
    act = jax.jit(step, static_argnums=0, donate_argnums=2)
    found = act(cell, params, cell.initial_carry(params, x), x)
    same(found, step(cell, params, cell.initial_carry(params, x), x))


STRICT = [
    *[LSTMCell(4, norm, peephole=True, inner_bias=True) for norm in norms_of(LSTMCell)],
    *[
        GRUCell(4, norm, reset=reset, learned_carry=True)
        for norm, reset in itertools.product(norms_of(GRUCell), ("after", "before"))
    ],
    GRUCell(4, "none", recurrent_bias=True),
    LSTMCell(4, gradient_clip=1.0),
    *[SimpleCell(4, norm) for norm in norms_of(SimpleCell)],
    DreamerBlockGRUCell(4, hidden_features=5, input_sizes=(4,), blocks=2),
    zoneout(stack(LSTMCell(4), GRUCell(4), skip="residual"), 0.1, 0.1),
    variational_dropout(stack(LSTMCell(4), GRUCell(4), skip="graves"), 0.1, 0.1),
]


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (jnp.bfloat16, ScanOptions(platform="cpu")),
        slow(jnp.bfloat16, ScanOptions()),
        slow(jnp.float32, ScanOptions()),
        slow(jnp.bfloat16, programs.AUTODIFF),
    ],
    ids=["cpu", "all-platforms", "float32", "autodiff"],
)
def test_all_cells_run_under_strict_promotion_of_dtypes_and_ranks(dtype, options):
    """Both are checked while tracing; nothing needs to run."""

    def loss(cell, params, x):
        result = unroll(
            cell,
            params,
            x,
            seq_lengths=jnp.array([6, 2]),
            mask=jnp.ones((2, 6), bool),
            resets=jnp.zeros((2, 6), bool),
            reverse=True,
            key=jax.random.key(1) if cell.is_noisy else None,
            options=options,
        )
        return result.outputs.astype(jnp.float32).sum()

    x = programs.X.astype(dtype)
    strict = jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise")
    with strict[0], strict[1]:
        for cell in STRICT:
            params = cell.init(jax.random.key(0), programs.D, dtype)
            gradient = functools.partial(jax.grad(loss, (1, 2)), cell)
            assert dtypes_of(jax.eval_shape(gradient, params, x)) == {str(x.dtype)}
            if not cell.sites:
                carry = cell.initial_carry(params, x[:, 0])
                jax.eval_shape(functools.partial(step, cell), params, carry, x[:, 0])
