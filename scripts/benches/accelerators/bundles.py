"""The schedules of Pallas kernels on TPUs.

libtpu writes them to the folder of LIBTPU_INIT_ARGS when a program is compiled. A
process of its own is needed, because libtpu reads its flags once, and because the dump
of every program would be slow.

A bundle of a schedule is what a TPU's core issues in one cycle. Waiting for memory is
not in it. The schedule is that of one step of the kernel's grid.
"""

import base64
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from jax._src.lib import tpu
from jax._src.lib.mlir import ir

from lnrepro.errors import RunError, UserError
from scripts.benches.accelerators import environment
from scripts.benches.accelerators.program import Instruction


def grid(instruction: Instruction) -> int:
    """Return the number of steps of a Pallas kernel's grid.

    Raises:
      UserError: it cannot be read.
    """
    try:
        body = base64.b64decode(_body(instruction))
        context = ir.Context()
        tpu.register_dialect(context)
        context.allow_unregistered_dialects = True
        context.load_all_available_dialects()
        with context:
            text = str(ir.Module.parse(body))
        bounds = re.search(r"iteration_bounds = array<i64(?:: ([\d, ]+))?>", text)
        sizes = (bounds[1] or "1").split(",")
    except (ValueError, KeyError, TypeError, ir.MLIRError) as e:
        raise UserError(
            f"the grid of the Pallas kernel {instruction.name} cannot be read: {e}"
        ) from e
    steps = 1
    for size in sizes:
        steps *= int(size)
    return steps


def _body(instruction):
    """Return the text of a Pallas kernel's program."""
    start = instruction.rest.index("backend_config=") + len("backend_config=")
    config, _ = json.JSONDecoder().raw_decode(instruction.rest, start)
    return config["custom_call_config"]["body"]


def schedules(
    words: Sequence[str], instructions: Sequence[Instruction]
) -> dict[str, int]:
    """Compile a program again and return the bundles of its Pallas kernels.

    Args:
      words: what names the program, see `named.compile_named`.
      instructions: the kernels.

    Returns:
      {name of an instruction: bundles}

    Raises:
      RunError: it fails, or a schedule is missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        variables = environment.variables()
        variables["LIBTPU_INIT_ARGS"] = (
            f"--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true"
        )
        command = [sys.executable, "-m", f"{__package__}.named", *words]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise RunError(f"the schedules of {' '.join(words)} are missing: {last}")
        return totals(pathlib.Path(folder), {i.name: _body(i) for i in instructions})


def totals(folder: pathlib.Path, bodies: Mapping[str, str]) -> dict[str, int]:
    """Return the bundles of kernels' schedules in a folder of libtpu's dumps.

    Args:
      folder: the folder.
      bodies: {kernel: its program}. Of equal ones libtpu writes one schedule.

    Raises:
      RunError: there is no schedule of a kernel.
    """
    found = {name: _total(folder, name) for name in bodies}
    of_body = {bodies[name]: n for name, n in found.items() if n is not None}
    for name, body in bodies.items():
        if body not in of_body:
            raise RunError(f"libtpu wrote no schedule of the Pallas kernel {name}")
    return {name: of_body[body] for name, body in bodies.items()}


def _total(folder, name):
    """Return the bundles of the schedule of this name, or None."""
    pattern = re.compile(rf"\d+-{re.escape(name)}-\d+-schedule-analysis_final_bundles")
    for path in folder.iterdir():
        if pattern.match(path.name):
            found = re.search(r"total scheduled bundles:\s+(\d+)", path.read_text())
            if found:
                return int(found[1])
    return None
