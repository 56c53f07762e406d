"""What `ScanOptions(kernels="auto")` measures, and what it makes of it.

The GPU is made up. Its kernels are the loops of XLA, or fibers on this CPU.
"""

import functools
import os
import shutil
import subprocess
import sys
import threading
import types

import jax
import jax.numpy as jnp
import pytest
from jax._src import distributed

from lnrepro.functional import (
    LSTMCell,
    ScanOptions,
    SimpleCell,
    measured_kernels,
    runs_as,
    scan,
    unroll,
)
from lnrepro.functional.fast import kept, kernels, measure, tuning
from lnrepro.functional.fast.gpu import kernel as layout
from lnrepro.functional.fast.gpu import launch, nvrtc
from lnrepro.functional.fast.kernels import Way
from lnrepro.functional.fast.platform import tracing_for
from tests.functional import gpu_programs
from tests.functional.programs import same

AUTO = ScanOptions(kernels="auto", platform="gpu")
SCAN = ScanOptions(platform="gpu")
B, T, D, H = 5, 4, 3, 12
CELL = SimpleCell(H, "layer")


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU whose kernels take half of the scan's time. It has no answers yet."""
    times = iter([1.0, 0.5])

    monkeypatch.setattr(nvrtc, "reason_against_device", lambda: None)
    monkeypatch.setattr(nvrtc, "ptx", lambda *arguments: "")
    monkeypatch.setattr(tuning, "device", lambda: {"device": "made up"})
    monkeypatch.setattr(tuning, "_known", {})
    monkeypatch.setattr(kept, "folder", lambda: tmp_path / "kernels")
    monkeypatch.setattr(measure, "milliseconds", lambda program, values: next(times))
    # A busy machine compiles slowly.
    monkeypatch.setattr(measure, "SECONDS", 200.0)
    monkeypatch.setattr(measure, "COMPILERS", 100.0)


def problem(cell=CELL, rows=B, steps=T):
    params = cell.init(jax.random.key(0), D)
    return params, jax.random.normal(jax.random.key(1), (rows, steps, D))


def loss(params, x, cell=CELL, options=AUTO):
    return jnp.sum(jnp.sin(unroll(cell, params, x, options=options).outputs))


def runs(function, *arguments):
    """What the recurrences of a function run as."""
    # What JAX has traced before is not traced again.
    with kernels.watched() as seen:
        jax.eval_shape(lambda *arguments: function(*arguments), *arguments)
    return seen


def answer(monkeypatch, way, calls=None):
    """Let a measurement say something."""

    def best_way(run, arguments):
        if calls is not None:
            calls.append(run)
        return measure.Result(way, {"scan": 1.0, "kernel 0": 0.1}, {})

    monkeypatch.setattr(measure, "best_way", best_way)


def test_an_answer_is_found_kept_and_read(gpu, monkeypatch):
    params, x = problem()
    # Under transformations, all of which trace.
    function = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))
    assert runs(function, params, x[None]) == ["kernel", "kernel"]
    (record,) = measured_kernels()
    assert record["kernel"]
    assert (record["rows"], record["steps"]) == (8, 4)
    assert record["ms"] == {"scan": 1.0, "kernel 0": 0.5}
    assert record["device"] == "made up"
    # A second process, which measures nothing.
    tuning._known.clear()
    calls = []
    answer(monkeypatch, Way(kernel=False, reason="measured"), calls)
    assert runs(loss, params, x) == ["kernel"]
    # Up to the next power of two it is the same batch.
    assert runs(loss, *problem(rows=8)) == ["kernel"]
    assert runs(loss, *problem(rows=9)) == ["measured"]
    assert len(measured_kernels(forget=True)) == 2
    assert measured_kernels() == []
    assert runs(loss, params, x) == ["measured"]
    assert len(calls) == 2


def wrong(results):
    return [1.01 * a for a in results]


def refused(results):
    raise RuntimeError("no room")


def endless(results):
    def wait(a):
        END.wait()
        return a

    return [jax.pure_callback(wait, a, a) for a in results]


END = threading.Event()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (list, "the scan is as fast here"),
        (wrong, "the kernel computes other numbers than the scan here"),
        (refused, "the kernel failed here: RuntimeError: no room"),
        (endless, "it could not be measured within 30 s"),
    ],
    ids=["slow", "wrong", "refused", "endless"],
)
def test_a_kernel_with_a_fault_gives_the_scan(fault, reason, gpu, monkeypatch):
    END.clear()
    run = launch.Loop.in_xla
    monkeypatch.setattr(launch.Loop, "in_xla", lambda *a: fault(run(*a)))
    monkeypatch.setattr(measure, "milliseconds", lambda program, values: 1.0)
    if fault is endless:
        monkeypatch.setattr(measure, "SECONDS", 30.0)
    try:
        for _ in range(2):
            assert runs(jax.grad(loss), *problem()) == [reason]
            tuning._known.clear()
    finally:
        END.set()
    (record,) = measured_kernels()
    assert not record["kernel"]
    # And the scan it is.
    same(loss(*problem()), loss(*problem(), options=SCAN), 0)


@pytest.mark.slow
def test_slow_compilers_mean_the_scan_until_the_next_process(gpu, monkeypatch):
    monkeypatch.setattr(measure, "COMPILERS", 0.0)
    for _ in range(2):
        (reason,) = runs(loss, *problem())
        assert reason.endswith("RuntimeError: the compilers took more than 0 s")
        monkeypatch.setattr(measure, "best_way", None)  # It is not asked again.
    assert measured_kernels() == []


@pytest.mark.slow
def test_fibers_compute_what_the_scan_does(gpu, monkeypatch):
    """So that a kernel is taken that is faster, by this clock."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    made = []
    monkeypatch.setattr(launch, "call", gpu_programs.run_on_cpu(0, made))
    monkeypatch.setattr(launch, "PLATFORMS", ["cuda", "cpu"])
    cell = SimpleCell(8, "layer")
    assert runs(functools.partial(jax.grad(loss), cell=cell), *problem(cell)) == [
        "kernel",
        "kernel",
    ]
    assert len(made) == 2
    (record,) = measured_kernels()
    assert record["errors"]["kernel 0"] < 1e-5


KEY = """
import jax
from lnrepro.functional import LSTMCell, ScanOptions, unroll
from lnrepro.functional.fast import tuning
tuning.device = lambda: {"device": "made up"}
tuning._answer = lambda run, arguments, key, about: exit(print(key))
cell, options = LSTMCell(12, "layer"), ScanOptions(kernels="auto", platform="gpu")
params = cell.init(jax.random.key(0), 3)
x = jax.ShapeDtypeStruct((%s, 4, 3), "float32")
jax.eval_shape(lambda x: unroll(cell, params, x, options=options), x)
"""


@pytest.mark.slow
def test_another_process_has_the_same_name_for_an_answer():
    found = []
    for i, rows in enumerate((5, 7, 9)):
        command, env = [sys.executable, "-c", KEY % rows], {"PYTHONHASHSEED": str(i)}
        found.append(subprocess.check_output(command, env=os.environ | env))
    assert len(found[0]) > 60
    assert found[0] == found[1] != found[2]


def test_what_is_measured_is_what_runs(gpu, monkeypatch):
    made, kernel = [], layout.kernel

    def one(program, rows, steps, reverse, chosen, groups):
        made.append(chosen)
        return kernel(program, rows, steps, reverse, layout.Layout(1, 8), groups)

    monkeypatch.setattr(layout, "kernel", one)
    monkeypatch.setattr(layout, "candidates", lambda *sizes: ["first", "second"])
    answer(monkeypatch, Way(kernel=True, layout=1))
    cell = LSTMCell(H)
    assert runs(functools.partial(jax.grad(loss), cell=cell), *problem(cell)) == [
        "kernel",
        "kernel",
    ]
    assert set(made) == {"second"}
    tuning.measured_kernels(forget=True)
    answer(monkeypatch, Way(kernel=False, reason="some reason"))
    assert runs(functools.partial(jax.grad(loss), cell=cell), *problem(cell)) == [
        "some reason"
    ]
    sizes = {"steps": T, "rows": B, "platform": "gpu"}
    assert runs_as(cell, D, **sizes) == "some reason"


def test_where_nothing_is_measured(gpu, monkeypatch):
    """There "auto" takes the kernel where it can, as "on" does everywhere."""
    calls = []
    answer(monkeypatch, Way(kernel=False, reason="measured"), calls)
    params, x = problem()
    assert runs(loss, params, x) == ["measured"]
    on = ScanOptions(kernels="on", platform="gpu")
    assert runs(lambda p, x: loss(p, x, options=on), params, x) == ["kernel"]
    monkeypatch.undo()
    assert tuning.device() is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    gpus = [types.SimpleNamespace(device_kind="some", compute_capability="9.0")]
    monkeypatch.setattr(jax, "local_devices", lambda: gpus)
    assert tuning.device()["capability"] == "9.0"
    with tracing_for("gpu"):
        assert tuning.device() is None
    monkeypatch.setenv("LNREPRO_MEASURE_KERNELS", "0")
    assert tuning.device() is None


def test_processes_have_one_answer(gpu, monkeypatch):
    """Process 0 gives it to the others, or it is the scan."""
    calls, said = [], {}
    client = types.SimpleNamespace(
        key_value_set=lambda name, text, allow_overwrite: said.update({name: text}),
        blocking_key_value_get=lambda name, timeout: said[name],
    )
    monkeypatch.setattr(distributed, "global_state", types.SimpleNamespace())
    distributed.global_state.client = client
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert runs(loss, *problem()) == ["several processes: 'on' takes the kernel"]
    monkeypatch.setenv("LNREPRO_MEASURE_KERNELS", "together")
    for process in (0, 1):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        answer(monkeypatch, Way(kernel=False, reason=f"process {process}"), calls)
        assert runs(loss, *problem()) == ["process 0"]
        tuning._known.clear()
        tuning.measured_kernels(forget=True)
    assert len(calls) == len(said) == 1
    # What fails in process 0 is said too.
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    monkeypatch.setattr(measure, "best_way", None)
    (reason,) = runs(loss, *problem())
    assert "it could not be measured: TypeError" in reason
    assert reason in said.popitem()[1].replace('\\"', '"')


def test_whatever_fails_means_the_scan(gpu, monkeypatch):
    def best_way(run, arguments):
        raise MemoryError("no memory\nand more")

    monkeypatch.setattr(measure, "best_way", best_way)
    reason = "it could not be measured: MemoryError: no memory"
    assert runs(loss, *problem()) == [reason]
    assert measured_kernels() == []


def test_a_damaged_answer_is_measured_again(gpu, monkeypatch):
    calls = []
    answer(monkeypatch, Way(kernel=True), calls)
    for text in ("", "{}", "[1]", "no JSON", None):
        assert runs(loss, *problem()) == ["kernel"]
        (path,) = kept.folder().iterdir()
        if text is not None:
            path.write_text(text)
        tuning._known.clear()
    assert len(calls) == 5
    # What cannot be written is not kept.
    monkeypatch.setattr(kept, "folder", lambda: path / "no folder")
    assert runs(loss, *problem()) == ["kernel"]
    assert measured_kernels() == []


def test_a_step_that_reads_what_is_around_is_not_measured(gpu):
    def outer(params, x, scale):
        def step(dot, params, h, x, context):
            return jnp.tanh(scale * dot("w", h) + x), None

        weights = {"w": jnp.eye(H)}
        return scan(step, weights, (), x[0], x, options=AUTO).outputs

    x = jnp.ones((T, B, H))
    (reason,) = runs(outer, (), x, 1.0)
    assert "reads traced arrays" in reason
