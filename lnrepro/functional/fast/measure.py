"""`autotune`: a scan and its kernels, measured on the device at hand.

Every program is compiled and run in the calling thread, outside of any trace, on
made-up inputs of the sizes and dtypes of the user's own.
"""

import functools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from lnrepro.functional.arrays import floating, tree_at_least_f32
from lnrepro.functional.fast import disk_cache, kernels, platform, tuning
from lnrepro.functional.fast.kernels import Implementation

# Timed runs, of which the median counts.
RUNS = 5
# A kernel is taken where it takes at most so much of the scan's time.
ENOUGH = 0.9
# A kernel may be so many times as far from exact products as the scan is, and farther
# by what TF32 does to numbers.
TIMES, TF32 = 3.0, 2e-3
UNFINISHED = "its measurement did not end"
ROW = "{:<20} {:>6} {:>6} {!s:>8.7} {!s:>9.7} {!s:>8} {!s:>7} {!s:>8} {}"
COLUMNS = "cell", "rows", "steps", "scan ms", "kernel ms", "error"
COLUMNS += Implementation._fields


def autotune(function: Callable, *arguments: Any) -> list[dict]:
    """Measure the kernels of a function's scans, for `ScanOptions(kernels="auto")`.

    The function is traced anew, and nothing of it runs. Each scan in it is then timed
    on made-up inputs of its own sizes, as XLA's loop and as a kernel in a few layouts,
    and all results are compared with the scan at the precision "highest". A kernel that
    agrees and takes at most 0.9 of the time is what "auto" runs from then on, in every
    process on such a device, for exactly these equations, sizes, options and versions.
    A table is printed meanwhile. JAX's caches of traced and compiled functions are
    cleared. A scan that has a record is not measured again;
    `measured_kernels(forget=True)` deletes the records. A measurement that ended the
    process or failed is done again when it is asked for, after a line that says so.

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
    # Under jax.jit, a tracer is made even of what reads no argument.
    leaves = jax.tree.leaves((jnp.zeros(()), arguments))
    if any(isinstance(a, jax.core.Tracer) for a in leaves):
        raise RuntimeError("autotune: call it outside of jax.jit and its like")
    if jax.default_backend() not in tuning.PLATFORMS:
        print(f"autotune: there are no kernels for {jax.default_backend()}")
        return []
    # What was traced before would tell nothing.
    jax.clear_caches()
    noted = []
    with tuning.answering(noted.append):
        jax.eval_shape(function, *arguments)
    return measure(noted)


def measure(noted: list) -> list[dict]:
    """Measure scans that have no record, print a table, and return all records."""
    print(ROW.format(*COLUMNS))
    records = []
    # A scan may have been traced several times.
    for file, scan in {scan.file: scan for scan in noted}.items():
        records.append(_record(file, scan))
        print(ROW.format(*map(records[-1].get, COLUMNS)), flush=True)
    # So that the next call has the kernels.
    jax.clear_caches()
    return records


def _record(file, scan):
    """Return the record of a scan, which is measured if it has none."""
    record = tuning.records().get(file)
    if record and record["reason"] != UNFINISHED:
        return record
    if record:
        print("the measurement of the next scan did not end the last time")
    about = scan.about | tuning.machine()

    def keep(found):
        disk_cache.write(file, json.dumps(about | found))
        return about | found

    # It stays where a kernel aborts the process, so that it is the scan.
    keep(_scan(UNFINISHED))
    try:
        return keep(_measured(scan))
    except KeyboardInterrupt:
        disk_cache.remove(file)
        raise
    except jax.errors.JaxRuntimeError as e:
        # After any other error of a device its context may be lost.
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        return keep(_scan("the memory does not suffice to measure it"))


def _scan(reason):
    return Implementation(kernel=False, reason=reason)._asdict()


def _measured(scan):
    """Measure a scan; return its implementation and the numbers."""
    if scan.reason:
        return _scan(scan.reason)
    rng = np.random.default_rng(0)
    values = jax.tree.map(functools.partial(_made_up, rng), scan.arguments)
    loop = Implementation(kernel=False)
    # Who watches hears of kernels that are only tried.
    with platform.tracing_in(scan.context), kernels.watched() as seen:
        jax.eval_shape(_training_step(scan, Implementation(kernel=True)), *values)
        if kernels.KERNEL not in seen:
            return _scan(seen[0])
        with jax.default_matmul_precision("highest"):
            exact = _training_step(scan, loop)(*tree_at_least_f32(values))
        timed = functools.partial(_timed, scan, values, jax.device_get(exact))
        of_scan, limit, is_exact, _ = timed(loop)
        ms, error, is_same, layout = min(
            timed(Implementation(True, layout)) for layout in seen.layouts or [None]
        )
    # Where the fastest is wrong, the others are not trusted either.
    reason = ""
    if ms > ENOUGH * of_scan:
        reason = "the scan is as fast here"
    if not error <= TIMES * limit + TF32:
        reason = "the kernel computes other numbers than the scan here"
    if is_exact and not is_same:
        reason = "the kernel is not deterministic here"
    return {
        "kernel": not reason,
        "layout": layout and list(layout),
        "reason": reason,
        "scan ms": of_scan,
        "kernel ms": ms,
        "error": float(f"{error:.2g}"),
    }


def _timed(scan, values, exact, implementation):
    """Time a training step in some runs, and compare what each returns.

    Returns:
      (median ms, largest error or NaN, whether all have the same bits, layout).
    """
    step, times, errors, bits = _training_step(scan, implementation), [], [], set()
    for _ in range(RUNS):
        # The run before a timed one finds the device at rest.
        jax.block_until_ready(step(*values))
        start = time.perf_counter()
        results = jax.block_until_ready(step(*values))
        times.append(1e3 * (time.perf_counter() - start))
        results = jax.device_get(results)
        # An error is over the largest entry of an array, or over 1: what should be
        # zero is only rounding.
        errors += [
            np.abs(a - b).max(initial=0) / np.abs(b).max(initial=1)
            for a, b in zip(results, exact, strict=True)
        ]
        bits.add(b"".join(a.tobytes() for a in results))
    is_same, layout = len(bits) == 1, implementation.layout
    return statistics.median(times), np.max(errors), is_same, layout


def _training_step(scan, implementation):
    """The jitted function (*values) -> arrays of results and gradients."""

    def results(*arguments):
        return floating(scan.run(implementation, *arguments))

    @jax.jit
    def step(*arguments):
        # The gradients are those of half of the sum of their squares.
        found, pull = jax.vjp(results, *arguments)
        return jax.tree.leaves((found, floating(pull(found))))

    return step


def _made_up(rng, a):
    """An array like an argument of a scan."""
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        return jnp.zeros(a.shape, a.dtype)
    # Products by a weight [..., D, N] are of the size of what it multiplies.
    made = rng.standard_normal(a.shape) / np.sqrt((1, 1, *a.shape)[-2])
    if not jnp.issubdtype(a.dtype, jnp.floating):
        made = made > 0
    return jnp.asarray(made, a.dtype)
