"""The scan as Pallas kernels equals the scan; kernels compile for every TPU.

Values and gradients are compared with the scan in float64, where a kernel runs by
Pallas' interpreter. Compiling needs the compilers of scripts/accelerators.sh.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from lnrepro.functional import (
    DreamerBlockGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    scan,
    stack,
    unroll,
    variational_dropout,
)
from lnrepro.functional.fast.tpu import loop as pallas
from lnrepro.functional.fast.tuning import answering, kernel_where_it_can
from tests.functional import compilers, pallas_programs
from tests.functional.programs import (
    B,
    D,
    H,
    T,
    X,
    gradients_and_result,
    problem,
    same,
    shapes_of,
    total,
)
from tests.precisions import equations
from tests.refused import refused

PALLAS, SCAN = ScanOptions(kernels="on", platform="tpu"), ScanOptions()
AUTO_ON_TPU = ScanOptions(kernels="auto", platform="tpu")
LSTM, SIMPLE = LSTMCell(H, "layer", learned_carry=True), SimpleCell(H, "layer")
CELLS = {
    **pallas_programs.cells(H),
    "joint": LSTMCell(H, norm_site="joint", cell_norm="carry", gradient_clip=0.1),
    "rms": SimpleCell(H, "rms"),
    "dreamer_v3": DreamerBlockGRUCell(
        H, hidden_features=4, input_sizes=(3, 1), blocks=2
    ),
    "graves": stack(
        LSTMCell(H, "layer_cell"),
        variational_dropout(GRUCell(6, "batch"), 0.3, 0.3),
        skip="graves",
    ),
}
QUICK = ("joint", "attention")
# Of cells that run with other options than the default.
OPTIONS = {
    "lstm_batch": {"save": "carries"},
    "gru": {"chunk": 1},
    # Its gradients are clipped, by a rule that JAX's own derivative finds too.
    "joint": {"backward": "autodiff"},
}
CASES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in CELLS
]


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels run by Pallas' interpreter."""
    monkeypatch.setattr(pallas, "INTERPRET", True)


def run(cell, options, dtype=jnp.float64, **arguments):
    """The gradients of all that `unroll` reads, and its result."""
    params, carry = problem(cell, dtype)
    memory = jnp.sin(jnp.arange(B * 3 * pallas_programs.memory_features(cell)))
    return gradients_and_result(
        cell,
        params,
        X.astype(dtype),
        carry,
        memory.reshape(B, 3, -1).astype(dtype),
        key=jax.random.key(1) if cell.is_noisy else None,
        options=options,
        **arguments,
    )


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_equal_the_scan(name, interpreted, x64):
    """With padding, resets and the other direction, which all change the loop."""
    arguments = {
        "seq_lengths": jnp.array([5, 2]),
        "resets": jnp.arange(T) == jnp.array([[1], [2]]),
        "reverse": True,
    }
    options = ScanOptions(kernels="on", platform="tpu", **OPTIONS.get(name, {}))
    found = run(CELLS[name], options, **arguments)
    same(found, run(CELLS[name], SCAN, **arguments), 1e-10)


def test_the_windows_of_draw_equal_the_scan(interpreted, x64):
    """DRAW reads a patch of an image and writes one to a canvas, in every step."""
    rng = np.random.default_rng(0)

    def gradients(options):
        function, _ = pallas_programs.of_glimpse(B, side=6, points=2, options=options)
        return jax.jit(function)(*arguments)

    _, shapes = pallas_programs.of_glimpse(B, side=6)
    arguments = jax.tree.map(lambda a: 0.5 * rng.standard_normal(a.shape), shapes)
    same(gradients(PALLAS), gradients(SCAN), 1e-10)


@pytest.mark.slow
def test_no_races_and_no_unwritten_memory(monkeypatch):
    """Under the interpreter of TPUs, in whose memory NaN stands at the start."""
    checks = pltpu.InterpretParams(detect_races=True, uninitialized_memory="nan")
    monkeypatch.setattr(pallas, "INTERPRET", checks)
    found = run(LSTM, PALLAS, jnp.float32, reverse=True)
    same(found, run(LSTM, SCAN, jnp.float32, reverse=True), 2e-5)


@pytest.mark.slow
def test_bfloat16_weights_have_float32_sums(interpreted):
    """As close to the scan as bfloat16 is, in the dtypes of the scan."""
    found, expected = (run(LSTM, options, jnp.bfloat16) for options in (PALLAS, SCAN))
    types = functools.partial(jax.tree.map, lambda a: a.dtype)
    assert types(found) == types(expected)
    wide = functools.partial(jax.tree.map, np.float32)
    same(wide(found), wide(expected), 0.1)


def test_groups_of_rows_by_vmap(interpreted):
    """They are another axis of the grid, and every group has a carry of its own."""
    params, _ = problem(LSTM)

    def loss(params, options, groups):
        def outputs(x):
            return unroll(LSTM, params, x, options=options).outputs

        return jnp.sum(jnp.sin(jax.vmap(outputs)(X.reshape(groups, -1, T, D))))

    gradient = jax.jit(jax.value_and_grad(loss), static_argnums=(1, 2))
    same(gradient(params, PALLAS, 2), gradient(params, SCAN, 1), 1e-5)


def test_derivatives_of_a_gradient(interpreted):
    params, _ = problem(SIMPLE)

    def hessian_times_vector(options):
        def loss(params):
            return total(unroll(SIMPLE, params, X, options=options).outputs)

        return jax.jvp(jax.grad(loss), (params,), (jax.tree.map(jnp.cos, params),))[1]

    same(hessian_times_vector(PALLAS), hessian_times_vector(SCAN), 1e-4)


def numbers_and_booleans(h, x):
    """Both have other forms in a kernel, and may stand side by side in a body."""
    numbers = jax.lax.iota(h.dtype, h.shape[-1])
    is_large = (x[:, :1, 0] > 0).reshape(-1) & jnp.broadcast_to(True, (B,))
    return jnp.where(is_large[:, None, None], h + numbers, h * x), h


def reshaped(shape, h, x):
    y = (h * x).reshape(B, *shape)
    return jnp.cos(y).reshape(h.shape), y


SHAPES = [(6, 2), (12,), (3, 4), (2, 2, 3), (4, 3, 1)]
BODIES = [numbers_and_booleans, *(functools.partial(reshaped, s) for s in SHAPES)]


def test_a_body_with_operations_that_kernels_lack(interpreted):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((T, B, 4, 3)), jnp.float32)

    def results(scan):
        return [scan(body, x[0], x) for body in BODIES]

    same(jax.jit(results, static_argnums=0)(pallas.scan), results(jax.lax.scan), 1e-6)


def test_a_kernel_may_use_what_its_weights_need(interpreted):
    """By default it may use 16 MiB of the vector memory."""
    weights, x = jnp.zeros((2048, 2048)), jnp.zeros((T, B, 2048))

    def run(x):
        return pallas.scan(lambda h, x: (h @ weights + x, h), x[0], x)

    limit = re.search(r"vmem_limit_bytes=(\d+)", str(jax.make_jaxpr(run)(x)))
    assert int(limit[1]) > weights.nbytes


def test_a_kernel_has_only_what_its_loop_reads(interpreted):
    """The gradient of x is a product after the loop, whose weight no step reads."""
    cell = LSTMCell(H, "none")
    params, x = shapes_of(cell, 3)[0], jax.ShapeDtypeStruct((B, T, 3), jnp.float32)

    def loss(x, params):
        return unroll(cell, params, x, options=PALLAS).outputs.sum()

    found = equations(jax.make_jaxpr(jax.grad(loss))(x, params))
    forward, backward = (
        [v.aval.shape for v in e.invars]
        for e in found
        if e.primitive.name == "pallas_call"
    )
    for shape in (params["w_x"].shape, (T, B, 3)):
        assert shape in forward
        assert shape not in backward
    assert params["w_h"].shape in backward


# Where there can be no kernel


def sorting_step(dot, params, h, x, context):
    return jnp.sort(dot("w", h) + x), None


def run_sorting(options):
    x, weights = jnp.ones((T, B, D)), {"w": jnp.ones((D, D))}
    return scan(sorting_step, weights, (), x[0], x, options=options).outputs


def traced(units, shape):
    """A kernel of a cell, without its numbers."""
    cell = LSTMCell(units, "none")
    params, x = shapes_of(cell)[0], jax.ShapeDtypeStruct(shape, jnp.float32)
    return jax.eval_shape(functools.partial(unroll, cell, options=PALLAS), params, x)


@pytest.mark.parametrize(
    ("reason", "program"),
    [
        ("sort", functools.partial(run_sorting, PALLAS)),
        ("MiB of vector memory", functools.partial(traced, 4096, (B, T, D))),
        ("there are no steps, or no rows", functools.partial(traced, 8, (0, T, D))),
        ("there are no steps, or no rows", functools.partial(traced, 8, (B, 0, D))),
    ],
)
def test_the_reason_against_a_kernel_is_named(reason, program):
    with refused("kernels='on' cannot be used here", reason, error=ValueError):
        program()


def test_a_choice_goes_to_the_scan():
    """Without a word, where there is no TPU or no kernel."""
    params, _ = problem(SIMPLE)

    def has_kernel(function, options):
        traced = jax.jit(functools.partial(function, options)).trace()
        text = traced.lower(lowering_platforms=("tpu",)).as_text()
        return "tpu_custom_call" in text

    def outputs(options):
        return unroll(SIMPLE, params, X, options=options).outputs

    assert not has_kernel(outputs, AUTO_ON_TPU)
    with answering(kernel_where_it_can):
        assert has_kernel(outputs, AUTO_ON_TPU)
        assert not has_kernel(outputs, ScanOptions(kernels="auto"))
        assert not has_kernel(run_sorting, AUTO_ON_TPU)
        same(run_sorting(AUTO_ON_TPU), run_sorting(SCAN))


# Compiled for TPUs


@pytest.mark.nightly
@pytest.mark.parametrize("kind", sorted(pallas_programs.TOPOLOGIES))
def test_kernels_compile(kind):
    """Forward and backward, at sizes that fill the tiles of a TPU and that do not."""
    assert len(compilers.answer("pallas_programs", kind)) >= 2
