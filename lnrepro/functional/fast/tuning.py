"""The choice between a kernel and the scan, measured once on the GPU at hand.

`ScanOptions(kernels="auto")` asks it for each cell and size:

    equations of a step, sizes, GPU, versions --> kept on disk? --> measured --> kept

Whatever fails means the scan.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.core

from lnrepro.functional.fast import kept, measure, platform
from lnrepro.functional.fast.kernels import Way

# "0" measures nothing, and "auto" takes a kernel wherever there is one. "together" says
# that all processes trace the same programs, so that process 0 measures for all. A
# program of several processes takes the scan otherwise.
VARIABLE = "LNREPRO_MEASURE_KERNELS"
A_DAY_MS = 24 * 3600 * 1000

_known: dict[str, Way] = {}


def measured_kernels(*, forget: bool = False) -> list[dict[str, Any]]:
    """Return what `ScanOptions(kernels="auto")` has measured on this machine.

    Args:
      forget: whether to delete it, so that it is measured again.

    Returns:
      A record of each cell and size, the newest last: what it was measured on, "rows"
      and "steps" (to the next power of two), whether it takes a "kernel", in which
      "layout", the "reason" against one, and milliseconds of a training step.

    >>> from lnrepro.functional import measured_kernels
    >>> isinstance(measured_kernels(), list)
    True
    """
    found = []
    with contextlib.suppress(OSError, RuntimeError):
        paths = kept.folder().glob("*.json")
        for path in sorted(paths, key=lambda path: path.stat().st_mtime):
            found.append(_record(kept.read(path.name)))
            if forget:
                path.unlink(missing_ok=True)
    if forget:
        _known.clear()
    return [record for record in found if record]


def choose(run: Callable, arguments: tuple, equations: Any, options: Any) -> Way:
    """Return how a scan runs best. It never raises.

    Args:
      run: (way, *arguments) -> results. It is called in other threads.
      arguments: pytrees (weights, params, carry, x, context), which may be traced.
      equations: the closed jaxpr of a step.
      options: the ScanOptions of the scan.
    """
    about = device()
    if about is None or (options.platform or platform.current()) != "gpu":
        return Way(kernel=True)
    try:
        return _choose(run, arguments, equations, options, about)
    except Exception as e:
        return _failed(e)


def _failed(error):
    lines = f"it could not be measured: {type(error).__name__}: {error}".splitlines()
    return Way(kernel=False, reason=lines[0][:200])


def device() -> dict[str, Any] | None:
    """Return what an answer depends on of this machine, or None to measure nothing.

    A program that is traced for another machine is not measured here.
    """
    is_off = os.environ.get(VARIABLE) == "0"
    if is_off or jax.default_backend() != "gpu" or platform.is_forced():
        return None
    # Only those who use a kernel wait until its modules are imported.
    from lnrepro.functional.fast.gpu import driver

    gpu = jax.local_devices()[0]
    return {
        "device": gpu.device_kind,
        "capability": str(getattr(gpu, "compute_capability", "unknown")),
        "driver": driver.version(),
        "jax": jax.__version__,
    }


def _choose(run, arguments, equations, options, about):
    shapes = [jax.typeof(a) for a in jax.tree.leaves(arguments)]
    is_open = not all(isinstance(n, int) for a in shapes for n in a.shape)
    if is_open or any(any(a.sharding.spec) for a in shapes):
        # There is no kernel then, and it says why.
        return Way(kernel=True)
    if any(isinstance(a, jax.core.Tracer) for a in equations.consts):
        return Way(kernel=False, reason="a step reads traced arrays of what is around")
    is_one = jax.process_count() == 1
    if not is_one and os.environ.get(VARIABLE) != "together":
        return Way(kernel=False, reason="several processes: 'on' takes the kernel")
    *_, carry, x, context = arguments
    h = jax.tree.leaves(carry)[0]
    rows, steps = h.size // h.shape[-1], jax.tree.leaves((x, context))[0].shape[0]
    about = about | {"rows": _power(rows), "steps": _power(min(steps, measure.STEPS))}
    key = _key(equations.jaxpr, rows, options, about)
    if key not in _known:
        answer = functools.partial(_answer, run, arguments, key, about)
        record = answer() if is_one else _of_process_0(key, answer)
        _known[key] = Way(record["kernel"], record["layout"], record["reason"])
    return _known[key]


def _power(n):
    """The next power of two."""
    return 1 << (n - 1).bit_length()


def _key(jaxpr, rows, options, about):
    """A name of all that an answer depends on."""
    # Batches of other sizes have the same equations, but for these numbers. (Where H is
    # as large as the batch, both are replaced, and its answer is its own.) Functions
    # are printed with their addresses.
    text = re.sub(rf"(?<![\w.]){rows}(?![\w.])", "rows", str(jaxpr))
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    config: Any = jax.config
    settings = str((options, config.jax_default_matmul_precision))
    words = [text, settings, json.dumps(about), _code()]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


@functools.cache
def _code():
    """A digest of the code that makes a kernel, or a loop, of equations."""
    here = pathlib.Path(__file__).parent
    paths = [here.parent / "scan.py", *here.rglob("*.py"), *here.rglob("*.cuh")]
    return hashlib.sha256(b"".join(p.read_bytes() for p in sorted(paths))).hexdigest()


def _record(text):
    """The record that a file holds, or None."""
    with contextlib.suppress(ValueError):
        record = json.loads(text or "")
        if isinstance(record, dict) and record.keys() >= set(Way._fields):
            return record
    return None


def _of_process_0(key, act):
    """What a function returns in process 0, in all processes."""
    # JAX has no public name for it; Orbax uses it, too. A process waits for process 0
    # alone.
    from jax._src import distributed

    state: Any = distributed.global_state
    client, name = state.client, f"lnrepro/kernels/{key}"
    if jax.process_index():
        return json.loads(client.blocking_key_value_get(name, A_DAY_MS))
    record = act()
    client.key_value_set(name, json.dumps(record), allow_overwrite=True)
    return record


def _answer(run, arguments, key, about):
    """The record of an answer, kept or measured. What fails is not kept."""
    record = _record(kept.read(f"{key}.json"))
    if record is not None:
        return record
    try:
        found = measure.best_way(run, arguments)
    except Exception as e:
        return _failed(e)._asdict()
    record = about | found.way._asdict() | {"ms": found.ms, "errors": found.errors}
    # Without times there is no kernel to choose.
    if found.ms or not found.way.kernel:
        kept.write(f"{key}.json", json.dumps(record, indent=1))
    return record
