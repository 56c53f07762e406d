"""The scan as one CUDA kernel equals the scan, on a CPU where each thread is a fiber.

Values and gradients are compared where g++ is installed, and races are looked for.
Kernels are compiled for an H100 where scripts/accelerators.sh has put the compilers. No
test runs on a GPU.
"""

import functools
import re
import shutil
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, PartitionSpec

from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from lnrepro.engine import provenance
from lnrepro.flax_modules import cast
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
from lnrepro.functional.fast import kept
from lnrepro.functional.fast.gpu import driver, fit, launch, nvrtc, text
from lnrepro.functional.fast.gpu import kernel as layout
from lnrepro.functional.fast.kernels import Way, watched
from lnrepro.functional.fast.tuning import answering, kernel_where_it_can
from tests.functional import gpu_programs
from tests.functional.programs import gradients_and_result, same, shifted
from tests.refused import refused

KERNEL = ScanOptions(kernels="on", platform="gpu")
AUTO = ScanOptions(kernels="auto", platform="gpu")
SCAN = ScanOptions(platform="gpu")
# Sizes that fill neither the rows of a cluster nor the units of its blocks.
B, T, D, H = 9, 3, 5, 37
RNG = np.random.default_rng(0)
MASKS = {
    "seq_lengths": jnp.arange(B) % T + 1,
    "resets": jnp.asarray(RNG.random((B, T)) < 0.3),
}
LSTM, PLAIN_GRU = LSTMCell(H, "layer"), GRUCell(H, "none")
CASES = {
    "lstm": (LSTM, {}),
    "lstm_masks": (LSTM, MASKS | {"reverse": True}),
    "lstm_joint": (LSTMCell(H, norm_site="joint", cell_norm="carry"), {}),
    "lstm_rms": (LSTMCell(H, "rms", peephole=True, gradient_clip=0.5), {}),
    "lstm_layer_cell": (LSTMCell(H, "layer_cell"), {}),
    "lstm_none": (LSTMCell(H, "none", learned_carry=True), {}),
    "gru_masks": (GRUCell(H, "layer"), MASKS),
    "gru_none": (PLAIN_GRU, {}),
    "gru_before": (GRUCell(H, "rms", reset="before"), {}),
    "simple": (SimpleCell(H, "layer"), {}),
    "dreamer": (DreamerGRUCell(H, "layer"), {}),
    "zoneout": (zoneout(LSTM, 0.2, 0.1), {"key": jax.random.key(3)}),
    "dropout": (variational_dropout(LSTM, 0.2, 0.3), {"key": jax.random.key(3)}),
    "projected": (ProjectedLSTMCell(H, hidden=2 * H), {}),
    "stack": (stack(LSTM, LSTM), {}),
}


@pytest.fixture
def hopper(monkeypatch):
    """A machine that has a GPU and its compiler, as far as the tracing can tell."""
    monkeypatch.setattr(nvrtc, "reason_against_device", lambda: None)
    monkeypatch.setattr(nvrtc, "ptx", lambda *words: "")


@pytest.fixture
def on_cpu(hopper, monkeypatch):
    """Run kernels on this CPU; call it with a seed, and it returns the kernels."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")

    def start(seed):
        kernels = []
        run = gpu_programs.run_on_cpu(seed, kernels)
        monkeypatch.setattr(launch, "call", run)
        monkeypatch.setattr(launch, "PLATFORMS", ["cuda", "cpu"])
        return kernels

    return start


def problem(cell, batch=B, steps=T, dtype=jnp.float32):
    """Parameters, inputs and a first carry."""
    rng = np.random.default_rng(1)
    params = shifted(cell.init(jax.random.key(0), D, dtype), 0.3)
    x = jnp.asarray(rng.standard_normal((batch, steps, D)), dtype)
    return params, x, shifted(cell.initial_carry(params, x[:, 0]), 0.5)


def both(cell, arguments, **sizes):
    """What the kernel and the scan compute: gradients and results."""
    for options in (KERNEL, SCAN):
        jax.clear_caches()
        yield gradients_and_result(
            cell, *problem(cell, **sizes), options=options, **arguments
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_equal_the_scan(name, on_cpu):
    kernels = on_cpu(seed=0)
    same(*both(*CASES[name]), 3e-5)
    assert len(kernels) == 2
    assert kernels[0].blocks == 4  # Two clusters of two blocks.


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("cell", [LSTM, PLAIN_GRU], ids=["lstm", "gru_none"])
def test_no_races(cell, seed, on_cpu):
    """Blocks and warps run at random speeds; messages arrive late and out of order."""
    on_cpu(seed)
    same(*both(cell, {}), 1e-5)


@pytest.mark.slow
def test_a_race_is_found(on_cpu, monkeypatch):
    """Without a norm, blocks that are ahead overwrite what others still read."""
    source = text.source

    def with_one_buffer(*arguments):
        return re.sub(r"(Product<float, \d, \d, \d, )2", r"\g<1>1", source(*arguments))

    monkeypatch.setattr(text, "source", with_one_buffer)
    on_cpu(seed=2)
    found, expected = both(PLAIN_GRU, {}, batch=5, steps=4)
    with pytest.raises(AssertionError):
        same(found, expected, 1e-3)


@pytest.mark.slow
def test_a_wait_has_an_end(on_cpu, monkeypatch):
    """Where a message is lost, the kernel ends, and its cluster's results are NaN."""
    source = text.source
    line = "sm.sums.expect_step(me);"
    # As if row 0 of the first block were to get one more message in step 1.
    fault = "if (t == 1 && cluster_id() == 0 && tid == 0 && me.block == 0)"
    fault += " sm.sums.bar[0][0].pending += 16;"

    def with_fault(*arguments):
        return source(*arguments).replace(line, f"{line} {fault}")

    monkeypatch.setattr(text, "source", with_fault)
    on_cpu(seed=0)
    params, x, _ = problem(LSTM)
    outputs = unroll(LSTM, params, x, options=KERNEL).outputs
    assert np.isnan(outputs[0, 1:]).all()
    # Neither the step before, nor the rows of the other cluster.
    assert np.isfinite(outputs[:, 0]).all()
    assert np.isfinite(outputs[8:]).all()


@pytest.mark.slow
def test_eight_blocks(on_cpu):
    kernels = on_cpu(seed=1)
    same(*both(LSTMCell(131, "layer"), {}, batch=3, steps=2), 1e-5)
    assert kernels[0].blocks == 8


@pytest.mark.slow
def test_sixteen_rows_equal_the_scan(on_cpu, monkeypatch):
    # Four cores hold two clusters of two blocks, and none is counted on.
    monkeypatch.setattr(layout, "device", lambda: layout.Device(cores=4))
    kernels = on_cpu(seed=1)
    same(*both(LSTM, {}), 1e-5)
    assert kernels[0].threads == 512


def test_gradients_of_gains_are_added_up_in_the_kernel(hopper, monkeypatch):
    loops, run, given = [], launch.run, problem(LSTM)

    def seen(loop, arguments):
        loops.append(loop)
        return run(loop, arguments)

    monkeypatch.setattr(launch, "run", seen)

    def shapes():
        """Of a row of what the backward pass adds up, and of what it stacks."""
        jax.clear_caches()
        step = functools.partial(gradients_and_result, LSTM, options=KERNEL)
        jax.eval_shape(step, *given)
        program = loops[-1].program
        found = [type.shape for type in program.types]
        count = len(program.carry)
        return sorted(found[count : program.once]), sorted(found[program.once :])

    # Of the bias and the recurrent gain, and of the cell's gain and bias. The gradients
    # of the gates and of the product of h are read by the large products.
    assert shapes() == ([(H,), (H,), (4 * H,), (4 * H,)], [(4 * H,), (4 * H,)])
    # Where weights are read in every step, they need the memory.
    monkeypatch.setattr(layout, "device", lambda: layout.Device(shared=16 * 1024))
    assert shapes() == ([], [(H,), (H,), (4 * H,), (4 * H,), (4 * H,)])


@pytest.mark.slow
def test_weights_are_in_all_places(on_cpu, monkeypatch):
    """In registers, in shared memory, and read in every step."""
    monkeypatch.setattr(fit, "REGISTERS", {(8, 1): 8})
    monkeypatch.setattr(layout, "device", lambda: layout.Device(shared=16 * 1024))
    kernels = on_cpu(seed=1)
    same(*both(LSTM, {}), 1e-5)
    assert kernels[0].on_chip > kernels[0].behind_l2 > 0


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "units"), [("sm_80", 64), ("sm_89", 128)])
@pytest.mark.parametrize("cell", [LSTMCell, GRUCell, SimpleCell])
def test_without_clusters_a_block_has_all_units(cell, units, gpu, on_cpu, monkeypatch):
    monkeypatch.setattr(layout, "device", lambda: gpu_programs.GPUS[gpu])
    kernels = on_cpu(seed=1)
    same(*both(cell(units, "layer"), {}, steps=2), 1e-5)
    assert {k.architecture for k in kernels} == {"compute_80"}
    assert kernels[0].blocks == 2


@pytest.mark.slow
def test_bfloat16_weights_have_float32_carries(on_cpu):
    """As close to the scan as bfloat16 is, in the dtypes of the scan."""
    on_cpu(seed=0)
    found, expected = both(LSTM, {}, dtype=jnp.bfloat16)
    dtypes = functools.partial(jax.tree.map, lambda a: a.dtype)
    assert dtypes(found) == dtypes(expected)
    wide = functools.partial(jax.tree.map, lambda a: np.asarray(a, np.float32))
    same(wide(found), wide(expected), 0.1)


@pytest.mark.slow
def test_bfloat16_products_are_as_exact_as_those_of_the_scan(on_cpu):
    """Of float32 parameters, as modules with dtype=bfloat16 have them."""
    on_cpu(seed=0)

    def gradients(options, dtype):
        def loss(params, x):
            x, params = cast(dtype, x, params)
            outputs = unroll(LSTM, params, x, options=options).outputs
            return jnp.sum(jnp.sin(outputs.astype(params["bias"].dtype)))

        return jax.jit(jax.grad(loss, (0, 1)))

    kernel, scan, exact = (
        gradients(options, dtype)
        for options, dtype in (
            (KERNEL, jnp.bfloat16),
            (SCAN, jnp.bfloat16),
            (SCAN, None),
        )
    )

    def error(found, exact):
        pairs = list(zip(*map(jax.tree.leaves, (found, exact)), strict=True))
        size = sum(np.sum(b**2) for _, b in pairs)
        return float(np.sqrt(sum(np.sum((a - b) ** 2) for a, b in pairs) / size))

    errors = []
    for seed in range(4):
        key, data = jax.random.split(jax.random.key(seed))
        arguments = LSTM.init(key, D), jax.random.normal(data, (B, 20, D))
        wide = jax.tree.map(lambda a: np.asarray(a, np.float64), arguments)
        with jax.enable_x64(True):
            wide = jax.tree.map(np.asarray, exact(*wide))
        errors.append([error(f(*arguments), wide) for f in (kernel, scan)])
    of_kernel, of_scan = np.mean(errors, 0)
    # They round differently, and neither is better.
    assert 0.02 < of_kernel < 1.04 * of_scan


@pytest.mark.slow
def test_what_is_not_finite_stays_so(on_cpu):
    """In the row where it came in, and in no other."""

    def step(dot, params, h, x, context):
        h = jnp.clip(dot("w", h) + x, -2.0, 2.0)
        return jnp.maximum(h, jnp.minimum(jnp.sin(x), 0.5)), None

    on_cpu(seed=0)
    x = jnp.asarray(RNG.standard_normal((T, B, H))).at[1, 3, 5].set(jnp.nan)
    found, expected = (run_step(step, options, x) for options in (KERNEL, SCAN))
    assert np.isnan(expected).any(2).sum() == 2
    same(found, expected, 1e-5)


SMALL = SimpleCell(8, "layer")


def loss(options, params, x):
    return jnp.sum(jnp.sin(unroll(SMALL, params, x, options=options).outputs))


@pytest.mark.slow
def test_vmap_makes_one_kernel_of_more_rows(on_cpu):
    kernels = on_cpu(seed=0)
    params, x, _ = problem(SMALL, batch=12)
    x = x.reshape(3, 4, T, D)

    def gradient(options):
        def total(params):
            return jnp.sum(jax.vmap(lambda x: loss(options, params, x))(x))

        return jax.jit(jax.value_and_grad(total))(params)

    same(gradient(KERNEL), gradient(SCAN), 1e-5)
    assert kernels[-1].results[0].shape == (1, 12, 8)


@pytest.mark.slow
@pytest.mark.parametrize("own_x", [False, True], ids=["shared", "own"])
def test_vmap_over_weights_is_one_kernel(own_x, on_cpu):
    """As seeds have it, around and inside of `vmap` over rows."""
    kernels = on_cpu(seed=0)
    params, x, _ = problem(SMALL, batch=10)
    many = jax.tree.map(lambda a: jnp.stack([a, 2 * a, 3 * a]), params)
    x = jnp.stack([x, 2 * x])
    x = jnp.stack([x, -x, 3 * x]) if own_x else x

    def gradients(options):
        gradient = jax.value_and_grad(functools.partial(loss, options), (0, 1))
        outer = jax.vmap(
            jax.vmap(gradient, (None, 0)), in_axes=(0, 0 if own_x else None)
        )
        inner = jax.vmap(
            jax.vmap(gradient, in_axes=(0, 0 if own_x else None)), (None, int(own_x))
        )
        return jax.jit(outer)(many, x), jax.jit(inner)(many, x)

    same(gradients(KERNEL), gradients(SCAN), 1e-5)
    assert len(kernels) == 4
    assert {k.results[0].shape for k in kernels} == {(3, 20, 8)}


@pytest.mark.slow
def test_two_batch_axes_are_rows_of_one_kernel(on_cpu):
    kernels = on_cpu(seed=0)
    params, x, _ = problem(LSTM, batch=6)
    x = x.reshape(2, 3, T, D)
    lengths, resets = jnp.array([[1, 2, 3], [3, 0, 2]]), x[..., 0] > 0.5

    def gradients(options):
        def loss(params, x):
            done = unroll(
                LSTM, params, x, seq_lengths=lengths, resets=resets, options=options
            )
            return jnp.sum(jnp.sin(done.outputs)), done.carry

        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, x)

    same(gradients(KERNEL), gradients(SCAN), 1e-5)
    assert [k.clusters for k in kernels] == [1, 1]


@pytest.mark.slow
def test_second_derivatives_are_those_of_a_loop_of_xla(on_cpu):
    on_cpu(seed=0)
    params, x, _ = problem(SMALL, batch=4)
    tangent = jax.tree.map(jnp.cos, params)

    def products(options):
        gradient = jax.grad(functools.partial(loss, options))
        return jax.jvp(lambda p: gradient(p, x), (params,), (tangent,))

    same(products(KERNEL), products(SCAN), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("check_vma", [False, True])
def test_shard_map_gives_each_device_its_rows(check_vma, on_cpu):
    kernels = on_cpu(seed=0)
    params, x, _ = problem(SMALL, batch=8)
    expected = jax.grad(loss, 1)(SCAN, params, x)
    same(sharded(KERNEL, check_vma)(params, x), expected, 1e-5)
    assert kernels[0].results[0].shape == (1, 4, 8)


def sharded(options, check_vma):
    """The gradient over two devices, each of which has half of the rows."""
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    rows = PartitionSpec("x")

    def total(params, x):
        return jax.lax.psum(loss(options, params, x), "x")

    function = jax.shard_map(
        total,
        mesh=mesh,
        in_specs=(PartitionSpec(), rows),
        out_specs=PartitionSpec(),
        check_vma=check_vma,
    )
    return jax.jit(jax.grad(function))


@pytest.mark.slow
def test_over_a_mesh_each_device_has_a_kernel_of_its_rows(on_cpu):
    """Nothing but gradients is sent between devices. Compiled for four CPUs."""
    kernels = on_cpu(seed=0)
    params, x, _ = problem(SMALL, batch=8)
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    rows = jax.NamedSharding(mesh, PartitionSpec("x"))
    step = jax.jit(
        jax.grad(functools.partial(loss, KERNEL)),
        in_shardings=(jax.NamedSharding(mesh, PartitionSpec()), rows),
    )
    program = step.lower(params, x).compile().as_text()
    assert {k.results[0].shape for k in kernels[-2:]} == {(1, 2, 8)}
    found = re.findall("(all-[a-z]+|collective-permute|reduce-scatter)[(]", program)
    assert set(found) == {"all-reduce"}


def test_a_program_runs_where_there_is_no_kernel(hopper):
    """Traced for a GPU, it has the loop of XLA on a CPU and in what is exported."""
    params, x, _ = problem(SMALL, batch=4)
    function = jax.jit(lambda x: jax.vmap(functools.partial(loss, KERNEL, params))(x))
    x = jnp.stack([x, 2 * x])
    traced = function.trace(x)
    assert "recurrence_kernel" in str(traced.jaxpr)
    assert "xla.gpu.ptx" in traced.lower(lowering_platforms=("cuda",)).as_text()
    expected = jax.vmap(functools.partial(loss, SCAN, params))(x)
    same(function(x), expected, 1e-6)
    exported = export.export(function, platforms=("cuda", "cpu"))(x)
    assert "ptx" not in exported.mlir_module()
    same(exported.call(x), expected, 1e-6)


def under_checkpoint(f, params, x):
    return jax.grad(jax.checkpoint(f))(params, x)


def under_scan(f, params, x):
    def body(total, x):
        return total + f(params, x), None

    return jax.lax.scan(body, 0.0, jnp.stack([x, 2 * x]))[0]


def under_cond(f, params, x):
    return jax.lax.cond(x[0, 0, 0] > 0, f, lambda params, x: 0.0, params, jnp.abs(x))


def under_nested_vmap(f, params, x):
    many = jnp.stack([x, 2 * x, 3 * x, 4 * x]).reshape(2, 2, *x.shape)
    weights = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), params)
    return jax.vmap(jax.vmap(jax.grad(f, 1), (None, 0)), (0, 0))(weights, many)


def twice_differentiated(f, params, x):
    return jax.grad(lambda x: jnp.sum(jnp.cos(jax.grad(f, 1)(params, x))))(x)


@pytest.mark.parametrize(
    "composed",
    [
        under_checkpoint,
        under_scan,
        under_cond,
        pytest.param(under_nested_vmap, marks=pytest.mark.slow),
        pytest.param(twice_differentiated, marks=pytest.mark.slow),
    ],
)
def test_transformations_compose(composed, hopper):
    """With the loop of XLA that the launch is on a CPU."""
    params, x, _ = problem(SMALL, batch=4)

    def results(options):
        return jax.jit(composed, static_argnums=0)(
            functools.partial(loss, options), params, x
        )

    same(results(KERNEL), results(SCAN), 1e-5)


def test_the_precision_of_the_kernel_has_a_name(hopper):
    with jax.default_matmul_precision("tensorfloat32"):
        assert "recurrence_kernel" in text_of(LSTM)


# Where there can be no kernel


def text_of(cell, options=KERNEL, shape=(B, T, D), dtype=jnp.float32, memory=None):
    """The traced equations of outputs."""
    params = jax.eval_shape(lambda: cell.init(jax.random.key(0), D, dtype))
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
    "no steps": lambda: text_of(LSTM, shape=(B, 0, D)),
    "no rows": lambda: text_of(LSTM, shape=(0, T, D)),
    "Explicit axes": explicit,
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


# (compute capability, multiprocessors, CUDA of the driver, whether there is NVRTC)
MACHINES = {
    "this GPU has compute capability 7.5": ("7.5", 40, 12080, True),
    "this GPU has compute capability 13.0": ("13.0", 170, 12080, True),
    "the driver is one of CUDA 12.00": ("9.0", 132, 12000, True),
    "NVRTC is not installed": ("9.0", 132, 12080, False),
}


@pytest.mark.parametrize("words", MACHINES)
def test_a_machine_without_a_kernel_is_named(words, monkeypatch):
    capability, cores, cuda, has_nvrtc = MACHINES[words]
    device = types.SimpleNamespace(
        device_kind="this GPU", compute_capability=capability, core_count=cores
    )
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    monkeypatch.setattr(driver, "version", lambda: cuda)
    monkeypatch.setattr(nvrtc, "library", lambda: object() if has_nvrtc else None)
    with refused(words, error=ValueError):
        text_of(LSTM)
    assert words in runs_as(LSTM, D, steps=T, rows=B, platform="gpu")


class Driver:
    """NVIDIA's driver, as far as it is asked for clusters."""

    def __init__(self, holds, fails=None):
        self.holds, self.fails, self.calls = holds, fails, []

    def __getattr__(self, name):
        if name == self.fails:
            return lambda *arguments: 1
        if self.fails == "all":
            raise AttributeError(name)
        return functools.partial(self.called, name)

    def called(self, name, *arguments):
        self.calls.append(name)
        if name == "cuOccupancyMaxActiveClusters":
            found, _, launch = arguments
            launch = launch._obj
            assert launch.attributes[0].value[0] == launch.grid[0]
            assert list(launch.block) == [256, 1, 1]
            found._obj.value = self.holds
        return 0


@pytest.fixture
def ask(monkeypatch):
    """Ask a driver how many clusters of 8 blocks an H200 holds."""
    device = types.SimpleNamespace(core_count=132, local_hardware_id=0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [device])

    def start(library):
        monkeypatch.setattr(driver, "library", lambda: library)
        driver.clusters.cache_clear()
        return driver.clusters(8, 256, layout.Device().shared)

    yield start
    driver.clusters.cache_clear()


def test_the_driver_says_how_many_clusters_it_holds(ask, hopper, monkeypatch):
    library = Driver(15)
    assert ask(library) == 15
    for begin, end in [("PrimaryCtxRetain", "PrimaryCtxRelease"), ("Push", "Pop")]:
        names = " ".join(library.calls)
        assert 0 < names.index(begin) < names.index("Occupancy") < names.index(end)

    seen, kernel = [], layout.kernel
    monkeypatch.setattr(
        layout, "kernel", lambda *sizes: seen.append(kernel(*sizes)) or seen[-1]
    )

    def threads(rows):
        text_of(SimpleCell(256, "none"), shape=(rows, T, D))
        return seen[-1].threads

    # Fifteen clusters of eight rows.
    assert (threads(120), threads(121)) == (256, 512)
    ask(Driver(16))
    assert (threads(128), threads(129)) == (256, 512)
    ask(Driver(0))
    threads(8)
    assert seen[-1].blocks == 1


@pytest.mark.parametrize(
    "fails", ["all", "cuInit", "cuModuleLoadData", "cuOccupancyMaxActiveClusters"]
)
def test_a_driver_that_fails_tells_nothing(fails, ask):
    library = Driver(15, fails)
    assert ask(library) is None
    pushed = library.calls.count("cuCtxPushCurrent_v2")
    assert library.calls.count("cuCtxPopCurrent_v2") == pushed


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
def test_a_norm_has_one_exchange(cell, norms, hopper, monkeypatch):
    """With the mean of the cell; the products of centered weights have none."""
    sources, source = [], text.source

    def seen(*arguments):
        sources.append(source(*arguments))
        return sources[-1]

    monkeypatch.setattr(text, "source", seen)
    text_of(cell)
    assert ("wait_moments<" in sources[0]) == bool(norms)
    assert f"EXCHANGES = {norms};" in sources[0]


@pytest.mark.parametrize(
    ("units", "rows", "gpu", "layouts"),
    [
        (256, 128, None, [(8, 16), (4, 8), (8, 8)]),
        (64, 64, None, [(2, 8), (1, 8)]),
        (64, 64, "sm_89", [(1, 8)]),
        (64, 2000, "sm_89", [(1, 16), (1, 8)]),
    ],
)
def test_a_few_layouts_are_candidates(units, rows, gpu, layouts, hopper, monkeypatch):
    """The first is the one to take without a measurement."""
    found, candidates = [], layout.candidates
    if gpu:
        monkeypatch.setattr(layout, "device", lambda: gpu_programs.GPUS[gpu])

    def seen(*sizes):
        found.append(candidates(*sizes))
        return found[-1]

    monkeypatch.setattr(layout, "candidates", seen)
    text_of(LSTMCell(units), shape=(rows, T, D))
    assert found[0] == layouts


@pytest.mark.parametrize(
    ("gpu", "units", "rows", "is_refused"),
    [
        ("sm_80", 256, 1024, True),
        ("sm_80", 128, 1024, False),
        # Blocks of 128 units read 128 KiB each, of an L2 cache of 6 MiB or 72 MiB.
        ("sm_86", 128, 512, True),
        ("sm_86", 128, 128, False),
        ("sm_89", 128, 512, False),
        ("sm_89", 256, 64, True),  # 1 GB of local memory.
    ],
)
def test_weights_that_no_cache_holds_are_refused(
    gpu, units, rows, is_refused, hopper, monkeypatch
):
    monkeypatch.setattr(layout, "device", lambda: gpu_programs.GPUS[gpu])
    cell, shape = LSTMCell(units, "layer"), (rows, T, D)
    if is_refused:
        with refused("exceeds the L2 cache, or 512 MiB", error=ValueError):
            text_of(cell, shape=shape)
    else:
        assert "recurrence_kernel" in text_of(cell, shape=shape)


def test_too_little_shared_memory_is_named(hopper, monkeypatch):
    monkeypatch.setattr(layout, "device", lambda: layout.Device(shared=4 * 1024))
    with refused("4 KiB of shared memory are too few", error=ValueError):
        text_of(LSTM)


def test_many_seeds_are_no_reason_against_a_kernel(hopper):
    """That one may have a kernel was said before `vmap`."""
    cell = LSTMCell(400, "layer")
    params, x, _ = problem(cell, batch=1)
    many = jax.tree.map(lambda a: jnp.stack([a] * 100), params)
    function = jax.vmap(lambda params: unroll(cell, params, x, options=KERNEL).outputs)
    assert jax.eval_shape(function, many).shape == (100, 1, T, 400)


@pytest.mark.parametrize("cell", [SimpleCell(800), GRUCell(520)], ids=["800", "520"])
def test_a_lane_may_have_more_than_two_units(cell, hopper):
    assert "recurrence_kernel" in text_of(cell)


def test_on_a_cpu_there_is_none():
    with refused("this is traced for cpu", error=ValueError):
        text_of(LSTM, ScanOptions(kernels="on"))


def test_it_is_said_what_a_cell_runs_as(hopper):
    sizes = {"steps": T, "rows": B, "platform": "gpu"}
    assert "traced for another device" in runs_as(LSTM, D, **sizes)
    assert "a sum over the batch" in runs_as(LSTMCell(H, "batch"), D, **sizes)
    assert runs_as(LSTM, D, steps=T, rows=B) == "there are no kernels for cpu"


def test_a_run_records_the_layout_of_its_kernels(hopper):
    params, x, _ = problem(LSTM)
    traced = jax.jit(lambda: unroll(LSTM, params, x, options=KERNEL).outputs).trace()
    # As a measurement does, of which most layouts are not taken.
    with provenance.watched_kernels() as seen, watched():
        traced.lower(lowering_platforms=("cuda",))
    assert seen == []
    jax.clear_caches()  # It would not be lowered again.
    with provenance.watched_kernels() as seen:
        traced.lower(lowering_platforms=("cuda",))
    (words,) = seen
    assert words.startswith("kernel: 2 clusters of 2 blocks of 256 threads; ")
    end = "are on chip, 0 are read in every step, from 0 bytes of local memory"
    assert words.endswith(end)


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
    reads = scan_options.Reads({}, {}, ())

    def plan(**options):
        options = ScanOptions(kernels="auto", platform="gpu", **options)
        return scan_options.plan_for(
            None, None, False, reads, x, steps, weights, options, Way(kernel=True)
        )

    assert plan().backward_chunk == chunk
    assert plan(chunk=5).backward_chunk == 5
    assert plan(save="recurrent").backward_chunk == short


def test_ptx_is_kept_for_other_processes(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(kept, "folder", lambda: tmp_path / "kernels")
    monkeypatch.setattr(nvrtc, "_digest", lambda source, *words: source)
    monkeypatch.setattr(
        nvrtc, "_compiled", lambda source, *words: made.append(source) or "text"
    )
    for _ in range(2):
        nvrtc.ptx.cache_clear()
        assert nvrtc.ptx("some", "compute_90") == "text"
    nvrtc.ptx.cache_clear()
    assert made == ["some"]
    assert [path.name for path in (tmp_path / "kernels").iterdir()] == ["some.ptx"]


def test_a_choice_goes_to_the_scan(hopper):
    """Without a word, where there is no kernel."""
    with answering(kernel_where_it_can):
        assert "recurrence_kernel" in text_of(LSTM, AUTO)
        assert "recurrence_kernel" not in text_of(LSTMCell(H, "batch"), AUTO)
        same(run_step(sorting_step, AUTO), run_step(sorting_step, SCAN))
        assert "recurrence_kernel" not in text_of(LSTM, ScanOptions(kernels="auto"))


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


# KiB of weights of an LN-LSTM that a block keeps at H 64, at H 128, and reads at 128.
ON_CHIP = {
    "sm_80": (64, 192, 64),
    "sm_86": (64, 128, 128),
    "sm_89": (64, 128, 128),
    "sm_90": (64, 256, 0),
    "sm_120": (32, 64, 0),
}


@pytest.mark.nightly
def test_kernels_compile():
    """Without spilled registers at the sizes of draw, and with few at others."""
    found = gpu_programs.compile_in_a_process()
    if found is None:
        pytest.skip("the compilers are not installed: run scripts/accelerators.sh")
    for name, usage in found["kernels"].items():
        assert usage["registers"] <= 255, name
        allowed = gpu_programs.SPILLED.get(name.partition(",")[0], 0)
        assert usage["spilled"] <= allowed, (name, usage)
    for gpu, (kept_64, kept_128, read_128) in ON_CHIP.items():
        small, large = (found["kernels"][f"lstm {n}, {gpu}"] for n in (64, 128))
        assert small["behind_l2"] == 0
        assert small["on_chip"] == kept_64 * 1024
        assert large["on_chip"] == kept_128 * 1024
        assert large["behind_l2"] == read_128 * 1024
    for step, of_scan in found["steps"].values():
        assert step["kernels"] == 2
        # A sequence is one chunk.
        assert step["temporary"] <= 1.4 * of_scan["temporary"]
    assert found["refused"].startswith("NVRTC: recurrence.cu(1): error")
