"""Programs compiled for a described device, and what their texts tell."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import SingleDeviceSharding

from lnrepro import functional
from scripts.benches import cells, programs
from scripts.benches.accelerators import bundles, cost, devices, program
from scripts.benches.direct import cells_jax
from scripts.benches.direct.cells_jax import Implementation


class Compiled(NamedTuple):
    """A compiled program.

    Attributes:
      executable: what JAX compiled.
      seconds: that it took.
      assumed_trips: of loops whose number of trips is data, see `program.Program`.
    """

    executable: Any
    seconds: float
    assumed_trips: int | None = None


class Loop(NamedTuple):
    """A loop of a program: numbers of one trip."""

    depth: int
    trips: int
    kernels: float
    cycles: float
    bytes: float
    scope: str


class Report(NamedTuple):
    """What is known of a compiled program.

    Attributes:
      device: name of the device.
      kernels: number of kernels that one call starts.
      cycles: the TPU compiler's estimate, with the schedules of Pallas kernels; 0 on a
        GPU.
      seconds: of a call. On a TPU cycles over the clock. On a GPU the sum over the
        kernels of the largest of 3 us, memory traffic and arithmetic at the peak rate.
      bytes: moved between the device and its memory.
      floor: bytes of the arguments and of the results.
      temporary: bytes of temporary memory.
      needed: bytes of arguments, results and temporary memory.
      fits: whether the device has them.
      compile_s: seconds to compile.
      loops: the loops, outer before inner ones.
      pallas: {kernel: (steps of its grid, bundles of a step, cycles)}.
      collectives: {kind: (times that it runs, bytes)}.
    """

    device: str
    kernels: float
    cycles: float
    seconds: float
    bytes: float
    floor: float
    temporary: float
    needed: float
    fits: bool
    compile_s: float
    loops: list[Loop]
    pallas: dict[str, tuple[int, int, float]]
    collectives: dict[str, tuple[float, float]]

    def as_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return self._asdict() | {"loops": [loop._asdict() for loop in self.loops]}


def compile_function(device: str, function: Implementation, count: int = 1) -> Compiled:
    """Compile a function of the benchmarks `cells` or `programs` for a device.

    Args:
      device: name of the device.
      function: the function.
      count: number of chips of the topology, of which one is used.
    """
    where = SingleDeviceSharding(devices.described(device, count)[0])
    shapes = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=where),
        function.arguments,
    )
    with devices.instead_of_cpu(device):
        began = time.perf_counter()
        made = devices.compile(device, jax.jit(function.function), *shapes)
        return Compiled(made, time.perf_counter() - began)


def functions(
    device: str, kind: str, name: str, shape: str | None = None
) -> dict[str, Implementation]:
    """Return the functions that are compared, with arguments on this machine's CPU.

    Args:
      device: name of the device that they will be compiled for.
      kind: "cell" or "program".
      name: a key of `cells.CELLS` or of `programs.PROGRAMS`.
      shape: of a cell, a key of `cells.SHAPES` or `cells.RIVALS`.
    """
    if kind == "program":
        return programs.implementations(name)
    labels = ("ours LN", "ours plain", "Flax LN", "Flax plain", "haiku plain")
    sizes = (cells.SHAPES | cells.RIVALS)[shape]
    made = cells.implementations(name, sizes, peers=("haiku",))
    made = {label: made[label] for label in labels if label in made}
    if devices.get(device).platform != "tpu":
        return made
    compared = cells.CELLS[name]
    for norm, make in (("LN", compared.ours), ("plain", compared.plain)):
        made[f"ours {norm}, Pallas"] = cells_jax.ours(
            make(sizes), sizes, options=functional.ScanOptions(kernels="on")
        )
    return made


def report(device: str, compiled: Compiled, words: Sequence[str]) -> Report:
    """Read a compiled program.

    Args:
      device: name of the device.
      compiled: the program.
      words: what names it, see `named.compile_named`.

    Raises:
      UserError: its text cannot be read.
    """
    kind = devices.get(device)
    text = program.read(compiled.executable.as_text(), compiled.assumed_trips)
    total = cost.of(text, rates=kind.rates)
    if kind.clock and not total.cycles and not total.pallas:
        raise program.unreadable("no instruction has an estimate of its cycles")
    pallas = _pallas(kind, text, total, words) if total.pallas else {}
    cycles = total.cycles + sum(of_kernel for _, _, of_kernel in pallas.values())
    memory = compiled.executable.memory_analysis()
    floor = memory.argument_size_in_bytes + memory.output_size_in_bytes
    needed = floor - memory.alias_size_in_bytes + memory.temp_size_in_bytes
    loops = []
    for loop in program.loops(text):
        body = cost.of(text, loop.body, kind.rates)
        numbers = (body.kernels, body.cycles, body.bytes)
        loops.append(Loop(loop.depth, loop.trips, *numbers, loop.scope))
    collectives = {}
    for name, times, size in total.collectives:
        before = collectives.get(name, (0, 0))
        collectives[name] = (before[0] + times, before[1] + size)
    return Report(
        device,
        total.kernels,
        cycles,
        cycles / kind.clock if kind.clock else total.seconds,
        total.bytes,
        floor,
        memory.temp_size_in_bytes,
        needed,
        needed <= kind.memory,
        compiled.seconds,
        loops,
        pallas,
        collectives,
    )


def _pallas(kind, text, total, words):
    """Return {kernel: (steps of its grid, bundles of a step, cycles of all runs)}."""
    instructions = {}
    for computation in text.computations.values():
        for instruction in computation.values():
            if instruction.target == cost.PALLAS:
                instructions[instruction.name] = instruction, computation
    of_step = bundles.schedules(words, [i for i, _ in instructions.values()])
    found = {}
    for name, times in total.pallas:
        instruction, computation = instructions[name]
        steps = bundles.grid(instruction)
        moved = cost.traffic(text, computation, instruction)
        # Traffic and arithmetic run at the same time.
        cycles = max(steps * of_step[name], moved / kind.bandwidth * kind.clock)
        before = found[name][2] if name in found else 0.0
        found[name] = steps, of_step[name], before + times * cycles
    return found


def loops_text(loops: Sequence[Loop]) -> str:
    """Return loops as "64 x 8 (32,221)": trips x kernels (cycles of a trip)."""
    texts = []
    for loop in loops:
        cycles = f" ({loop.cycles:,.0f})" if loop.cycles else ""
        texts.append(f"{loop.trips} x {loop.kernels:.0f}{cycles}")
    return "; ".join(texts)


def ratio(a: Report, b: Report) -> float:
    """Return kernels on a GPU or cycles on a TPU, of a over b."""
    return a.cycles / b.cycles if b.cycles else a.kernels / b.kernels
