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

from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from experiments.handwriting.window import WindowCell
from lnrepro.functional import (
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    scan,
    stack,
    unroll,
    variational_dropout,
    zoneout,
)
from lnrepro.functional.fast import pallas
from tests.functional import pallas_programs

B, T, D, H = 4, 3, 6, 8
PALLAS, SCAN = ScanOptions(kernels="on"), ScanOptions()
NORMS = ("none", "layer", "rms", "batch", "weight")
QUICK = {
    "lstm": LSTMCell(H, "layer", learned_carry=True),
    "gru_before": GRUCell(H, "layer", reset="before"),
    "attention": AttentionCell(H, memory_features=5),
}
SLOW = {
    **{f"lstm_{norm}": LSTMCell(H, norm) for norm in (*NORMS, "layer_cell")},
    **{f"gru_{norm}": GRUCell(H, norm) for norm in NORMS},
    **{f"simple_{norm}": SimpleCell(H, norm) for norm in NORMS},
    "peephole": LSTMCell(H, "layer", peephole=True, inner_bias=True, gradient_clip=0.1),
    "joint": LSTMCell(H, "layer", norm_site="joint", cell_norm="carry"),
    "dreamer": DreamerGRUCell(H, "layer"),
    "dreamer_v3": DreamerBlockGRUCell(
        H, hidden_features=4, input_sizes=(4, 2), blocks=2
    ),
    "recurrent_dropout": LSTMCell(H, "layer", recurrent_dropout=0.3),
    "zoneout": zoneout(LSTMCell(H, "layer"), 0.3, 0.3),
    "variational": variational_dropout(GRUCell(H, "layer"), 0.3, 0.3),
    "stack": stack(LSTMCell(H, "layer"), SimpleCell(6, "none"), skip="graves"),
    "residual": stack(LSTMCell(H, "none"), GRUCell(H, "none"), skip="residual"),
    "projected": ProjectedLSTMCell(H, hidden=6),
    "window": WindowCell(LSTMCell(H, "layer"), 5, 2, -1.0),
}
CASES = [
    *(pytest.param(cell, id=name) for name, cell in QUICK.items()),
    *(
        pytest.param(cell, id=name, marks=pytest.mark.slow)
        for name, cell in SLOW.items()
    ),
]


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels run by Pallas' interpreter."""
    monkeypatch.setattr(pallas, "INTERPRET", True)


def same(a, b, tolerance=1e-10):
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance),
        a,
        b,
    )


def run(cell, options, dtype=jnp.float64, **arguments):
    """The result of `unroll`, and the gradients of all that it reads."""
    rng = np.random.default_rng(0)
    params = cell.init(jax.random.key(0), D, dtype)
    params = jax.tree.map(
        lambda a: a + jnp.asarray(0.2 * rng.standard_normal(a.shape), dtype), params
    )
    x = jnp.asarray(rng.standard_normal((B, T, D)), dtype)
    memory = jnp.asarray(rng.standard_normal((B, 7, 5)), dtype)
    key = jax.random.key(1) if cell.is_noisy else None

    def loss(params, x, memory, carry):
        result = unroll(
            cell,
            params,
            x,
            memory=memory,
            key=key,
            initial_carry=carry,
            options=options,
            **arguments,
        )
        parts = [jnp.sum(jnp.sin(a)) for a in jax.tree.leaves(result)]
        return sum(parts), result

    carry = jax.tree.map(lambda a: a + 0.3, cell.initial_carry(params, x[:, 0]))
    gradient = jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True)
    return jax.jit(gradient)(params, x, memory, carry)


@pytest.mark.parametrize("cell", CASES)
def test_values_and_gradients_equal_the_scan(cell, interpreted):
    """With padding, resets and the other direction, which all change the loop."""
    arguments = {
        "seq_lengths": jnp.array([3, 0, 2, 1]),
        "resets": jnp.arange(T) == jnp.array([[1], [0], [2], [1]]),
        "reverse": True,
        "return_carries": True,
    }
    with jax.enable_x64(True):
        same(run(cell, PALLAS, **arguments), run(cell, SCAN, **arguments))


def test_the_windows_of_draw_equal_the_scan(interpreted):
    """DRAW reads a patch of an image and writes one to a canvas, in every step."""
    rng = np.random.default_rng(0)

    def gradients(options):
        function, _ = pallas_programs.of_glimpse(B, side=6, points=2, options=options)
        return jax.jit(function)(*arguments)

    with jax.enable_x64(True):
        _, shapes = pallas_programs.of_glimpse(B, side=6)
        arguments = jax.tree.map(
            lambda a: jnp.asarray(0.5 * rng.standard_normal(a.shape)), shapes
        )
        same(gradients(PALLAS), gradients(SCAN))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"save": "carries"}, {"chunk": 1}])
def test_other_options_equal_the_scan(options, interpreted):
    with jax.enable_x64(True):
        expected = run(QUICK["lstm"], SCAN)
        same(run(QUICK["lstm"], ScanOptions(kernels="on", **options)), expected)


@pytest.mark.slow
def test_no_races_and_no_unwritten_memory(monkeypatch):
    """Under the interpreter of TPUs, in whose memory NaN stands at the start."""
    checks = pltpu.InterpretParams(detect_races=True, uninitialized_memory="nan")
    monkeypatch.setattr(pallas, "INTERPRET", checks)
    found = run(QUICK["lstm"], PALLAS, jnp.float32, reverse=True)
    same(found, run(QUICK["lstm"], SCAN, jnp.float32, reverse=True), 2e-5)


def test_bfloat16_weights_have_float32_sums(interpreted):
    """As close to the scan as bfloat16 is, in the dtypes of the scan."""
    cell = LSTMCell(H, "layer")
    found, expected = (run(cell, options, jnp.bfloat16) for options in (PALLAS, SCAN))
    types = functools.partial(jax.tree.map, lambda a: a.dtype)
    assert types(found) == types(expected)
    wide = functools.partial(jax.tree.map, lambda a: np.asarray(a, np.float32))
    same(wide(found), wide(expected), 0.1)


def test_groups_of_rows_by_vmap(interpreted):
    """They are another axis of the grid, and every group has a carry of its own."""
    cell = LSTMCell(H, "layer")
    params = cell.init(jax.random.key(0), D)
    x = jax.random.normal(jax.random.key(1), (B, T, D))

    def loss(params, options, groups):
        def outputs(x):
            return unroll(cell, params, x, options=options).outputs

        return jnp.sum(jnp.sin(jax.vmap(outputs)(x.reshape(groups, -1, T, D))))

    gradient = jax.jit(jax.value_and_grad(loss), static_argnums=(1, 2))
    same(gradient(params, PALLAS, 2), gradient(params, SCAN, 1), 1e-5)


def test_derivatives_of_a_gradient(interpreted):
    cell = SimpleCell(H, "layer")
    params = cell.init(jax.random.key(0), D)
    x = jax.random.normal(jax.random.key(1), (B, T, D))

    def hessian_times_vector(options):
        def loss(params):
            return jnp.sum(jnp.sin(unroll(cell, params, x, options=options).outputs))

        return jax.jvp(jax.grad(loss), (params,), (jax.tree.map(jnp.cos, params),))[1]

    same(hessian_times_vector(PALLAS), hessian_times_vector(SCAN), 1e-4)


def test_a_body_with_numbers_of_units_and_reshaped_booleans(interpreted):
    """Both have other forms in a kernel, and may stand side by side in a body."""

    def body(h, x):
        numbers = jax.lax.iota(h.dtype, h.shape[-1])
        is_large = (x[:, :1] > 0).reshape(-1)
        return jnp.where(is_large[:, None], h + numbers, h * x), h

    x = jnp.asarray(np.random.default_rng(0).standard_normal((T, B, D)), jnp.float32)
    same(pallas.scan(body, x[0], x), jax.lax.scan(body, x[0], x), 1e-6)


@pytest.mark.parametrize("shape", [(6, 2), (12,), (3, 4), (2, 2, 3), (4, 3, 1)])
def test_a_body_that_reshapes_units(shape, interpreted):
    def body(h, x):
        y = (h * x).reshape(B, *shape)
        return jnp.cos(y).reshape(h.shape), y

    x = jnp.asarray(np.random.default_rng(0).standard_normal((T, B, 4, 3)), jnp.float32)
    same(pallas.scan(body, x[0], x), jax.lax.scan(body, x[0], x), 1e-6)


def test_a_kernel_may_use_what_its_weights_need(interpreted):
    """By default it may use 16 MiB of the vector memory."""
    weights = jnp.zeros((2048, 2048))
    x = jnp.zeros((T, B, 2048))
    text = str(
        jax.make_jaxpr(
            lambda: pallas.scan(lambda h, x: (h @ weights + x, h), x[0], x)
        )()
    )
    limit = re.search(r"vmem_limit_bytes=(\d+)", text)
    assert int(limit[1]) > weights.nbytes


# Where there can be no kernel


def sorting_step(dot, params, h, x, context):
    return jnp.sort(dot("w", h) + x), None


def run_sorting(options, units=D):
    x = jnp.ones((T, B, units))
    weights = {"w": jnp.ones((units, units))}
    return scan(sorting_step, weights, (), x[0], x, options=options).outputs


def test_operations_that_mosaic_lacks_are_named():
    with pytest.raises(ValueError, match=r"cannot be used here: Pallas: .*sort") as e:
        run_sorting(PALLAS)
    assert "\n" not in str(e.value)


def test_too_large_weights_are_named(interpreted):
    cell = LSTMCell(4096, "none")
    params = jax.eval_shape(lambda: cell.init(jax.random.key(0), D))
    x = jax.ShapeDtypeStruct((B, T, D), jnp.float32)
    with pytest.raises(ValueError, match=r"MiB of vector memory, and there are 128"):
        jax.eval_shape(lambda p, x: unroll(cell, p, x, options=PALLAS), params, x)


def test_a_choice_goes_to_the_scan():
    """Without a word, where there is no TPU or no kernel."""
    same(run_sorting(ScanOptions(kernels="auto")), run_sorting(SCAN))
    text = lowered_for_tpu(functools.partial(run_sorting, ScanOptions(kernels="auto")))
    assert "tpu_custom_call" not in text


def lowered_for_tpu(function):
    return jax.jit(function).trace().lower(lowering_platforms=("tpu",)).as_text()


def test_the_platform_of_the_lowering_chooses():
    cell = SimpleCell(H, "layer")
    params = cell.init(jax.random.key(0), D)

    def outputs():
        x = jnp.ones((B, T, D))
        return unroll(cell, params, x, options=ScanOptions(kernels="auto")).outputs

    assert "tpu_custom_call" in lowered_for_tpu(outputs)
    assert "tpu_custom_call" not in jax.jit(outputs).lower().as_text()


def test_autodiff_is_refused():
    with pytest.raises(ValueError, match="kernels='on' cannot be used with backward"):
        ScanOptions(kernels="on", backward="autodiff")


# Compiled for TPUs


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(pallas_programs.TOPOLOGIES))
def test_kernels_compile(kind):
    """Forward and backward, at sizes that fill the tiles of a TPU and that do not."""
    failed = pallas_programs.compile_in_a_process(kind)
    if failed is None:
        pytest.skip("the compilers are not installed: run scripts/accelerators.sh")
    assert failed == []
