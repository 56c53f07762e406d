"""Dtypes of parameters, inputs, carries and results, and what narrow ones cost.

Errors of gradients are relative to those in float64. docs/capabilities.md has the
numbers of a larger network.

The gains are 0.3. At 1 a fresh network is chaotic, so that even float32 is far from
float64 after some hundred steps.

XLA may keep more precision than a program asks for. What is promised holds without it:
`compiled` takes that licence away, or leaves it.
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
    products,
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)
from lnrepro.functional.fast.platform import tracing_for
from tests.functional import programs
from tests.functional.programs import norms_of, problem, relative_error, same
from tests.precisions import narrow_operations, product_dtypes
from tests.refused import refused

B, T, H = 4, 128, 32
# Relative errors of the whole gradient, about twice those that were measured.
LIMITS = {"float32": 6e-6, "bfloat16": 0.04, "float16": 0.008}
CELLS = {"lstm": LSTMCell, "gru": GRUCell, "dreamer": DreamerGRUCell}
FORMS = ("cpu", "gpu", "tpu")
nightly = functools.partial(pytest.param, marks=pytest.mark.nightly)


def compiled(function, excess):
    """The function compiled with or without XLA's licence to keep more precision."""
    return jax.jit(function, compiler_options={"xla_allow_excess_precision": excess})


def fresh(cell, dtype, seed=0):
    """Fresh parameters, by one program."""
    init = jax.jit(cell.init, static_argnums=(1, 2))
    return jax.device_get(init(jax.random.key(seed), H, dtype))


def gradient_errors(cell, dtypes, excess=False, platform=None):
    """{dtype: |g - g64| / |g64| over all parameters} of the narrow gradients."""
    params = fresh(cell, jnp.float64)
    x, w = np.random.default_rng(0).standard_normal((2, B, T, H))

    @functools.partial(compiled, excess=excess)
    @jax.grad
    def gradient(params, x):
        options = ScanOptions(platform=platform)
        outputs = unroll(cell, params, x, options=options).outputs
        assert outputs.dtype == x.dtype
        return jnp.sum(outputs.astype(jnp.float32) * w.astype(np.float32))

    errors = {}
    for dtype in dtypes:
        # Both start from the numbers that the narrow dtype can hold.
        narrow = as_dtype((params, x), jnp.dtype(dtype))
        mine = gradient(*narrow)
        exact = gradient(*as_dtype(narrow, jnp.float64))
        assert {a.dtype for a in mine.values()} == {jnp.dtype(dtype)}
        errors[dtype] = relative_error(mine, exact)
    return errors


GAIN = jax.nn.initializers.constant(0.3)


NORMS = ("layer", "none", "rms")


@pytest.mark.parametrize(
    ("name", "norm", "excess", "platform"),
    [
        ("lstm", "layer", False, "cpu"),
        *[
            nightly(*case)
            for case in itertools.product(CELLS, NORMS, (False, True), FORMS)
        ],
    ],
)
def test_error_of_the_gradient(x64, name, norm, excess, platform):
    cell = CELLS[name](H, norm, scale_init=GAIN)
    errors = gradient_errors(cell, LIMITS, excess=excess, platform=platform)
    for dtype, limit in LIMITS.items():
        assert errors[dtype] < limit, errors
    # float16 is the more exact of the two where no term is below its range.
    assert errors["float16"] < errors["bfloat16"]


def test_sums_over_time_are_taken_in_float32():
    """The sum of 1024 ones is 256 in bfloat16, where each is added by itself."""
    cell = LSTMCell(1, "none")
    zeros = {"w_x": np.zeros((1, 4)), "w_h": np.zeros((1, 4)), "bias": np.zeros(4)}
    arguments = as_dtype((zeros, np.ones((1, 1024, 1))), np.float32)

    def loss(params, x):
        outputs = unroll(cell, params, x, options=ScanOptions(chunk=1)).outputs
        return outputs.astype(jnp.float32).sum()

    gradient = jax.jit(jax.grad(loss))
    narrow = gradient(*as_dtype(arguments, jnp.bfloat16))
    same(as_dtype(narrow, np.float32), gradient(*arguments), 0.01)


def test_a_bias_inside_of_a_norm_is_centred_in_float32():
    cell = LSTMCell(H, inner_bias=True)
    params, _ = programs.shapes_of(cell, dtype=jnp.bfloat16)
    prepared = jax.eval_shape(cell.prepare, params).params
    assert prepared["inner_bias"].dtype == jnp.float32


# Dtypes of results


def dtypes_of(tree):
    return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}


def as_dtype(tree, dtype):
    # By NumPy, which needs no program.
    return jax.tree.map(lambda a: np.asarray(a).astype(dtype), tree)


def test_outputs_have_the_wider_dtype_and_carries_float32_at_least(x64):
    def dtypes(cell, *dtypes):
        """Those of outputs and carries, for these of params, x and the carry."""
        params, first = problem(cell)
        arrays = zip((params, programs.X, first), dtypes, strict=False)
        arrays = [as_dtype(tree, dtype) for tree, dtype in arrays]

        def result(params, x, carry=None):
            return unroll(cell, params, x, memory=programs.MEMORY, initial_carry=carry)

        found = jax.eval_shape(result, *arrays)
        return found.outputs.dtype, *dtypes_of(found.carry)

    narrow, single, wide = jnp.bfloat16, np.float32, np.float64
    for cell in programs.CELLS.values():
        assert dtypes(cell, narrow, narrow) == (narrow, "float32")
        # A narrower carry is taken as it is.
        assert dtypes(cell, narrow, narrow, narrow) == (narrow, "float32")
    assert dtypes(cell, single, narrow) == (single, "float32")
    assert dtypes(cell, narrow, single, single) == (single, "float32")
    assert dtypes(cell, single, wide, single) == (wide, "float64")
    with refused("float64", "float32", error=TypeError):
        dtypes(cell, single, single, wide)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_products_over_blocks_for_a_cpu_are_float32(target, backend, monkeypatch):
    """XLA has none of bfloat16 there, wherever the program is traced."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    v, weight = jnp.ones((2, 8), jnp.bfloat16), jnp.ones((2, 4, 3), jnp.bfloat16)
    with tracing_for(target):
        traced = jax.make_jaxpr(lambda *a: products.multiply(*a, is_wide=True))
        (product,) = (
            e for e in traced(v, weight).eqns if e.primitive.name == "dot_general"
        )
    (dtype,) = {a.aval.dtype for a in product.invars}
    assert (dtype == jnp.float32) == ("cpu" in (target, backend))


def test_a_fresh_carry_can_be_donated():
    """Its parts are arrays of their own."""
    cell, x = programs.CELLS["stack"], programs.X[:, 0]
    params, _ = problem(cell)
    act = jax.jit(step, static_argnums=0, donate_argnums=2)
    found = act(cell, params, cell.initial_carry(params, x), x)
    carry = cell.initial_carry(params, x)
    same(found, programs.one_step(cell, params, carry, x))


# The first ones are those of the default suite.
STRICT = [
    GRUCell(4, "layer", reset="before", learned_carry=True),
    DreamerBlockGRUCell(4, hidden_features=5, input_sizes=(4,), blocks=2),
    variational_dropout(
        zoneout(stack(LSTMCell(4, peephole=True), SimpleCell(4)), 0.1, 0.1), 0.1, 0.1
    ),
    LSTMCell(4, "batch", inner_bias=True, gradient_clip=1.0),
    *[LSTMCell(4, norm, peephole=True, inner_bias=True) for norm in norms_of(LSTMCell)],
    *[
        GRUCell(4, norm, reset=reset, learned_carry=True)
        for norm, reset in itertools.product(norms_of(GRUCell), ("after", "before"))
    ],
    GRUCell(4, "none", recurrent_bias=True),
    *[SimpleCell(4, norm) for norm in norms_of(SimpleCell)],
    variational_dropout(stack(LSTMCell(4), GRUCell(4), skip="graves"), 0.1, 0.1),
]


@pytest.mark.parametrize(
    ("dtype", "platform", "cells"),
    [
        (jnp.bfloat16, "cpu", STRICT[:4]),
        (jnp.bfloat16, "gpu", STRICT[4:5]),
        (jnp.bfloat16, "tpu", STRICT[4:5]),
        pytest.param(jnp.bfloat16, "gpu", STRICT, marks=pytest.mark.slow),
        pytest.param(jnp.float32, "cpu", STRICT, marks=pytest.mark.slow),
    ],
)
def test_cells_compute_in_float32_under_strict_promotion_of_dtypes_and_ranks(
    dtype, platform, cells
):
    """Nothing but inputs of products and what is stored is narrow.

    All of it is read off the program; nothing needs to run.
    """

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
            options=ScanOptions(platform=platform),
        )
        return result.outputs.astype(jnp.float32).sum()

    x = programs.X.astype(dtype)
    strict = jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise")
    with strict[0], strict[1]:
        for cell in cells:
            init = functools.partial(cell.init, features_in=programs.D, dtype=dtype)
            params = jax.eval_shape(init, jax.random.key(0))
            of_cell = functools.partial(loss, cell)
            traced = jax.make_jaxpr(of_cell)(params, x)
            assert not narrow_operations(traced), cell
            assert product_dtypes(traced) == {"float32"}, cell
            gradient = jax.eval_shape(jax.grad(of_cell, (0, 1)), params, x)
            assert dtypes_of(gradient) == {str(x.dtype)}
