"""The scan as one CUDA kernel equals the scan, on a CPU where each thread is a fiber.

Values and gradients are compared where g++ is installed, and races are looked for.
Kernels are compiled for an H100 where scripts/accelerators.sh has put the compilers. No
test runs on a GPU.
"""

import functools
import re
import subprocess
import sys
import types
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, PartitionSpec

from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from lnrepro.functional import (
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    runs_as,
    scan,
    scan_options,
    stack,
    unroll,
    variational_dropout,
    zoneout,
)
from lnrepro.functional.fast import disk_cache
from lnrepro.functional.fast.gpu import driver, fit, launch, nvrtc, text
from lnrepro.functional.fast.gpu import kernel as layout
from lnrepro.functional.fast.kernels import Implementation, watched
from lnrepro.functional.fast.tuning import answering, kernel_where_it_can
from tests.functional import compilers, gpu_programs, made_up_gpu
from tests.functional.programs import (
    drawn,
    gradients_and_result,
    relative_error,
    same,
    shapes_of,
)
from tests.refused import refused

KERNEL = ScanOptions(kernels="on", platform="gpu")
AUTO = ScanOptions(kernels="auto", platform="gpu")
SCAN = ScanOptions(platform="gpu")
# Sizes that fill neither the rows of a cluster nor the units of its blocks.
B, T, D, H = 9, 3, 5, 37
RNG = np.random.default_rng(0)
X = RNG.standard_normal((B, T, D)).astype(np.float32)
MASKS = {"seq_lengths": np.arange(B) % T + 1, "resets": RNG.random((B, T)) < 0.3}
LSTM, PLAIN_GRU = LSTMCell(H, "layer"), GRUCell(H, "none")
SMALL = SimpleCell(8, "layer")


class Case(NamedTuple):
    """A cell, how its kernel runs, and how many blocks and threads it has."""

    cell: Any
    arguments: Any = types.MappingProxyType({})
    seed: int = 0
    gpu: layout.Device = layout.Device()
    batch: int = B
    blocks: int = 4  # Two clusters of two blocks.
    threads: int = 256
    tolerance: float = 1e-5
    registers: Any = None  # Of a thread, in place of `fit.REGISTERS`.


CASES = {
    "lstm": Case(LSTM, seed=1),
    "lstm_masks": Case(LSTM, MASKS | {"reverse": True}, seed=2),
    "lstm_joint": Case(LSTMCell(H, norm_site="joint", cell_norm="carry")),
    "lstm_rms": Case(LSTMCell(H, "rms", peephole=True, gradient_clip=0.5)),
    "lstm_layer_cell": Case(LSTMCell(H, "layer_cell")),
    "lstm_none": Case(LSTMCell(H, "none", learned_carry=True)),
    "gru_masks": Case(GRUCell(H, "layer"), MASKS),
    "gru_none": Case(PLAIN_GRU, seed=1),
    "gru_none, another order": Case(PLAIN_GRU, seed=2),
    "gru_before": Case(GRUCell(H, "rms", reset="before")),
    "dreamer": Case(DreamerGRUCell(H, "layer")),
    "zoneout": Case(zoneout(LSTM, 0.2, 0.1), {"key": jax.random.key(3)}),
    "dropout": Case(variational_dropout(LSTM, 0.2, 0.3), {"key": jax.random.key(3)}),
    "projected": Case(ProjectedLSTMCell(H, hidden=2 * H), tolerance=3e-5),
    "stack": Case(stack(LSTM, LSTM)),
    "eight blocks": Case(LSTMCell(131, "layer"), seed=1, batch=3, blocks=8),
    # Four cores hold two clusters of two blocks, and none is counted on.
    "sixteen rows": Case(LSTM, {}, 1, layout.Device(cores=4), blocks=2, threads=512),
    # Weights are in registers, in shared memory, and read in every step.
    "three places": Case(
        LSTM, {}, 1, layout.Device(shared=16 * 1024), registers={(8, 1): 8}
    ),
    # Without clusters a block has all units.
    "sm_80": Case(LSTMCell(64, "layer"), {}, 1, gpu_programs.GPUS["sm_80"], blocks=2),
    "sm_89": Case(GRUCell(128, "layer"), {}, 1, gpu_programs.GPUS["sm_89"], blocks=2),
}


@pytest.fixture
def hopper(monkeypatch):
    """A machine that has a GPU and its compiler, as far as the tracing can tell."""
    made_up_gpu.trace_kernels(monkeypatch)


@pytest.fixture
def on_cpu(monkeypatch):
    """Run kernels on this CPU; call it with a seed, and it returns the kernels."""
    return functools.partial(made_up_gpu.run_kernels, monkeypatch)


def problem(cell, batch=B, dtype=jnp.float32, seed=1):
    """Parameters, inputs and a first carry."""
    params, carry = shapes_of(cell, D, dtype, rows=batch)
    return drawn(params, seed), X[:batch].astype(dtype), drawn(carry, seed + 1)


def both(cell, arguments, **sizes):
    """What the kernel and the scan compute: gradients and results."""
    for options in (KERNEL, SCAN):
        jax.clear_caches()
        yield gradients_and_result(
            cell, *problem(cell, **sizes), options=options, **arguments
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_equal_the_scan(name, on_cpu, monkeypatch):
    """Blocks and warps run at random speeds; messages arrive late and out of order."""
    case = CASES[name]
    monkeypatch.setattr(layout, "device", lambda: case.gpu)
    monkeypatch.setattr(fit, "REGISTERS", case.registers or fit.REGISTERS)
    kernels = on_cpu(case.seed)
    same(*both(case.cell, case.arguments, batch=case.batch), case.tolerance)
    assert len(kernels) == 2
    has_clusters = case.gpu.has_clusters
    for kernel in kernels:
        assert (kernel.blocks, kernel.threads) == (case.blocks, case.threads)
        assert kernel.architecture == ("compute_90" if has_clusters else "compute_80")
        assert kernel.behind_l2 > 0 or not case.registers


@pytest.fixture
def change(monkeypatch):
    """Change the source of kernels: change(source -> source)."""
    source = text.source

    def start(function):
        monkeypatch.setattr(text, "source", lambda *words: function(source(*words)))

    return start


@pytest.mark.slow
def test_a_race_is_found(on_cpu, change):
    """Without a norm, blocks that are ahead overwrite what others still read."""
    buffers = r"(Product<float, \d, \d, \d, )2"
    change(functools.partial(re.sub, buffers, r"\g<1>1"))
    on_cpu(seed=2)
    found, expected = both(PLAIN_GRU, {})
    with pytest.raises(AssertionError):
        same(found, expected, 1e-3)


@pytest.mark.slow
def test_a_wait_has_an_end(on_cpu, change):
    """Where a message is lost, the kernel ends, and its cluster's results are NaN."""
    line = "sm.sums.expect_step(me);"
    # As if row 0 of the first block were to get one more message in step 1.
    fault = "if (t == 1 && cluster_id() == 0 && tid == 0 && me.block == 0)"
    fault += " sm.sums.bar[0][0].pending += 16;"
    change(lambda source: source.replace(line, f"{line} {fault}"))
    on_cpu(seed=0)
    params, x, _ = problem(LSTM)
    outputs = unroll(LSTM, params, x, options=KERNEL).outputs
    assert np.isnan(outputs[0, 1:]).all()
    # Neither the step before, nor the rows of the other cluster.
    assert np.isfinite(outputs[:, 0]).all()
    assert np.isfinite(outputs[8:]).all()


def test_gradients_of_gains_are_added_up_in_the_kernel(hopper, monkeypatch):
    run = mock.Mock(wraps=launch.run)
    monkeypatch.setattr(launch, "run", run)

    def shapes():
        """Of a row of what the backward pass adds up, and of what it stacks."""
        jax.clear_caches()
        step = functools.partial(gradients_and_result, LSTM, options=KERNEL)
        jax.eval_shape(step, *problem(LSTM))
        found = run.call_args.args[0].program.results
        kinds = ("sum", "stack")
        return [sorted(a.row.shape for a in found if a.what == kind) for kind in kinds]

    # Of the bias and the recurrent gain, and of the cell's gain and bias. The gradients
    # of the gates and of the product of h are read by the large products.
    assert shapes() == [[(H,), (H,), (4 * H,), (4 * H,)], [(4 * H,), (4 * H,)]]
    # Where weights are read in every step, they need the memory.
    monkeypatch.setattr(layout, "device", lambda: layout.Device(shared=16 * 1024))
    assert shapes() == [[], [(H,), (H,), (4 * H,), (4 * H,), (4 * H,)]]


@pytest.mark.slow
def test_bfloat16_is_as_exact_as_in_the_scan(on_cpu):
    """Carries and sums are in float32, and dtypes are those of the scan."""
    on_cpu(seed=0)
    errors = []
    for seed in range(4):
        arguments = problem(LSTM, dtype=jnp.bfloat16, seed=seed)
        wide = jax.tree.map(lambda a: a.astype(np.float32), arguments)
        exact = gradients_and_result(LSTM, *wide, options=SCAN)
        results = [
            gradients_and_result(LSTM, *arguments, options=options)
            for options in (KERNEL, SCAN)
        ]
        dtypes = [jax.tree.map(lambda a: a.dtype, found) for found in results]
        assert dtypes[0] == dtypes[1]
        errors.append([relative_error(found, exact) for found in results])
    of_kernel, of_scan = np.mean(errors, 0)
    # They round differently, and neither is better.
    assert 0.005 < of_kernel < 1.04 * of_scan


@pytest.mark.slow
def test_what_is_not_finite_stays_so(on_cpu):
    """In the row where it came in, and in no other."""

    def step(dot, params, h, x, context):
        h = jnp.clip(dot("w", h) + x, -2.0, 2.0)
        h = h**3 * (0.5 + h**2) ** -2
        return jnp.maximum(h, jnp.minimum(jnp.sin(x), 0.5)), None

    on_cpu(seed=0)
    x = jnp.asarray(RNG.standard_normal((T, B, H))).at[1, 3, 5].set(jnp.nan)
    found, expected = (run_step(step, options, x) for options in (KERNEL, SCAN))
    assert np.isnan(expected).any(2).sum() == 2
    same(found, expected, 1e-5)


# Transformations


def loss(options, params, x, **masks):
    result = unroll(SMALL, params, x, options=options, **masks)
    return jnp.sum(jnp.sin(result.outputs)) + jnp.sum(result.carry)


def equal_kernels(function, *arguments):
    """Check that a function of (loss, *arguments) has one value with any options."""
    losses = [functools.partial(loss, options) for options in (KERNEL, SCAN)]
    found = [jax.jit(functools.partial(function, f))(*arguments) for f in losses]

    def compare(a, b):
        # Sums of large numbers round by their size.
        atol = 1e-5 * np.abs(b).max(initial=1)
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)

    jax.tree.map(compare, *found)


@pytest.mark.slow
def test_vmap_over_weights_is_one_kernel(on_cpu):
    """As seeds have it, around and inside of `vmap` over rows, with own rows or not."""
    kernels = on_cpu(seed=0)
    params, x, _ = problem(SMALL)
    many = jax.tree.map(lambda a: np.stack([a, 2 * a, 3 * a]), params)
    x = np.stack([x, 2 * x])

    def gradients(f, many, x, own):
        gradient = jax.value_and_grad(f, (0, 1))
        outer, inner = jax.vmap(gradient, (None, 0)), jax.vmap(gradient, (0, None))
        return (
            jax.vmap(outer, (0, None))(many, x),
            jax.vmap(outer)(many, own),
            jax.vmap(inner, (None, 0))(many, x),
            jax.vmap(jax.vmap(gradient), (None, 1))(many, own),
        )

    equal_kernels(gradients, many, x, np.stack([x, -x, 3 * x]))
    assert {k.results[0].shape for k in kernels} == {(3, 18, 8)}


@pytest.mark.slow
def test_batch_axes_are_rows_of_one_kernel(on_cpu):
    """And second derivatives are those of a loop of XLA."""
    kernels = on_cpu(seed=0)
    params, x, _ = problem(SMALL, batch=6)
    x = x.reshape(2, 3, T, D)
    masks = {"seq_lengths": np.array([[1, 2, 3], [3, 0, 2]]), "resets": x[..., 0] > 0.5}

    def gradients(f, params, x):
        of_axes = jax.grad(functools.partial(f, **masks), (0, 1))(params, x)
        # The tangents of the gradient, along the parameters.
        second = jax.jvp(lambda p: jax.grad(f)(p, x), (params,), (params,))
        return of_axes, jax.vmap(jax.grad(f), (None, 0))(params, x), second

    equal_kernels(gradients, params, x)
    assert {k.results[0].shape for k in kernels} == {(1, 6, 8)}


@pytest.mark.slow
def test_each_device_has_a_kernel_of_its_rows(on_cpu):
    """Nothing but gradients is sent between devices. Compiled for four CPUs."""
    kernels = on_cpu(seed=0)
    params, x, _ = problem(SMALL, batch=8)
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    none, rows = PartitionSpec(), PartitionSpec("x")
    f, expected = functools.partial(loss, KERNEL), jax.grad(loss, 1)(SCAN, params, x)
    for check_vma in (False, True):
        split = jax.shard_map(
            lambda params, x: jax.lax.psum(f(params, x), "x"),
            mesh=mesh,
            in_specs=(none, rows),
            out_specs=none,
            check_vma=check_vma,
        )
        same(jax.jit(jax.grad(split))(params, x), expected, 1e-5)
    assert {k.results[0].shape for k in kernels} == {(1, 2, 8)}
    places = jax.NamedSharding(mesh, none), jax.NamedSharding(mesh, rows)
    program = jax.jit(jax.grad(f), in_shardings=places).lower(params, x).compile()
    sends = "(all-[a-z]+|collective-permute|reduce-scatter)[(]"
    assert set(re.findall(sends, program.as_text())) == {"all-reduce"}
    assert {k.results[0].shape for k in kernels[-2:]} == {(1, 2, 8)}


def test_a_program_runs_where_there_is_no_kernel(hopper):
    """Traced for a GPU, it has the loop of XLA on a CPU and in what is exported."""

    def composed(options, params, x):
        f = jax.checkpoint(functools.partial(loss, options))

        def body(total, x):
            return total + jax.lax.cond(total > 0, f, f, params, x), None

        gradient = jax.vmap(jax.vmap(jax.grad(f, (0, 1)), (None, 0)), (0, None))
        many = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), params)
        return jax.lax.scan(body, 0.0, x)[0], gradient(many, x)

    params, x, _ = problem(SMALL, batch=4)
    x = np.stack([x, 2 * x])
    expected = jax.jit(functools.partial(composed, SCAN))(params, x)
    function = jax.jit(functools.partial(composed, KERNEL))
    traced = function.trace(params, x)
    assert "xla.gpu.ptx" in traced.lower(lowering_platforms=("cuda",)).as_text()
    same(function(params, x), expected, 1e-5)
    exported = export.export(function, platforms=("cuda",))(params, x)
    assert "ptx" not in exported.mlir_module()


# Where there can be no kernel


def text_of(cell, options=KERNEL, shape=(B, T, D), dtype=jnp.float32, memory=None):
    """The traced equations of outputs."""
    params, _ = shapes_of(cell, D, dtype)
    x = jax.ShapeDtypeStruct(shape, dtype)
    function = functools.partial(unroll, cell, options=options, memory=memory)
    return str(jax.make_jaxpr(lambda p, x: function(p, x).outputs)(params, x))


def sorting_step(dot, params, h, x, context):
    return jnp.sort(dot("w", h) + x), None


def rolling_step(dot, params, h, x, context):
    return dot("w", jnp.roll(h, 1, -1)) + x, None


def run_step(step, options=KERNEL, x=None):
    x = jnp.ones((T, B, H)) if x is None else x
    weights = {"w": jnp.ones((H, H)) / H}
    return scan(step, weights, (), jnp.ones((B, H)), x, options=options).outputs


def symbolic():
    (batch,) = export.symbolic_shape("b")
    return text_of(LSTM, shape=(batch, T, D))


def precise():
    with jax.default_matmul_precision("highest"):
        return text_of(LSTM)


def explicit():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        params, x, _ = problem(SMALL, batch=8)
        x = jax.device_put(x, jax.NamedSharding(mesh, PartitionSpec("x")))
        return jax.eval_shape(lambda x: unroll(SMALL, params, x, options=KERNEL), x)


REFUSED = {
    "a sum over the batch": lambda: text_of(LSTMCell(H, "batch")),
    "the operation sort": lambda: run_step(sorting_step),
    "units that are not in": lambda: run_step(rolling_step),
    "a carry of the shapes [(37,)": lambda: text_of(LSTM, shape=(T, D)),
    "at least 4": lambda: text_of(LSTMCell(3, "none")),
    "its weights": lambda: text_of(LSTMCell(1024, "layer")),
    "a precision other than": precise,
    "symbolic": symbolic,
    "no steps, or no rows": lambda: text_of(LSTM, shape=(0, T, D)),
    "Explicit axes": explicit,
    "this is traced for cpu": lambda: text_of(LSTM, ScanOptions(kernels="on")),
    "a product of": lambda: text_of(
        AttentionCell(H, memory_features=5), memory=jnp.ones((B, 3, 5))
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_the_reason_against_a_kernel_is_named(reason, hopper):
    with refused("kernels='on' cannot be used here", reason, error=ValueError):
        REFUSED[reason]()


def test_float64_is_named(hopper, x64):
    with refused("float64", error=ValueError):
        text_of(LSTM, dtype=jnp.float64)


# (major compute capability, CUDA of the driver, NVRTC)
MACHINES = {
    "this GPU is not of compute capability 8.0": (7, 12080, "there"),
    "the driver is one of CUDA 12.00": (8, 12000, "there"),
    "NVRTC is not installed": (9, 12010, None),
}


@pytest.mark.parametrize("words", MACHINES)
def test_a_machine_without_a_kernel_is_named(words, monkeypatch):
    capability, cuda, library = MACHINES[words]
    made_up_gpu.have(monkeypatch, made_up_gpu.device("this GPU"))
    monkeypatch.setattr(driver, "attribute", lambda number: capability)
    monkeypatch.setattr(driver, "version", lambda: cuda)
    monkeypatch.setattr(nvrtc, "library", lambda: library)
    with refused(words, error=ValueError):
        text_of(LSTM)
    assert words in runs_as(LSTM, D, steps=T, rows=B, platform="gpu")


class Driver:
    """NVIDIA's driver, as far as it is asked about an H200."""

    def __init__(self, holds, fails):
        self.holds, self.fails, self.calls = holds, fails, []

    def __getattr__(self, name):
        return functools.partial(self.called, name)

    def called(self, name, *arguments):
        self.calls.append(name)
        found = getattr(arguments[0], "_obj", None)
        if name == "cuDeviceGetAttribute":
            # The numbers are those of CUDA's header.
            found.value = H200[arguments[1]]
        if name == "cuOccupancyMaxActiveClusters":
            launch = arguments[2]._obj
            assert launch.attributes[0].value[0] == launch.grid[0]
            assert list(launch.block) == [256, 1, 1]
            found.value = self.holds
        return name == self.fails


# Attributes: multiprocessors, L2 cache, their threads, capability, shared memory.
H200 = {16: 132, 38: 50 * 2**20, 39: 2048, 75: 9, 97: 227 * 1024}


def layouts(cell, rows):
    """The layouts that the kernel of a cell can have, the usual one first."""
    with watched() as seen:
        text_of(cell, shape=(rows, T, D))
    return seen.layouts


@pytest.mark.parametrize(
    ("holds", "rows", "usual", "fails"),
    [
        (15, 120, (8, 8), ""),
        (15, 121, (8, 16), ""),
        (16, 128, (8, 8), ""),
        (0, 8, (1, 8), ""),
        # Then no clusters are counted on.
        (15, 8, (1, 8), "cuModuleLoadData"),
        (15, 8, (1, 8), "cuOccupancyMaxActiveClusters"),
        (15, 8, None, "cuInit"),
    ],
)
def test_the_driver_says_how_large_a_gpu_is(
    holds, rows, usual, fails, hopper, monkeypatch
):
    library = Driver(holds, fails)
    made_up_gpu.have(monkeypatch, made_up_gpu.device())
    monkeypatch.setattr(driver, "library", lambda: library)
    for name in ("attribute", "clusters"):
        monkeypatch.setattr(driver, name, getattr(driver, name).__wrapped__)
    cell = SimpleCell(256, "none")
    if usual is None:
        with refused("0 KiB of shared memory are too few", error=ValueError):
            layouts(cell, rows)
        return
    assert layout.device() == layout.Device()
    assert layouts(cell, rows)[0] == usual
    calls = " ".join(library.calls)
    for begin, end in [("PrimaryCtxRetain", "PrimaryCtxRelease"), ("Push", "Pop")]:
        assert calls.count(begin) == calls.count(end) > 0


def test_the_driver_reads_the_version_of_the_ptx(monkeypatch):
    hint = '\t.pragma "used_bytes_mask 0xff";\n'
    text = f"//\n.version 8.8\n.target sm_90\n{hint}ret;\n"

    def readable(cuda):
        monkeypatch.setattr(driver, "version", lambda: cuda)
        return nvrtc._readable(text, nvrtc._ptx_version())

    assert readable(12090) == readable(13000) == readable(99000) == text
    for cuda, version in [(12010, "8.1"), (12060, "8.5"), (0, "8.1")]:
        assert readable(cuda) == text.replace("8.8", version).replace(hint, "")


@pytest.mark.parametrize(("cell", "norms"), [(LSTM, 2), (PLAIN_GRU, 0)], ids=["2", "0"])
def test_a_norm_has_one_exchange(cell, norms, hopper, change):
    """With the mean of the cell; the products of centered weights have none."""
    sources = []
    change(lambda source: sources.append(source) or source)
    text_of(cell)
    assert ("wait_moments<" in sources[0]) == bool(norms)
    assert f"EXCHANGES = {norms};" in sources[0]


WEIGHTS = "exceeds the L2 cache, or 512 MiB"
TOO_FEW = "4 KiB of shared memory are too few"


@pytest.mark.parametrize(
    ("gpu", "units", "rows", "found"),
    [
        ("h100", 256, 128, [(8, 16), (4, 8), (8, 8)]),
        ("h100", 64, 64, [(2, 8), (1, 8)]),
        ("sm_89", 64, 2000, [(1, 16), (1, 8)]),
        ("sm_80", 128, 1024, [(1, 16), (1, 8)]),
        ("sm_80", 256, 1024, WEIGHTS),
        # Blocks of 128 units read 128 KiB each, of an L2 cache of 6 MiB or 72 MiB.
        ("sm_86", 128, 512, WEIGHTS),
        ("sm_86", 128, 128, [(1, 8)]),
        ("sm_89", 128, 512, [(1, 8)]),
        ("sm_89", 256, 64, WEIGHTS),  # 1 GB of local memory.
        ("tiny", 37, 8, TOO_FEW),
    ],
)
def test_a_device_decides_which_layouts_there_are(
    gpu, units, rows, found, hopper, monkeypatch
):
    """The first is the one to take without a measurement."""
    gpus = gpu_programs.GPUS | {
        "h100": layout.Device(),
        "tiny": layout.Device(shared=4 * 1024),
    }
    monkeypatch.setattr(layout, "device", lambda: gpus[gpu])
    cell = LSTMCell(units)
    if found in (WEIGHTS, TOO_FEW):
        with refused(found, error=ValueError):
            layouts(cell, rows)
    else:
        assert layouts(cell, rows) == found


def test_a_lane_may_have_more_than_two_units(hopper):
    """And the precision of the kernel has a name."""
    with jax.default_matmul_precision("tensorfloat32"):
        assert "recurrence_kernel" in text_of(LSTM)
    for cell in (SimpleCell(800), GRUCell(520)):
        assert "recurrence_kernel" in text_of(cell)


@pytest.mark.parametrize(
    ("steps", "rows", "chunk", "short"),
    [
        (64, 64, 64, 64),
        (64, 256, 64, 16),
        (300, 128, 300, 25),
        (10_000, 128, 2_500, 625),
        (70, 16384, 24, 16),
    ],
)
def test_long_sequences_are_few_chunks(steps, rows, chunk, short, hopper):
    """Shorter ones, where less is kept for the backward pass."""
    x = jax.ShapeDtypeStruct((steps, rows, 64), jnp.float32)
    weights = {"w_x": jax.ShapeDtypeStruct((64, 512), jnp.float32)}

    def backward_chunk(**options):
        options = ScanOptions(kernels="auto", platform="gpu", **options)
        way = Implementation(kernel=True)
        found = scan_options.form_for("gpu", x, steps, weights, options, way)
        return found.backward_chunk

    assert backward_chunk() == chunk
    assert backward_chunk(chunk=5) == 5
    assert backward_chunk(save="recurrent") == short


def test_ptx_is_kept_for_other_processes(tmp_path, monkeypatch):
    made = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        nvrtc, "_compiled", lambda source, *words: made.append(source) or "text"
    )
    for architecture in ("compute_90", "compute_90", "compute_80"):
        nvrtc.ptx.cache_clear()
        assert nvrtc.ptx("some", architecture) == "text"
    nvrtc.ptx.cache_clear()
    assert made == ["some", "some"]
    assert len([*disk_cache.folder().iterdir()]) == 2


def test_a_choice_goes_to_the_scan(hopper):
    """Without a word, where there is no kernel."""
    with answering(kernel_where_it_can):
        assert "recurrence_kernel" in text_of(LSTM, AUTO)
        same(run_step(sorting_step, AUTO), run_step(sorting_step, SCAN))


def test_who_asks_for_no_kernel_imports_none():
    code = """
import sys, jax
from lnrepro.functional import LSTMCell, ScanOptions, unroll
cell, options = LSTMCell(4), ScanOptions(platform="gpu")
params = jax.eval_shape(lambda: cell.init(jax.random.key(0), 3))
x = jax.ShapeDtypeStruct((2, 3, 3), "float32")
jax.eval_shape(lambda p, x: unroll(cell, p, x, options=options), params, x)
assert not [m for m in sys.modules if "fast.gpu" in m or "fast.tpu" in m]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# Compiled for an H100


# KiB of weights of an LN-LSTM of H 128 that a block reads in every step.
READ = {"sm_80": 64, "sm_86": 128, "sm_89": 128, "sm_90": 0, "sm_120": 0}


@pytest.mark.nightly
def test_kernels_compile():
    """Without spilled registers at the sizes of draw, and with few at others."""
    found = compilers.answer("gpu_programs")
    for name, usage in found["kernels"].items():
        assert usage["registers"] <= 255, name
        allowed = gpu_programs.SPILLED.get(name.partition(",")[0], 0)
        assert usage["spilled"] <= allowed, (name, usage)
    for gpu, read in READ.items():
        assert found["kernels"][f"lstm 64, {gpu}"]["behind_l2"] == 0
        assert found["kernels"][f"lstm 128, {gpu}"]["behind_l2"] == read * 1024
    for step, of_scan in found["steps"].values():
        assert step["kernels"] == 2
        # A sequence is one chunk.
        assert step["temporary"] <= 1.4 * of_scan["temporary"]
    assert found["refused"].startswith("NVRTC: recurrence.cu(1): error")
