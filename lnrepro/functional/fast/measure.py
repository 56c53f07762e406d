"""`autotune`: a scan and its kernels, measured on the device at hand.

Every program is compiled and run in the calling thread, outside of any trace, on
made-up inputs of the sizes and dtypes of the user's own.
"""

import contextlib
import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from lnrepro.functional.fast import kept, kernels, platform, tuning
from lnrepro.functional.fast.kernels import Way

# Timed runs, of which the median counts.
RUNS = 5
# A kernel is taken where it takes at most so much of the scan's time.
ENOUGH = 0.9
# A kernel may be so many times as far from exact products as the scan is, and farther
# by what TF32 does to numbers.
TIMES, TF32 = 3.0, 2e-3
# What a record says until its measurement ends.
UNFINISHED = "its measurement did not end"
ROW = "{:<20} {:>7} {:>7} {:>10} {:>10} {:>8}  {}"
COLUMNS = ("rows", "steps", "scan ms", "kernel ms", "error")


def autotune(function: Callable, *arguments: Any) -> list[dict]:
    """Measure the kernels of a function's scans, for `ScanOptions(kernels="auto")`.

    The function is traced anew, and nothing of it runs. Each scan in it is then timed
    on made-up inputs of its own sizes, as XLA's loop and as a kernel in a few layouts,
    and all results are compared with the scan at the precision "highest". A kernel that
    agrees and takes at most 0.9 of the time is what "auto" runs from then on, in every
    process on such a device, for exactly these equations, sizes, options and versions.
    A table is printed meanwhile. JAX's caches of traced and compiled functions are
    cleared. A scan that has a record is not measured again;
    `measured_kernels(forget=True)` deletes the records.

    A function over several devices is measured where it uses `jax.shard_map`. Under
    `jax.vmap` a program has other rows than its trace, and no kernel is taken.

    Args:
      function: a jitted training step, a `jax.grad`, or any other function.
      *arguments: its arguments as `jax.eval_shape` takes them: pytrees of arrays or of
        `jax.ShapeDtypeStruct`s.

    Returns:
      The records of its scans; none where the platform has no kernels.

    Raises:
      RuntimeError: it is called inside of a trace, or a program failed on the device,
        which then may be lost: start a new process.
      OSError: a record cannot be written.

    >>> from lnrepro.functional import LSTMCell, autotune, unroll
    >>> cell = LSTMCell(8)
    >>> params = cell.init(jax.random.key(0), features_in=3)
    >>> x = jax.ShapeDtypeStruct((2, 5, 3), "float32")
    >>> autotune(lambda params, x: unroll(cell, params, x).outputs, params, x)
    autotune: there are no kernels for cpu
    []
    """
    # A trace makes a tracer even of what reads no argument.
    leaves = jax.tree.leaves((jnp.zeros(()), arguments))
    if any(isinstance(a, jax.core.Tracer) for a in leaves):
        raise RuntimeError("autotune: call it outside of jax.jit and its like")
    if jax.default_backend() not in tuning.PLATFORMS:
        print(f"autotune: there are no kernels for {jax.default_backend()}")
        return []
    # What was traced before would tell nothing.
    jax.clear_caches()
    with noting() as noted:
        jax.eval_shape(function, *arguments)
    return measure(noted)


@contextlib.contextmanager
def noting() -> Iterator[dict]:
    """Note the scans that are traced inside: {file of its record: scan}."""
    noted, said = {}, set()

    def answer(scan):
        if reason := scan.reason():
            line = f"{scan.cell} is not measured: {reason}"
            # A scan may be traced several times.
            if line not in said:
                print(line)
            said.add(line)
        else:
            noted.setdefault(scan.file, scan)
        return Way(kernel=False)

    with tuning.answering(answer):
        yield noted


def measure(noted: dict) -> list[dict]:
    """Measure scans that have no record, print a table, and return all records."""
    records = []
    print(ROW.format("cell", *COLUMNS, f"taken, of {len(noted)} scans"))
    for file, scan in noted.items():
        record = _record(file, scan)
        records.append(record)
        taken = record["reason"] or f"kernel {list(record['layout'] or ())}"
        numbers = [f"{record.get(name, math.nan):.3g}" for name in COLUMNS]
        print(ROW.format(scan.cell, *numbers, taken), flush=True)
    if any(record["kernel"] for record in records):
        # So that the next call has them.
        jax.clear_caches()
    return records


def _record(file, scan):
    """The record of a scan, which is measured unless there is one."""
    record = tuning.read(file)
    if record and record["reason"] != UNFINISHED:
        return record
    if record:
        print(f"{scan.cell}: {UNFINISHED} the last time")
    record = {"cell": scan.cell} | scan.sizes | tuning.machine() | _scan(UNFINISHED)
    # Where a kernel aborts the process this stays, so that the scan is taken.
    kept.write(file, json.dumps(record))
    try:
        record |= _measured(scan)
    except KeyboardInterrupt:
        kept.remove(file)
        raise
    except jax.errors.JaxRuntimeError as e:
        # After any other error of a device its context may be lost.
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        record |= _scan("the memory does not suffice to measure it")
    kept.write(file, json.dumps(record))
    return record


def _scan(reason):
    return Way(kernel=False, reason=reason)._asdict()


def _measured(scan):
    """Measure a scan; return its way and the numbers."""
    made_up = functools.partial(_made_up, np.random.default_rng(0))
    # Who watches hears of kernels that are only tried.
    with platform.tracing_in(scan.context), kernels.watched() as seen:
        values = jax.tree.map(made_up, scan.arguments)
        _training_step(scan, Way(kernel=True), values)
        if kernels.KERNEL not in seen:
            return _scan(seen[0])
        wide = jax.tree.map(_widened, values)
        with jax.default_matmul_precision("highest"):
            program = _training_step(scan, Way(kernel=False), wide).compile()
        exact = jax.device_get(program(*wide))
        plain = _timed(scan, Way(kernel=False), values, exact)
        found = {
            layout: _timed(scan, Way(kernel=True, layout=layout), values, exact)
            for layout in tuple(seen.layouts) or (None,)
        }
    # Where the fastest is wrong, the others are not trusted either.
    layout, best = min(found.items(), key=lambda one: one[1].ms)
    reason = ""
    if best.ms > ENOUGH * plain.ms:
        reason = "the scan is as fast here"
    if not best.error <= TIMES * plain.error + TF32:
        reason = "the kernel computes other numbers than the scan here"
    if plain.is_same and not best.is_same:
        reason = "the kernel is not deterministic here"
    way = _scan(reason) if reason else Way(kernel=True, layout=layout)._asdict()
    return way | {"scan ms": plain.ms, "kernel ms": best.ms, "error": best.error}


class Runs(NamedTuple):
    """Runs of a program: median ms, largest error, whether all have the same bits."""

    ms: float
    error: float
    is_same: bool


def _timed(scan, way, values, exact):
    """Time a training step, and compare what each run returns."""
    program = _training_step(scan, way, values).compile()
    times, errors = [], {}
    for _ in range(RUNS):
        # The run before a timed one finds the device at rest.
        jax.block_until_ready(program(*values))
        start = time.perf_counter()
        results = jax.block_until_ready(program(*values))
        times.append(1e3 * (time.perf_counter() - start))
        results = jax.device_get(results)
        bits = b"".join(a.tobytes() for a in jax.tree.leaves(results))
        if bits not in errors:
            errors[bits] = float(np.max(list(map(distance, results, exact))))
    return Runs(statistics.median(times), np.max([*errors.values()]), len(errors) == 1)


def distance(found: list, exact: list) -> Any:
    """Return the largest error of some arrays, or NaN.

    It is over the largest entry of an array, or a hundredth of that of all: what should
    be zero is only rounding.
    """
    sizes = [np.max(np.abs(b), initial=1e-30) for b in exact]
    least = 0.01 * max(sizes)
    pairs = zip(found, exact, sizes, strict=True)
    errors = [np.max(np.abs(a - b), initial=0) / max(n, least) for a, b, n in pairs]
    return np.max(errors, initial=0)


def _training_step(scan, way, values):
    """The traced function (*values) -> (values of results, gradients)."""

    def results(*arguments):
        found = jax.tree.leaves(scan.run(way, *arguments))
        return [a for a in found if jnp.issubdtype(a.dtype, jnp.floating)]

    def step(*arguments):
        # The gradients are those of half of the sum of their squares.
        found, pull = jax.vjp(results, *arguments)
        gradients = jax.tree.leaves(pull(found))
        return found, [d for d in gradients if d.dtype != jax.dtypes.float0]

    return jax.jit(step).lower(*values)


def _made_up(rng, a):
    """An array like an argument of a scan."""
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        key = jax.random.key(0, impl=jax.random.key_impl(a))
        return jax.random.split(key, a.shape)
    made = rng.standard_normal(a.shape)
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return jnp.asarray(made > 0, a.dtype)
    # Products by a weight [..., D, N] are of the size of what it multiplies.
    return jnp.asarray(made / math.sqrt((1, 1, *a.shape)[-2]), a.dtype)


def _widened(a):
    return a.astype(jnp.float32) if a.dtype == jnp.bfloat16 else a
