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
from lnrepro.functional import ScanOptions, SimpleCell, scan, unroll
from lnrepro.functional.fast import kept, measure
from lnrepro.functional.fast.gpu import launch, nvrtc
from tests.functional import gpu_programs
from tests.refused import refused

IN_XLA = launch.Loop.in_xla
CELL = SimpleCell(12, "none")
B, T, D = 5, 2, 3
NOT_MEASURED = "kernels are not measured here"


def device(kind="made up"):
    client = types.SimpleNamespace(platform_version="1")
    return types.SimpleNamespace(
        device_kind=kind, compute_capability="9.0", core_count=132, client=client
    )


def taking(*ms):
    """Programs take these times, one after the other."""
    times = iter(ms)
    return types.SimpleNamespace(median=lambda _: next(times))


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """An H100 whose kernels take half of the scan's time. It has no records yet."""
    jax.clear_caches()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [device()])
    monkeypatch.setattr(nvrtc, "reason_against_device", lambda: None)
    monkeypatch.setattr(nvrtc, "ptx", lambda *arguments: "")
    monkeypatch.setattr(kept, "folder", lambda: tmp_path / "kernels")
    monkeypatch.setattr(measure, "statistics", taking(10, 5))
    monkeypatch.setattr(measure, "RUNS", 2)
    yield
    jax.clear_caches()


def problem(rows=B, steps=T, cell=CELL):
    params = cell.init(jax.random.key(0), D)
    return params, jax.random.normal(jax.random.key(1), (rows, steps, D))


def loss(params, x, cell=CELL, **options):
    options = ScanOptions(**options)
    return jnp.sum(jnp.sin(unroll(cell, params, x, options=options).outputs))


def kernels_of(function, *arguments):
    """How many kernels a function has. It is traced anew, but for what is jitted."""
    traced = jax.make_jaxpr(lambda *arguments: function(*arguments))(*arguments)
    return str(traced).count("recurrence_kernel")


def has_launch(function, *arguments):
    traced = jax.jit(function).trace(*arguments)
    return "gpu.ptx" in traced.lower(lowering_platforms=("cuda",)).as_text()


def runs_as(rows=B, steps=T):
    return functional.runs_as(CELL, D, rows=rows, steps=steps)


def test_what_was_measured_is_what_runs(gpu, capsys):
    params, x = problem()
    step = jax.jit(jax.value_and_grad(loss), donate_argnums=0)
    assert kernels_of(step, params, x) == 0
    for _ in range(2):  # It is measured once.
        (record,) = functional.autotune(step, params, x)
    head, row, *again = capsys.readouterr().out.splitlines()
    assert again == [head, row]
    assert head.split()[:4] == ["cell", "rows", "steps", "scan"]
    assert row.split()[:5] == ["SimpleCell", "5", "2", "10", "5"]
    assert not params["bias"].is_deleted()
    # Also what was traced before, and nothing else.
    assert kernels_of(step, params, x) == 2
    assert runs_as() == "kernel"
    assert runs_as(rows=6) == runs_as(steps=3) == NOT_MEASURED
    for options in ({"save": "carries"}, {"platform": "tpu"}, {"kernels": "off"}):
        assert kernels_of(functools.partial(loss, **options), params, x) == 0
    with jax.default_matmul_precision("tensorfloat32"):
        assert runs_as() == NOT_MEASURED
    assert has_launch(loss, params, x)
    assert not has_launch(jax.vmap(loss, (None, 0)), params, jnp.stack([x, x]))
    assert functional.measured_kernels(forget=True) == [record]
    assert runs_as() == NOT_MEASURED


def test_without_a_record_the_program_is_that_of_the_scan(gpu):
    """Also where there are records of others, and one that is damaged."""
    params, x = problem()

    def text(**options):
        gradient = jax.jit(jax.grad(functools.partial(loss, **options)))
        return gradient.lower(params, x).as_text()

    assert ScanOptions().kernels == "auto"
    assert text() == text(kernels="off")
    for rows in (6, B):
        functional.autotune(loss, *problem(rows))
        (name,) = kept.names(".json")
        if rows == B:
            kept.write(name, "no JSON")
        assert text() == text(kernels="off") != text(kernels="on")
        functional.measured_kernels(forget=True)
        measure.statistics = taking(10, 5)


def test_a_record_has_the_layout_that_was_measured(gpu, monkeypatch, caplog):
    """Other rows may have other layouts, which were neither timed nor compared."""
    cell = SimpleCell(256, "none")
    run = functools.partial(loss, cell=cell)
    # The layouts are (8, 16) and (4, 8).
    monkeypatch.setattr(measure, "statistics", taking(10, 8, 7))
    (record,) = functional.autotune(run, *problem(128, 1, cell))
    assert tuple(record["layout"]) == (4, 8)
    with caplog.at_level("INFO", "lnrepro.kernels"):
        assert has_launch(run, *problem(128, 1, cell))
    assert "kernel: 16 clusters of 4 blocks of 256 threads" in caplog.text
    assert kernels_of(run, *problem(127, 1, cell)) == 0


def test_what_nobody_measured_is_the_scan(gpu, monkeypatch):
    """Also inside of the step of another scan."""
    monkeypatch.setenv("LNREPRO_MEASURE_KERNELS", "0")
    params, x = problem()
    auto = functools.partial(loss, kernels="auto")

    def outer(params, x):
        def step(dot, params, h, x, context):
            return h + auto(params, x), None

        options = ScanOptions(kernels="off")
        return scan(step, {}, params, jnp.zeros(1), x[None], options=options).carry

    assert kernels_of(outer, params, x) == kernels_of(auto, params, x) == 0


def test_other_devices_and_several_processes_have_the_scan(gpu, monkeypatch):
    functional.autotune(loss, *problem())
    for kinds, processes in ((1, 2), (2, 1)):
        devices = [device(), device("another")][:kinds]
        monkeypatch.setattr(jax, "local_devices", lambda found=devices: found)
        monkeypatch.setattr(jax, "process_count", lambda found=processes: found)
        assert kernels_of(loss, *problem()) == 0


def other_bits(results):
    times = iter(range(100))

    def changed(a):
        return a * np.float32(1 + 1e-6 * next(times))

    return [jax.pure_callback(changed, a, a) for a in results]


def failing(words):
    def fail(a):
        raise ValueError(words)

    return lambda results: [jax.pure_callback(fail, a, a) for a in results]


@pytest.mark.parametrize(
    ("change", "ms", "reason"),
    [
        (list, 9.5, "the scan is as fast here"),
        (lambda results: [1.01 * a for a in results], 5, "computes other numbers"),
        (other_bits, 5, "the kernel is not deterministic here"),
        (failing("RESOURCE_EXHAUSTED"), 5, "the memory does not suffice"),
    ],
)
def test_a_kernel_with_a_fault_gives_the_scan(change, ms, reason, gpu, monkeypatch):
    monkeypatch.setattr(launch.Loop, "in_xla", lambda *a: change(IN_XLA(*a)))
    monkeypatch.setattr(measure, "statistics", taking(10, ms))
    (record,) = functional.autotune(loss, *problem())
    assert not record["kernel"]
    assert reason in record["reason"] == runs_as()


def test_a_device_on_which_a_kernel_fails_is_asked_once(gpu, monkeypatch, capsys):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(measure, "distance", interrupt)
        with pytest.raises(KeyboardInterrupt):
            functional.autotune(loss, *problem())
    assert functional.measured_kernels() == []
    with monkeypatch.context() as patch:
        fail = failing("an illegal address")
        patch.setattr(launch.Loop, "in_xla", lambda *a: fail(IN_XLA(*a)))
        with pytest.raises(RuntimeError, match="an illegal address"):
            functional.autotune(loss, *problem())
    assert runs_as() == measure.UNFINISHED
    monkeypatch.setattr(measure, "statistics", taking(10, 5))
    (record,) = functional.autotune(loss, *problem())
    assert record["kernel"]
    assert f"SimpleCell: {measure.UNFINISHED} the last time" in capsys.readouterr().out


def test_a_part_of_a_mesh_is_known_under_shard_map(gpu, capsys):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    none, rows = PartitionSpec(), PartitionSpec("x")
    places = jax.NamedSharding(mesh, none), jax.NamedSharding(mesh, rows)
    params, x = problem(rows=4)
    split = jax.device_put(x, places[1])
    assert functional.autotune(jax.jit(loss), params, split) == []
    assert "only jax.shard_map tells the part" in capsys.readouterr().out

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(none, rows), out_specs=none)
    def total(params, x):
        return jax.lax.psum(loss(params, x), "x")

    (record,) = functional.autotune(total, params, split)
    assert record["rows"] == 2
    assert kernels_of(total, params, split) == 1
    # A trace does not see where the arguments of a program will be.
    measure.statistics = taking(10, 5)
    functional.autotune(loss, params, x)
    assert has_launch(loss, params, x)
    later = jax.jit(lambda *arguments: loss(*arguments), in_shardings=places)
    traced = later.trace(params, x)
    assert "recurrence_kernel" in str(traced.jaxpr)
    assert "gpu.ptx" not in traced.lower(lowering_platforms=("cuda",)).as_text()


def test_inside_of_a_trace_it_is_refused(gpu):
    inside = functools.partial(functional.autotune, loss)
    for function in (jax.jit(lambda x: inside(*problem())), lambda x: inside({}, x)):
        with refused("outside of jax.jit", error=RuntimeError):
            jax.grad(function)(1.0)


ENDED = """
import sys, types
import jax
from lnrepro.functional import LSTMCell, ScanOptions, unroll
from lnrepro.functional.fast import measure
from lnrepro.functional.fast.gpu import nvrtc
measure.SECONDS, measure.COMPILERS = 0.3, 0.1  # There are none any more.
device = types.SimpleNamespace(device_kind="made up", compute_capability="9.0")
jax.default_backend, jax.local_devices = lambda: "gpu", lambda: [device]
nvrtc.reason_against_device, nvrtc.ptx = lambda: None, lambda *a: ""
options = ScanOptions(kernels="auto")
for units in range(12, 18):
    cell, x = LSTMCell(units), jax.ShapeDtypeStruct((5, 4, 3), "float32")
    params = jax.eval_shape(lambda: cell.init(jax.random.key(0), 3))
    jax.eval_shape(lambda *a: unroll(cell, *a, options=options), params, x)
sys.exit(3)
"""


def test_no_compiler_is_left_at_the_end_of_a_process(tmp_path):
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", ENDED], env=env).returncode == 3


@pytest.mark.slow
def test_fibers_compute_what_the_scan_does(gpu, monkeypatch):
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    made = []
    monkeypatch.setattr(launch, "call", gpu_programs.run_on_cpu(0, made))
    monkeypatch.setattr(launch, "PLATFORMS", ["cuda", "cpu"])
    (record,) = functional.autotune(jax.grad(loss), *problem())
    assert record["kernel"]
    assert made
    assert record["error"] < 1e-5
