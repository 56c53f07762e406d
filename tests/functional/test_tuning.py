"""What `autotune` measures, and what `ScanOptions(kernels="auto")` makes of it.

The GPU is made up. Its kernels are the loops of XLA.
"""

import functools
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from lnrepro import functional
from lnrepro.functional import ScanOptions, SimpleCell, unroll
from lnrepro.functional.fast import kept, kernels, measure, platform, tuning
from lnrepro.functional.fast.gpu import launch
from tests.functional import made_up_gpu
from tests.functional.programs import drawn, shapes_of
from tests.refused import refused

B, T, D = 5, 2, 3


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """An H100 without records, and {layout, or None for the scan: ms}."""
    jax.clear_caches()
    made_up_gpu.pretend(monkeypatch, tmp_path / "kernels")
    # An old name, with which kernels were taken unmeasured.
    monkeypatch.setenv("LNREPRO_MEASURE_KERNELS", "0")
    monkeypatch.setattr(measure, "RUNS", 2)
    ms, timed = {None: 10.0, (1, 8): 5.0}, measure._timed

    def made_up(scan, values, exact, way):
        return timed(scan, values, exact, way)._replace(ms=ms[way.layout])

    monkeypatch.setattr(measure, "_timed", made_up)
    yield ms
    jax.clear_caches()


def problem(rows=B, steps=T, units=12):
    cell, x = SimpleCell(units, "none"), np.ones((rows, steps, D), np.float32)

    def loss(params, x, **options):
        outputs = unroll(cell, params, x, options=ScanOptions(**options)).outputs
        return jnp.sum(jnp.sin(outputs))

    return loss, drawn(shapes_of(cell, D)[0]), x


def has_kernel(function, params, x, **options):
    text = str(jax.make_jaxpr(functools.partial(function, **options))(params, x))
    return "recurrence_kernel" in text or "pallas_call" in text


def has_launch(jitted, *arguments):
    """Whether a program has a kernel, or one for each device of a mesh."""
    lowered = jitted.trace(*arguments).lower(lowering_platforms=("cuda",))
    return bool(re.search("gpu.ptx|Partitioning", lowered.as_text()))


def test_what_was_measured_is_what_runs(gpu, capsys, monkeypatch):
    loss, params, x = problem()
    params = jax.device_put(params)
    step = jax.jit(jax.grad(loss), donate_argnums=0)
    assert not has_kernel(step, params, x)
    for _ in range(2):  # It is measured once.
        (record,) = functional.autotune(step, params, x)
    head, row, *again = capsys.readouterr().out.splitlines()
    assert again == [head, row]
    assert row.split()[:5] == ["SimpleCell", "5", "2", "10.0", "5.0"]
    assert record["error"] < 1e-5
    assert not params["bias"].is_deleted()
    assert has_kernel(step, params, x)  # Though it was traced before.
    assert not has_launch(jax.jit(jax.vmap(loss, (None, 0))), params, np.stack([x, x]))
    # Other sizes and options, devices of two kinds, and another scan around it.
    assert not has_kernel(*problem(6))
    assert not has_kernel(*problem(steps=3))
    for options in ({"save": "carries"}, {"platform": "tpu"}, {"kernels": "off"}):
        assert not has_kernel(loss, params, x, **options)
    with jax.default_matmul_precision("tensorfloat32"):
        assert not has_kernel(loss, params, x)
    with jax.debug_infs(True):
        assert not has_kernel(loss, params, x)

    def outer(params, x):
        def step(dot, params, h, x, context):
            return h + loss(params, x), None

        return functional.scan(step, {}, params, jnp.zeros(1), x[None]).carry

    assert not has_kernel(outer, params, x)
    with monkeypatch.context() as patch:
        made_up_gpu.have(patch, made_up_gpu.device(), made_up_gpu.device("another"))
        assert not has_kernel(loss, params, x)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "process_count", lambda: 2)
        assert not has_kernel(loss, params, x)
    assert has_kernel(loss, params, x)
    assert functional.measured_kernels(forget=True) == [record]
    assert not has_kernel(loss, params, x)


def test_without_a_record_the_program_is_that_of_the_scan(gpu):
    """Also where there are records of others, and one that is damaged."""
    loss, *arguments = problem()

    def text(**options):
        gradient = jax.jit(jax.grad(functools.partial(loss, **options)))
        return gradient.lower(*arguments).as_text()

    of_scan = text(kernels="off")
    assert ScanOptions().kernels == "auto"
    assert text() == of_scan != text(kernels="on")
    functional.autotune(*problem(6))
    assert text() == of_scan
    functional.autotune(loss, *arguments)
    assert text() != of_scan
    kept.write(kept.names(".json")[-1], "no JSON")
    assert text() == of_scan


def test_a_record_has_the_layout_that_was_measured(gpu, caplog):
    """Other rows may have other layouts, which were neither timed nor compared."""
    loss, *arguments = problem(128, 1, 256)
    gpu |= {(8, 16): 8.0, (4, 8): 7.0}
    with caplog.at_level("INFO", "lnrepro.kernels"):
        (record,) = functional.autotune(loss, *arguments)
        # Kernels that are only tried are not logged.
        assert "kernel" not in caplog.messages
        assert "of local memory" not in caplog.text
        assert has_launch(jax.jit(loss), *arguments)
    assert tuple(record["layout"]) == (4, 8)
    assert re.fullmatch(
        "kernel: 16 clusters of 4 blocks of 256 threads; of a block's weights [1-9].* "
        "bytes are on chip, 0 are read in every step, from 0 bytes of local memory",
        caplog.messages[-1],
    )
    assert not has_kernel(*problem(127, 1, 256))


def test_a_kernel_that_is_not_deterministic_gives_the_scan(gpu, monkeypatch):
    in_xla, factors = launch.Loop.in_xla, iter(np.linspace(1, 1.0001, 100, np.float32))

    def other_bits(a):
        return a * next(factors)

    def run(*arguments):
        return [jax.pure_callback(other_bits, a, a) for a in in_xla(*arguments)]

    monkeypatch.setattr(launch.Loop, "in_xla", run)
    (record,) = functional.autotune(*problem())
    assert record["reason"] == "the kernel is not deterministic here"
    assert not has_kernel(*problem())


def measured(kernel):
    """The record of a scan of one step that is a sine, and of its kernel."""

    def run(way, x):
        kernels.note(kernels.KERNEL)
        kernels.note_layouts([(1, 8)])
        return (kernel if way.layout else jnp.sin)(x)

    step = jax.make_jaxpr(jnp.sin)(0.5)
    x, context = np.linspace(0, 2, 5, dtype=np.float32), platform.context("gpu")
    made = tuning.Scan("sine", run, (x,), step, {"rows": 5, "steps": 1}, (), context)
    return measure.measure({"sine.json": made})[0]


def failing(words):
    def fail(a):
        raise ValueError(words)

    return lambda x: jax.pure_callback(fail, x, jax.lax.stop_gradient(x))


@pytest.mark.parametrize(
    ("kernel", "ms", "reason"),
    [
        (lambda x: 1.001 * jnp.sin(x), 9.0, ""),
        (jnp.sin, 9.1, "the scan is as fast here"),
        (lambda x: 1.01 * jnp.sin(x), 5.0, "computes other numbers"),
        (lambda x: jnp.sin(x).at[1].set(jnp.nan), 5.0, "computes other numbers"),
        (failing("RESOURCE_EXHAUSTED"), 5.0, "the memory does not suffice"),
    ],
)
def test_a_kernel_with_a_fault_gives_the_scan(kernel, ms, reason, gpu):
    gpu[1, 8] = ms
    record = measured(kernel)
    assert record["kernel"] == (not reason)
    assert reason in record["reason"]


def interrupted(x):
    raise KeyboardInterrupt


def test_a_device_on_which_a_kernel_fails_is_asked_once(gpu, capsys):
    with pytest.raises(KeyboardInterrupt):
        measured(interrupted)
    assert kept.names(".json") == []
    for _ in range(2):
        with pytest.raises(RuntimeError, match="an illegal address"):
            measured(failing("an illegal address"))
    assert functional.measured_kernels() == []
    said = "sine: its measurement did not end the last time"
    assert capsys.readouterr().out.count(said) == 1


def test_a_part_of_a_mesh_is_known_under_shard_map(gpu, capsys):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    none, rows = PartitionSpec(), PartitionSpec("x")
    places = jax.NamedSharding(mesh, none), jax.NamedSharding(mesh, rows)
    loss, params, x = problem(rows=4)
    split = jax.device_put(x, places[1])
    assert functional.autotune(jax.jit(loss), params, split) == []
    assert "only jax.shard_map tells the part" in capsys.readouterr().out

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(none, rows), out_specs=none)
    def total(params, x):
        return jax.lax.psum(loss(params, x), "x")

    (record,) = functional.autotune(total, params, split)
    assert record["rows"] == 2
    assert has_kernel(total, params, split)
    # A trace does not see where the arguments of a program will be.
    functional.autotune(loss, params, x)
    assert has_launch(jax.jit(loss), params, x)
    assert not has_launch(jax.jit(loss, in_shardings=places), params, x)


def test_inside_of_a_trace_it_is_refused(gpu):
    for function in (
        jax.jit(lambda x: functional.autotune(*problem())),
        functools.partial(functional.autotune, jnp.sin),
    ):
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


@pytest.mark.slow
def test_no_compiler_is_left_at_the_end_of_a_process(tmp_path):
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", ENDED], env=env).returncode == 3
