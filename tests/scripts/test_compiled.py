"""Programs compiled for an H100 or a TPU: what is read in their texts.

The texts in tests/scripts/programs are XLA's, of two small functions of T 5, B 16 (B 32
on four chips) and H 128:

    h100.txt, v5e.txt   scan over tanh(x + h @ w)
    v5e-4.txt           value and gradient of mean(relu(x @ w)), x split over the chips
    v5e-pallas.txt      twice what a Pallas kernel with a grid of 2 x 5 returns
"""

import contextlib
import pathlib
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.skip_thoughts.triples import STEPS
from lnrepro.engine import config_file, distribute, experiment, optim
from lnrepro.engine.train_step import make_init, make_step
from lnrepro.errors import RunError, UserError
from lnrepro.functional.fast import platform
from scripts import bench
from scripts.benches import compiled
from scripts.benches.accelerators import (
    analysis,
    batches,
    bundles,
    cost,
    devices,
    environment,
    named,
    program,
)

PROGRAMS = pathlib.Path(__file__).parent / "programs"
# Bytes of a carry [16, 128] and of the weight [128, 128] in float32.
CARRY, WEIGHT = 16 * 128 * 4, 128 * 128 * 4
RATES = cost.Rates(bytes=1e12, flops=1e14, launch=3e-6)
CONFIGS = (
    "mnist",
    "convnet",
    "draw",
    "handwriting",
    "order_embeddings",
    "attentive_reader",
    "skip_thoughts",
)


def text_of(name):
    return (PROGRAMS / f"{name}.txt").read_text()


def test_a_gpu_program():
    text = program.read(text_of("h100"))
    (loop,) = program.loops(text)
    assert (loop.depth, loop.trips) == (0, 5)
    step = cost.of(text, loop.body, RATES)
    # Slice, product, tanh, write into the stack, counter.
    assert step.kernels == 5
    assert step.flops == 2 * 16 * 128 * 128
    # Of the stacks, the step reads and writes a row each. The others are the product's
    # three operands and its result, and tanh's; 16 bytes are counters.
    product = 3 * CARRY + WEIGHT
    assert step.bytes == 2 * CARRY + product + 2 * CARRY + 2 * CARRY + 16
    assert step.seconds == pytest.approx(5 * 3e-6)
    whole = cost.of(text, rates=RATES)
    assert whole.kernels == 5 * 5 + 3
    assert whole.flops == 5 * step.flops
    assert whole.bytes > 5 * step.bytes


def test_a_tpu_program():
    text = program.read(text_of("v5e"))
    (loop,) = program.loops(text)
    # These programs state no trips.
    assert "known_trip_count" not in text_of("v5e")
    assert loop.trips == 5
    step = cost.of(text, loop.body)
    assert step.cycles == 1832 + 2097
    # Carry and weight stay in the vector memory; x comes from HBM and h goes there.
    assert step.bytes == pytest.approx(2 * CARRY, abs=16)
    assert cost.of(text).cycles == 5 * step.cycles + 1849 + 2094


def test_the_collectives_of_four_chips():
    found = cost.of(program.read(text_of("v5e-4"))).collectives
    # One sum of the loss and of the gradient.
    assert found == (("all-reduce", 1, 4 + WEIGHT),)


def test_a_pallas_kernel_and_its_schedule(tmp_path):
    text = program.read(text_of("v5e-pallas"))
    assert cost.of(text).pallas == (("f.1", 1),)
    kernel = text.computations[text.entry]["f.1"]
    assert bundles.grid(kernel) == 2 * 5
    # x comes from HBM, and the result stays in the vector memory.
    traffic = cost.traffic(text, text.computations[text.entry], kernel)
    assert traffic == 5 * CARRY
    for name in ("f.1", "f.10", "TLP"):
        path = tmp_path / f"1234-{name}-70-schedule-analysis_final_bundles.txt"
        size = 52 if name == "f.1" else 1
        path.write_text(f"Schedule analysis:\n\ttotal scheduled bundles:    {size}\n")
    # Of equal kernels there is one schedule.
    assert bundles.totals(tmp_path, {"f.2": "a", "f.1": "a"}) == {"f.2": 52, "f.1": 52}
    with pytest.raises(RunError, match=r"no schedule of the Pallas kernel f\.2"):
        bundles.totals(tmp_path, {"f.1": "a", "f.2": "b"})
    broken = kernel._replace(rest=kernel.rest.replace('"body":"TUz', '"body":"AAA'))
    with pytest.raises(UserError, match=r"grid of the Pallas kernel f\.1 cannot be"):
        bundles.grid(broken)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("v5e", "direction=LT", "direction=NE", "the trips of while"),
        ("v5e", "constant(5)", "copy(%wide.arg_tuple.3)", "the trips of while"),
        ("v5e", "body=%wide.region_0.4.sunk", "body=%gone", "'gone', which is not"),
        ("v5e", "copy(%constant.10)", "add(%h.1, %h.1)", "the first value of the"),
        ("h100", "ENTRY %main.6", "%main.6", "no entry computation"),
        ("h100", "wrapped_tanh = f32[16,128]{1,0} fusion(", "wrapped_tanh(", "line 4"),
        ("h100", ") -> f32[1,16,128] {", ") f32[1,16,128] {", "%fused_dynamic_slice"),
        ("h100", "f32[16,128]", "f99[16,128]", "type 'f99'"),
    ],
)
def test_a_text_that_is_not_understood_is_an_error(name, old, new, message):
    text = text_of(name)
    assert old in text
    with pytest.raises(UserError, match=message) as failure:
        cost.of(program.read(text.replace(old, new)))
    assert "cannot be read" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_loop_over_data_takes_the_trips_that_are_assumed():
    # The limit comes from the state instead of a constant.
    text = text_of("v5e").replace(
        "compare(%get-tuple-element.29, %constant.13)",
        "compare(%get-tuple-element.29, %get-tuple-element.29)",
    )
    with pytest.raises(UserError, match="the trips of while depend on"):
        list(program.loops(program.read(text)))
    (loop,) = program.loops(program.read(text, assumed_trips=7))
    assert loop.trips == 7


def test_a_slice_in_place_counts_what_changes():
    text = program.read(
        "\n".join(
            (
                "ENTRY %main (p: f32[9,4], q: f32[1,4], i: s32[]) -> f32[9,4] {",
                "  %p = f32[9,4]{1,0} parameter(0)",
                "  %q = f32[1,4]{1,0} parameter(1)",
                "  %i = s32[] parameter(2)",
                "  %old = f32[1,4]{1,0} dynamic-slice(%p, %i, %i)",
                "  %new = f32[1,4]{1,0} add(%old, %q)",
                "  ROOT %r = f32[9,4]{1,0} dynamic-update-slice(%p, %new, %i, %i)",
                "}",
            )
        )
    )
    row, index = 16, 4
    assert cost.of(text).bytes == (2 * row + 2 * index) + 3 * row + 2 * row + 2 * index


def test_the_dearest_branch_counts():
    def branch(name, operations):
        lines = [f"%{name} (p: f32[4]) -> f32[4] {{", "  %p = f32[4]{0} parameter(0)"]
        lines += [f"  %a{i} = f32[4]{{0}} negate(%p)" for i in range(operations)]
        return [*lines, "  ROOT %z = f32[4]{0} negate(%p)", "}", ""]

    lines = [
        *branch("few", 1),
        *branch("many", 4),
        "ENTRY %main (p: pred[], x: f32[4]) -> f32[4] {",
        "  %p = pred[] parameter(0)",
        "  %x = f32[4]{0} parameter(1)",
        "  ROOT %r = f32[4]{0} conditional(%p, %x, %x), true_computation=%few, "
        "false_computation=%many",
        "}",
    ]
    assert cost.of(program.read("\n".join(lines))).kernels == 5


def test_an_unknown_device_lists_those_that_exist():
    with pytest.raises(UserError, match="h100, v4, v5e, v5p, v6e"):
        devices.get("v7")
    with pytest.raises(UserError, match="'h100', 'v4', 'v5e', 'v5p', 'v6e'"):
        bench.main(["compiled", "--device", "v7"])


def test_compilers_that_are_missing_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"install them with: scripts/accelerators\.sh"):
        bench.main(["compiled", "--device", "v5e"])


def test_versions_are_those_that_jax_asks_for():
    asked = environment.requirements()
    (plugin,) = (x for x in asked if x.startswith("jax-cuda12-plugin"))
    assert jax.__version__ in plugin
    assert any(x.startswith("libtpu==") for x in asked)


@pytest.mark.parametrize("name", CONFIGS)
def test_made_up_batches_are_like_the_real_ones(name):
    config = config_file.read(f"configs/{name}.py:smoke")
    with contextlib.closing(experiment.load(config).batches(0)) as stream:
        real = next(stream)
    made = batches.of(config, devices=4)
    assert made.keys() == real.keys()
    for key in made:
        for a, b in zip(
            jax.tree.leaves(made[key]), jax.tree.leaves(real[key]), strict=True
        ):
            assert (a.dtype, a.ndim) == (b.dtype, b.ndim), key
            assert len(a) == config.batch_size


def test_a_packed_batch_is_made_for_one_device():
    config = config_file.read("configs/order_embeddings.py:paper")
    assert len(batches.of(config, 4)["tokens"]) == 1
    batch = batches.of(config)
    assert len(batch["tokens"]) > 1
    # The mean of COCO's captions, with the end token.
    assert np.mean(batch["length"]) == pytest.approx(11.5, abs=0.5)


def test_shapes_have_the_shardings_that_arrays_get():
    shard = (("w", 1),)
    placement = distribute.make("jit", 8, model=2, shard=shard)
    state = {"w": np.zeros((4, 6)), "bias": np.zeros(6)}
    batch = {"x": np.zeros((1, 8, 3))}
    placed = placement.place(state), placement.batch(batch)
    shapes = placement.shapes(state, batch)
    for a, b in zip(jax.tree.leaves(placed), jax.tree.leaves(shapes), strict=True):
        assert a.sharding.is_equivalent_to(b.sharding, a.ndim)
        assert a.shape == b.shape

    def step(state, batch, axis):
        del axis
        return jax.tree.map(lambda v: v + jnp.sum(batch["x"]), state), {}

    # The program of the shapes is that of the arrays.
    of_shapes = placement.compile(step, shapes[0]).lower(*shapes).compile()
    new, _ = of_shapes(*placed)
    assert new["w"].sharding.is_equivalent_to(shapes[0]["w"].sharding, 2)


def test_a_placement_on_some_devices():
    some = jax.devices()[:2]
    placement = distribute.make("jit", 6, devices=some)
    assert placement.batch(np.zeros((1, 6))).sharding.device_set == set(some)
    with pytest.raises(UserError, match="does not divide over 2 devices"):
        distribute.make("jit", 5, devices=some)


def test_limits_name_what_is_compiled():
    for of_device in compiled.LIMITS.values():
        for (cell, shape), limits in of_device.items():
            assert cell in compiled.cells.CELLS
            assert shape in compiled.cells.SHAPES
            assert {"ours LN", "ours plain"} >= limits.keys()


def test_words_name_cells_and_programs(monkeypatch):
    def functions(device, *words):
        return {"ours LN": (device, *words)}

    monkeypatch.setattr(analysis, "functions", functions)
    monkeypatch.setattr(analysis, "compile_function", lambda *named: named)
    for words in (("cell", "h100", "gru", "draw"), ("program", "v5e", "ppo")):
        kind, device, *names = words
        found = named.compile_named((*words, "ours LN"))
        assert found == (device, (device, kind, *names))


def test_a_program_has_a_title():
    of_ppo = "64 actions in 64 environments, and 16 steps of the optimiser"
    assert compiled._title("v5e", "program", "ppo") == f"ppo, v5e: {of_ppo}"
    of_draw = "T 64 B 128 D 356 H 256, forward + backward"
    assert (
        compiled._title("h100", "cell", "gru", "draw") == f"gru, draw, h100: {of_draw}"
    )


needs_compilers = pytest.mark.skipif(
    not environment.folder().is_dir(),
    reason="the compilers are not installed: scripts/accelerators.sh",
)


@needs_compilers
@pytest.mark.slow
@pytest.mark.parametrize("device", ["h100", "v5e"])
def test_a_step_of_a_small_config(device, tmp_path, capfd):
    path = tmp_path / "steps.json"
    flags = ["--device", device, "--configs", "configs/draw.py:smoke"]
    assert bench.main(["compiled", *flags, "--json", str(path)]) == 0
    out = capfd.readouterr().out
    assert "| configs/draw.py:smoke | ours | yes |" in out
    with_kernels = "| configs/draw.py:smoke | ours, Pallas | yes |"
    assert (with_kernels in out) == (device == "v5e")
    assert "device-hours" in out
    assert "Estimates leave out" in out
    assert path.exists()


@needs_compilers
@pytest.mark.slow
def test_four_chips_sum_the_gradients_and_gather_nothing(capfd):
    flags = ["--device", "v5e", "--devices", "4", "--configs", "configs/mnist.py:smoke"]
    assert bench.main(["compiled", *flags]) == 0
    out = capfd.readouterr().out
    assert "all-reduce" in out
    assert "all-gather" not in out
    flags[3] = "3"
    assert bench.main(["compiled", *flags]) == 2
    assert "there are topologies of 1, 4, 8 v5e" in capfd.readouterr().err


def collectives(name):
    """Bytes of the collectives of a step on four devices, by their kinds.

    The partitioner of XLA is the same on all platforms, so the CPU's compiler tells
    them. The forms are those of a TPU.
    """

    def form_of_a_tpu(function, plans, *args):
        return function(plans["tpu"], *args)

    config = config_file.read(f"configs/{name}.py:smoke")
    placement = distribute.make("jit", config.batch_size, devices=jax.devices()[:4])
    choose = mock.patch.object(platform, "choose", form_of_a_tpu)
    with devices.instead_of_cpu("v5e", 4), choose:
        made = experiment.load(config)
        optimizer = optim.make(config.optimizer, experiment.total_steps(config))
        key = jax.random.key(0)
        state = jax.eval_shape(make_init(made, optimizer), key)
        batch = jax.tree.map(lambda x: x[None], batches.of(config, 4))
        state, batch = placement.shapes(state, batch)
        step = placement.compile(make_step(made, optimizer, key), state)
        text = step.lower(state, batch).compile().as_text()
    sizes = {}
    for computation in program.read(text).computations.values():
        for instruction in computation.values():
            if instruction.operation in cost.COLLECTIVES:
                size = sum(a.bytes for a in program.arrays(instruction.shape))
                kind = instruction.operation
                sizes[kind] = sizes.get(kind, 0) + size
    return sizes, config


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_data_parallelism_gathers_nothing_that_need_not_be(name):
    sizes, config = collectives(name)
    assert sizes.pop("all-reduce") > 0
    needed = 0
    if name == "order_embeddings":
        # Every caption is compared with every image, forward and backward, and a
        # vector or a matrix of all pairs crosses the devices.
        rows = config.batch_size
        needed = 4 * (2 * rows * config.model.units + 2 * rows + rows * rows)
    if name == "skip_thoughts":
        # The gradient of the word table is made of those of the words of the batch,
        # which are fewer numbers than the table.
        words = config.batch_size * (max(config.data.buckets) + 2 * STEPS)
        needed = 4 * words * (config.model.word_size + 1)
    assert sum(sizes.values()) <= needed, sizes
