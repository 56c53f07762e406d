"""Programs compiled for an H100 or a TPU: what is read in their texts.

The texts in tests/scripts/programs are XLA's, of two small functions of T 5, B 16 (B 32
on four chips) and H 128:

    h100.txt, v5e.txt   scan over tanh(x + h @ w)
    v5e-4.txt           value and gradient of mean(relu(x @ w)), x split over the chips
"""

import json
import pathlib

import jax
import pytest

from experiments.skip_thoughts.triples import STEPS
from lnrepro.engine import config_file
from lnrepro.errors import UserError
from lnrepro.functional.fast import platform
from scripts import bench
from scripts.benches import compiled
from scripts.benches.accelerators import environment, program
from tests.runs import EXPERIMENTS

PROGRAMS = pathlib.Path(__file__).parent / "programs"


def text_of(name):
    return (PROGRAMS / f"{name}.txt").read_text()


def test_kernels_cycles_and_collectives():
    # Slice, product, tanh, write into the stack and counter in each of five steps.
    assert program.count(program.read(text_of("h100")))["kernels"] == 5 * 5 + 3
    # These programs state no trips.
    assert "known_trip_count" not in text_of("v5e")
    cycles = program.count(program.read(text_of("v5e")))["cycles"]
    assert cycles == 5 * (1832 + 2097) + 1849 + 2094
    found = program.count(program.read(text_of("v5e-4")))
    # One sum of the loss and of the gradient [128, 128].
    assert found["all-reduce"] == 1
    assert found["all-reduce bytes"] == 4 + 4 * 128 * 128


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("v5e", "direction=LT", "direction=NE", "the trips of while"),
        ("v5e", "copy(%constant.10)", "add(%h.1, %h.1)", "the trips of while"),
        (
            "h100",
            "wrapped_tanh = f32[16,128]{1,0} fusion(",
            "wrapped_tanh(",
            "wrapped_tanh",
        ),
    ],
)
def test_a_text_that_is_not_understood_is_an_error(name, old, new, message):
    text = text_of(name)
    assert old in text
    with pytest.raises(UserError, match=message) as failure:
        program.count(program.read(text.replace(old, new)))
    assert "\n" not in str(failure.value)


def test_a_loop_over_data_takes_the_trips_that_are_assumed():
    # The limit comes from the state instead of a constant.
    compare = "compare(%get-tuple-element.29, %{})"
    text = text_of("v5e").replace(
        compare.format("constant.13"), compare.format("get-tuple-element.29")
    )
    with pytest.raises(UserError, match="the trips of while"):
        program.count(program.read(text))
    # A counter that begins at 2.
    later = text_of("v5e").replace("constant(0)", "constant(2)")
    cycles = program.count(program.read(later))["cycles"]
    assert cycles == 3 * (1832 + 2097) + 1849 + 2094
    cycles = program.count(program.read(text), assumed_trips=7)["cycles"]
    assert cycles == 7 * (1832 + 2097) + 1849 + 2094


BRANCHES = """
%few (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %z = f32[4]{0} negate(%p)
}

%many (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %a = f32[4]{0} negate(%p)
  %b = f32[4]{0} negate(%p)
  ROOT %z = f32[4]{0} negate(%p)
}

ENTRY %main (p: pred[], x: f32[4]) -> f32[4] {
  %p = pred[] parameter(0)
  %x = f32[4]{0} parameter(1)
  %g = (f32[4]{0}, f32[4]{0}) all-gather-start(%x), dimensions={0}
  %r = f32[4]{0} conditional(%p, %x, %x), true_computation=%few, false_computation=%many
  ROOT %s = pred[4]{0} conditional(%p, %x, %x), branch_computations={%few, %few}
}
"""


def test_the_dearest_branch_counts():
    found = program.count(program.read(BRANCHES))
    assert (found["kernels"], found["all-gather bytes"]) == (1 + 3 + 1, 16)
    assert program.size("(pred[2,3]{1,0}, bf16[<=4], f32[])") == 6 + 8 + 4


def test_missing_compilers_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"install them with: scripts/accelerators\.sh"):
        bench.main(["compiled", "--device", "v5e"])


def test_versions_are_those_that_jax_asks_for():
    libtpu, *plugins, _, _, _ = environment.requirements()
    assert libtpu.startswith("libtpu==")
    assert [name.partition("<")[0] for name in plugins] == [
        "jax-cuda12-plugin",
        "jax-cuda12-pjrt",
    ]
    assert all(jax.__version__ in name for name in plugins)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_data_parallelism_gathers_nothing_that_need_not_be(name, monkeypatch):
    # The partitioner of XLA is the same on all platforms, so the CPU's compiler tells.
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    config = config_file.read(f"configs/{name}.py:smoke")
    step, arguments = compiled.split_step(config, jax.devices()[:4])
    with platform.tracing_for("tpu"):
        lowered = step.lower(*arguments)
    text = lowered.compile().as_text()
    found = program.count(program.read(text), assumed_trips=1)
    assert found["all-reduce"] > 0
    needed = 0
    if name == "order_embeddings":
        # Every caption is compared with every image, forward and backward, and a
        # vector or a matrix of all pairs crosses the devices.
        rows = config.batch_size
        needed = 4 * (2 * rows * config.model.units + 2 * rows + rows * rows)
    if name == "skip_thoughts":
        # The gradient of the word table is made of those of the words of the batch,
        # which are fewer numbers than the table.
        words = config.batch_size * 3 * STEPS
        needed = 4 * words * (config.model.word_size + 1)
    others = [kind for kind in program.COLLECTIVES if kind != "all-reduce"]
    assert sum(found[f"{kind} bytes"] for kind in others) <= needed


needs_compilers = pytest.mark.skipif(
    not environment.folder().is_dir(),
    reason="the compilers are not installed: scripts/accelerators.sh",
)


def report(path, *flags):
    """What a command says of its programs."""
    assert bench.main(["compiled", "--json", str(path), *flags]) == 0
    return json.loads(path.read_text())["details"]


@needs_compilers
@pytest.mark.nightly
def test_a_step_of_a_config(tmp_path):
    name = "configs/draw.py:smoke"
    found = report(tmp_path / "steps.json", "--device", "h100", "--configs", name)
    assert found[name]["kernels"] > 100


@needs_compilers
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("device", "number", "limits"),
    [
        ("h100", "kernels", {"ours LN": 1160, "ours plain": 790}),
        ("v5e", "cycles", {"ours LN": 6.6e6, "ours plain": 3.5e6}),
    ],
)
def test_the_lstm_needs_no_more_than_it_did(tmp_path, device, number, limits):
    flags = ["--device", device, "--cells", "lstm", "--shapes", "draw"]
    found = report(tmp_path / "cells.json", *flags)["lstm, draw"]
    for label, limit in limits.items():
        assert 0 < found[label][number] <= limit
