"""What `autotune` measures, and what `ScanOptions(kernels="auto")` makes of it.

The GPU is made up. Its kernels are the loops of XLA.
"""

import functools
import itertools
import re
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from lnrepro import functional
from lnrepro.functional import ScanOptions, SimpleCell, unroll
from lnrepro.functional.fast import disk_cache, measure
from lnrepro.functional.fast.gpu import launch
from tests.functional import made_up_gpu
from tests.refused import refused


@pytest.fixture(autouse=True)
def gpu(monkeypatch, tmp_path):
    """An H100 without records, and {layout, or None for the scan: ms}."""
    jax.clear_caches()
    made_up_gpu.pretend(monkeypatch, tmp_path)
    monkeypatch.setattr(measure, "RUNS", 2)
    ms, timed = {None: 10.0, (1, 8): 9.0}, measure._timed

    def made_up(scan, values, exact, way):
        return ms[way.layout], *timed(scan, values, exact, way)[1:]

    monkeypatch.setattr(measure, "_timed", made_up)
    yield ms
    jax.clear_caches()


def problem(rows=5, steps=2, units=12, **options):
    cell, x = SimpleCell(units, "none"), np.ones((rows, steps, 3), np.float32)

    def loss(params, x):
        outputs = unroll(cell, params, x, options=ScanOptions(**options)).outputs
        return jnp.sum(jnp.sin(outputs))

    return loss, cell.init(jax.random.key(0), 3), x


def program(function, *arguments):
    traced = jax.jit(function).trace(*arguments)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


def has_kernel(*words):
    """Whether a program has a kernel, or one for each device of a mesh."""
    return bool(re.search("gpu.ptx|Partitioning", program(*words)))


def test_what_was_measured_is_what_runs(gpu, capsys, caplog, monkeypatch):
    gpu |= {(8, 16): 8.0, (4, 8): 7.0, (8, 8): 9.1}
    large = functools.partial(problem, rows=128, steps=1, units=256)
    loss, params, x = large()
    step, threads = jax.jit(jax.grad(loss), donate_argnums=0), threading.enumerate()
    assert program(*large()) == program(*large(kernels="off"))
    assert not has_kernel(step, params, x)
    for _ in range(2):  # It is measured once.
        (record,) = functional.autotune(step, params, x)
        gpu[None] += 1.0
    # Those that were left alone killed the process at its end.
    assert threading.enumerate() == threads
    head, row, *again = capsys.readouterr().out.splitlines()
    assert again == [head, row]
    assert row.split()[:5] == ["SimpleCell", "128", "1", "10.0", "7.0"]
    assert record["layout"] == [4, 8]
    assert record["error"] < 1e-5
    assert not params["bias"].is_deleted()
    with caplog.at_level("INFO", "lnrepro.kernels"):
        assert has_kernel(step, params, x)  # Though it was traced before.
    assert "kernel: 16 clusters of 4 blocks of 256 threads" in caplog.text
    # Other rows may have other layouts.
    for other in ({"rows": 99}, {"steps": 3}, {"save": "carries"}, {"platform": "tpu"}):
        assert not has_kernel(*large(**other))
    assert not has_kernel(jax.vmap(loss, (None, 0)), params, np.stack([x, x]))
    with jax.default_matmul_precision("tensorfloat32"):
        assert not has_kernel(loss, params, x)

    def around(params, x):
        def step(dot, params, h, x, context):
            return h + loss(params, x), None

        return functional.scan(step, {}, params, jnp.zeros(1), x[None]).carry

    assert not has_kernel(around, params, x)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "__version__", "another")
        assert not has_kernel(loss, params, x)
    assert functional.measured_kernels(forget=True) == [record]
    assert not has_kernel(*large())
    gpu[None] = 7.7
    (record,) = functional.autotune(step, params, x)
    assert record["reason"] == "the scan is as fast here"


@pytest.mark.parametrize(
    ("factor", "drift", "reason"),
    [
        (1.0005, 0, ""),
        (1, 1e-5, "the kernel is not deterministic here"),
        (1.01, 0, "the kernel computes other numbers than the scan here"),
        ("nan", 0, "the kernel computes other numbers than the scan here"),
        # Words are no number, and NumPy's error has them.
        ("RESOURCE_EXHAUSTED", 0, "the memory does not suffice to measure it"),
        ("an illegal address", 0, None),
    ],
)
def test_a_kernel_with_a_fault_gives_the_scan(
    factor, drift, reason, monkeypatch, capsys
):
    in_xla, calls = launch.Loop.in_xla, itertools.count()

    def fault(a):
        return a * np.float32(factor) * np.float32(1 + drift * next(calls))

    def run(*arguments):
        return [jax.pure_callback(fault, a, a) for a in in_xla(*arguments)]

    monkeypatch.setattr(launch.Loop, "in_xla", run)
    if reason is not None:
        (record,) = functional.autotune(*problem())
        assert record["kernel"] == (not reason)
        assert record["reason"] == reason
        return
    for _ in range(2):
        with pytest.raises(RuntimeError, match=factor):
            functional.autotune(*problem())
    assert capsys.readouterr().out.count("did not end the last time") == 1
    (record,) = functional.measured_kernels()
    assert record["reason"] == "its measurement did not end"
    assert not has_kernel(*problem())


def test_an_interrupt_leaves_no_record(monkeypatch):
    """But those that other processes keep meanwhile."""

    def timed(*words):
        disk_cache.write("another.measured", '{"reason": ""}')
        disk_cache.write("damaged.measured", "")
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "_timed", timed)
    with pytest.raises(KeyboardInterrupt):
        functional.autotune(*problem())
    assert functional.measured_kernels() == [{"reason": ""}]


@pytest.mark.parametrize("other", [{"kind": "another"}, {"process": 1}])
def test_devices_of_two_kinds_or_processes_have_the_scan(other, monkeypatch):
    made_up_gpu.have(monkeypatch, made_up_gpu.device(), made_up_gpu.device(**other))
    found = functional.runs_as(SimpleCell(12), 3, steps=2, rows=5)
    assert found == "there are several processes, or kinds of devices"


def test_a_part_of_a_mesh_is_known_under_shard_map():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = PartitionSpec(), PartitionSpec("x")
    places = [jax.NamedSharding(mesh, spec) for spec in specs]
    loss, *arguments = problem(rows=4)
    split = jax.device_put(arguments, places)
    (record,) = functional.autotune(jax.jit(loss), *split)
    assert "only jax.shard_map tells the part" in record["reason"]
    part = jax.shard_map(
        loss, mesh=mesh, in_specs=specs, out_specs=specs[0], check_vma=False
    )
    (record,) = functional.autotune(part, *split)
    assert record["rows"] == 2
    assert has_kernel(part, *split)
    # A trace does not see where the arguments of a program will be.
    functional.autotune(loss, *arguments)
    assert has_kernel(loss, *arguments)
    assert not has_kernel(jax.jit(loss, in_shardings=places), *arguments)
    assert [record["rows"] for record in functional.measured_kernels()] == [4, 2, 4]


def test_inside_of_a_trace_it_is_refused():
    with refused("outside of jax.jit", error=RuntimeError):
        jax.make_jaxpr(lambda: functional.autotune(*problem()))()
    loss, params, x = problem()
    with refused("outside of jax.jit", error=RuntimeError):
        jax.grad(lambda params: functional.autotune(loss, params, x))(params)
