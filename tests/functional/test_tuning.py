"""What `autotune` measures, and what `ScanOptions(kernels="auto")` makes of it.

The GPU is made up. Its kernels are the loops of XLA, or fibers on this CPU.
"""

import functools
import os
import shutil
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from lnrepro import functional
from lnrepro.functional import LSTMCell, ScanOptions, SimpleCell, scan, unroll
from lnrepro.functional.fast import kept, measure
from lnrepro.functional.fast.gpu import launch, nvrtc
from tests.functional import gpu_programs
from tests.functional.programs import same
from tests.refused import refused

CELL = SimpleCell(12, "none")
B, T, D = 5, 2, 3


class Clock:
    """A clock whose runs take these times, five each of a program."""

    def __init__(self, *seconds):
        self.now, self.seconds = 0.0, iter(np.repeat(seconds, 5))
        self.calls = 0

    def perf_counter(self):
        self.calls += 1
        if self.calls % 2 == 0:
            self.now += next(self.seconds)
        return self.now


def device(kind="made up"):
    client = types.SimpleNamespace(platform_version="1")
    return types.SimpleNamespace(
        device_kind=kind, compute_capability="9.0", core_count=132, client=client
    )


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """An H100 whose kernels take half of the scan's time. It has no records yet."""
    jax.clear_caches()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [device()])
    monkeypatch.setattr(nvrtc, "reason_against_device", lambda: None)
    monkeypatch.setattr(nvrtc, "ptx", lambda *arguments: "")
    monkeypatch.setattr(kept, "folder", lambda: tmp_path / "kernels")
    monkeypatch.setattr(measure, "time", Clock(1.0, 0.5), raising=False)
    yield
    jax.clear_caches()


def problem(rows=B, steps=T, cell=CELL):
    params = cell.init(jax.random.key(0), D)
    return params, jax.random.normal(jax.random.key(1), (rows, steps, D))


def loss(params, x, cell=CELL, **options):
    outputs = unroll(cell, params, x, options=ScanOptions(**options)).outputs
    return jnp.sum(jnp.sin(outputs))


def kernels_of(function, *arguments):
    """How many kernels a function has."""
    # Traced anew, but for what is jitted.
    traced = jax.make_jaxpr(lambda *arguments: function(*arguments))(*arguments)
    return str(traced).count("recurrence_kernel")


def runs_as(rows=B, steps=T):
    return functional.runs_as(CELL, D, rows=rows, steps=steps)


def test_what_was_measured_is_what_runs(gpu, monkeypatch, capsys):
    params, x = problem()
    step = jax.jit(jax.value_and_grad(loss), donate_argnums=0)
    assert kernels_of(step, params, x) == 0
    (record,) = functional.autotune(step, params, x)
    assert not any(a.is_deleted() for a in params.values())
    assert record["kernel"]
    assert (record["rows"], record["steps"]) == (B, T)
    assert (record["scan ms"], record["kernel ms"]) == (1000, 500)
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["cell", "rows", "steps"]
    assert row.split()[:5] == ["SimpleCell", "5", "2", "1e+03", "500"]
    # Also what was traced before.
    assert kernels_of(step, params, x) == 2
    assert runs_as() == "kernel"
    # It has a record.
    assert len(functional.autotune(step, params, x)) == 1
    # Nothing else was measured.
    assert runs_as(rows=6) == runs_as(steps=5) == "kernels are not measured here"
    for options in ({"kernels": "off"}, {"save": "carries"}, {"platform": "tpu"}):
        assert kernels_of(functools.partial(loss, **options), params, x) == 0
    with jax.default_matmul_precision("tensorfloat32"):
        assert runs_as() != "kernel"
    with monkeypatch.context() as other:
        other.setattr(jax, "local_devices", lambda: [device("another")])
        assert runs_as() != "kernel"
    # What has other rows than its trace is no kernel on a device.
    for function in (step, jax.vmap(step, (None, 0))):
        many = x if function is step else jnp.stack([x, x])
        lowered = jax.jit(function).trace(params, many)
        text = lowered.lower(lowering_platforms=("cuda",)).as_text()
        assert ("xla.gpu.ptx" in text) == (function is step)
    assert len(functional.measured_kernels(forget=True)) == 1
    assert functional.measured_kernels() == []
    assert runs_as() != "kernel"


def test_without_a_record_the_program_is_that_of_the_scan(gpu):
    """Also where there are records of others."""
    params, x = problem()

    def text(**options):
        gradient = jax.jit(jax.grad(functools.partial(loss, **options)))
        return gradient.lower(params, x).as_text()

    assert ScanOptions().kernels == "auto"
    assert text() == text(kernels="off")
    functional.autotune(loss, *problem(rows=6))
    assert text() == text(kernels="off") != text(kernels="on")


def test_a_record_has_the_layout_that_was_measured(gpu, monkeypatch, caplog):
    """Of the same equations, other rows may have other layouts."""
    cell = SimpleCell(256, "none")
    run = functools.partial(loss, cell=cell)
    # The scan, and the layouts (8, 16) and (4, 8).
    monkeypatch.setattr(measure, "time", Clock(1.0, 0.8, 0.7))
    (record,) = functional.autotune(run, *problem(128, 1, cell))
    assert tuple(record["layout"]) == (4, 8)
    with caplog.at_level("INFO", "lnrepro.kernels"):
        traced = jax.jit(run).trace(*problem(128, 1, cell))
        traced.lower(lowering_platforms=("cuda",))
        assert "kernel: 16 clusters of 4 blocks of 256 threads" in caplog.text
        assert kernels_of(run, *problem(127, 1, cell)) == 0


@pytest.mark.parametrize("variable", ["0", "1"])
def test_nobody_measured_means_the_scan(variable, gpu, monkeypatch):
    """Also inside of the step of another scan."""
    monkeypatch.setenv("LNREPRO_MEASURE_KERNELS", variable)
    params, x = problem()

    def step(dot, params, h, x, context):
        inner = unroll(CELL, params, x, options=ScanOptions(kernels="auto"))
        return h + jnp.sum(inner.outputs), None

    def outer(params, x):
        options = ScanOptions(kernels="off")
        return scan(step, {}, params, jnp.zeros(1), x[None], options=options).carry

    assert kernels_of(outer, params, x) == 0
    if variable == "0":
        assert kernels_of(functools.partial(loss, kernels="auto"), params, x) == 0


def test_devices_of_two_kinds_and_several_processes_have_the_scan(gpu, monkeypatch):
    functional.autotune(loss, *problem())
    assert kernels_of(loss, *problem()) == 1
    with monkeypatch.context() as two:
        two.setattr(jax, "local_devices", lambda: [device(), device("another")])
        assert kernels_of(loss, *problem()) == 0
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert kernels_of(loss, *problem()) == 0


def wrong(results):
    return [1.01 * a for a in results]


def other_bits_each_time(results):
    times = iter(range(1000))

    def changed(a):
        return a * np.float32(1 + 1e-6 * next(times))

    return [jax.pure_callback(changed, a, a) for a in results]


def failed(results):
    def fail(a):
        raise ValueError("an illegal address")

    return [jax.pure_callback(fail, a, a) for a in results]


@pytest.fixture
def fault(monkeypatch):
    """Let kernels return something else."""
    run = launch.Loop.in_xla

    def start(change):
        monkeypatch.setattr(launch.Loop, "in_xla", lambda *a: change(run(*a)))

    return start


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (wrong, "the kernel computes other numbers than the scan here"),
        (other_bits_each_time, "the kernel is not deterministic here"),
    ],
)
def test_a_kernel_with_a_fault_gives_the_scan(change, reason, gpu, fault):
    fault(change)
    (record,) = functional.autotune(loss, *problem())
    assert (record["kernel"], record["reason"]) == (False, reason)
    assert runs_as() == reason


@pytest.mark.parametrize(
    ("seconds", "error", "reason"),
    [
        (0.95, None, "the scan is as fast here"),
        (0.5, "RESOURCE_EXHAUSTED: of 1 GB", "the memory does not suffice"),
    ],
)
def test_a_slow_or_large_kernel_gives_the_scan(
    seconds, error, reason, gpu, monkeypatch
):
    clock = Clock(1.0, seconds)
    monkeypatch.setattr(measure, "time", clock)
    if error:
        monkeypatch.setattr(clock, "perf_counter", functools.partial(stop, error))
    (record,) = functional.autotune(loss, *problem())
    assert record["reason"].startswith(reason)


def stop(error):
    raise jax.errors.JaxRuntimeError(error)


def test_a_device_on_which_a_kernel_fails_is_asked_once(
    gpu, fault, monkeypatch, capsys
):
    unfinished = "its measurement did not end"
    with monkeypatch.context() as interrupted:
        interrupted.setattr(measure, "time", None)
        interrupted.setattr(jax, "block_until_ready", lambda a: interrupt())
        with pytest.raises(KeyboardInterrupt):
            functional.autotune(loss, *problem())
    assert functional.measured_kernels() == []
    with monkeypatch.context():
        fault(failed)
        with pytest.raises(jax.errors.JaxRuntimeError, match="an illegal address"):
            functional.autotune(loss, *problem())
    assert runs_as() == unfinished
    assert kernels_of(loss, *problem()) == 0
    fault(list)
    monkeypatch.setattr(measure, "time", Clock(1.0, 0.5))
    (record,) = functional.autotune(loss, *problem())
    assert record["kernel"]
    assert f"SimpleCell: {unfinished} the last time" in capsys.readouterr().out


def interrupt():
    raise KeyboardInterrupt


def test_a_part_of_a_mesh_is_known_under_shard_map(gpu, capsys, monkeypatch):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.NamedSharding(mesh, PartitionSpec("x"))
    params, x = problem(rows=8)
    split = jax.device_put(x, rows)
    assert functional.autotune(jax.jit(loss), params, split) == []
    said = "SimpleCell is not measured: only jax.shard_map tells the part of a device"
    assert said in capsys.readouterr().out

    def of_part(params, x):
        return jax.lax.psum(loss(params, x), "x")

    specs = PartitionSpec(), PartitionSpec("x")
    function = jax.shard_map(
        of_part, mesh=mesh, in_specs=specs, out_specs=PartitionSpec()
    )
    step = jax.jit(jax.grad(function))
    (record,) = functional.autotune(step, params, split)
    assert record["rows"] == 4
    assert kernels_of(step, params, x) == 2
    # A trace does not see where the arguments of a program will be.
    monkeypatch.setattr(measure, "time", Clock(1.0, 0.5))
    functional.autotune(loss, params, x)
    for places, is_kernel in ((None, True), ((None, rows), False)):
        split_later = jax.jit(lambda p, x: loss(p, x), in_shardings=places)
        lowered = split_later.trace(params, x).lower(lowering_platforms=("cuda",))
        assert ("xla.gpu.ptx" in lowered.as_text()) == is_kernel


def test_a_damaged_record_is_none(gpu):
    functional.autotune(loss, *problem())
    (path,) = kept.folder().iterdir()
    path.write_text("no JSON")
    assert functional.measured_kernels() == []
    assert runs_as() == "kernels are not measured here"


def test_inside_of_a_trace_it_is_refused(gpu):
    params, x = problem()

    def inside(x):
        functional.autotune(loss, params, problem()[1])
        return x

    for traced in (jax.jit(inside), lambda x: functional.autotune(loss, params, x)):
        with refused("outside of jax.jit", error=RuntimeError):
            jax.grad(traced)(x)


def test_a_step_that_reads_what_is_around_is_not_measured(gpu, capsys):
    def outer(x, scale):
        def step(dot, params, h, x, context):
            return jnp.tanh(scale * dot("w", h) + x), None

        return scan(step, {"w": jnp.eye(D)}, (), x[0], x).outputs

    assert functional.autotune(outer, jnp.ones((T, B, D)), 1.0) == []
    assert "reads traced arrays" in capsys.readouterr().out


ENDED = """
import sys, time, types
import jax
from lnrepro.functional import SimpleCell, ScanOptions, unroll
from lnrepro.functional.fast.gpu import nvrtc
device = types.SimpleNamespace(device_kind="made up", compute_capability="9.0")
device.client = types.SimpleNamespace(platform_version="1")
jax.default_backend, jax.local_devices = lambda: "gpu", lambda: [device]
nvrtc.reason_against_device, nvrtc.ptx = lambda: None, lambda *a: time.sleep(20) or ""
cell, options = SimpleCell(12), ScanOptions(kernels="auto")
params = cell.init(jax.random.key(0), 3)
x = jax.ShapeDtypeStruct((5, 4, 3), "float32")
jax.eval_shape(lambda x: unroll(cell, params, x, options=options), x)
sys.exit(3)
"""


def test_a_process_ends_as_it_is_told(tmp_path):
    """With compilers that take long, which nobody starts."""
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", ENDED], env=env).returncode == 3


@pytest.mark.slow
def test_fibers_compute_what_the_scan_does(gpu, monkeypatch):
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    made = []
    monkeypatch.setattr(launch, "call", gpu_programs.run_on_cpu(0, made))
    monkeypatch.setattr(launch, "PLATFORMS", ["cuda", "cpu"])
    cell = LSTMCell(8, "layer")
    gradient = jax.grad(functools.partial(loss, cell=cell))
    (record,) = functional.autotune(gradient, *problem(cell=cell))
    assert record["kernel"]
    assert record["error"] < 1e-5
    made.clear()
    same(gradient(*problem(cell=cell)), gradient(*problem(cell=cell)), 0)
    assert len(made) == 2
