"""Training steps of a scan and of its kernel, measured on made-up inputs.

It is called while a program is traced, and knows nothing of that: its programs are
traced, compiled and run in other threads.
"""

import concurrent.futures
import math
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.functional.fast import kernels
from lnrepro.functional.fast.kernels import Way

# Seconds of a measurement, and of its compilers; steps of the sequences; runs of which
# the median counts.
SECONDS, COMPILERS, STEPS, RUNS = 10.0, 8.0, 64, 5
# A kernel is taken where it takes at most so much of the scan's time.
ENOUGH = 0.9
# A kernel may be so many times as far from exact products as the scan is, and farther
# by what TF32 does to numbers.
TIMES, TF32 = 3.0, 2e-3


class Result(NamedTuple):
    """What was found.

    Attributes:
      way: what to run.
      ms: milliseconds of a training step of each way.
      errors: distances from exact products, over the largest entry.
    """

    way: Way
    ms: dict[str, float]
    errors: dict[str, float]


def best_way(run: Callable, arguments: tuple) -> Result:
    """Return what is fastest, or the scan where a program runs longer than SECONDS.

    Args:
      run: (way, *arguments) -> results.
      arguments: pytrees (weights, params, carry, x, context), which may be traced.

    Raises:
      RuntimeError: the compilers take longer than COMPILERS. They go on, so that the
        next process may find in its caches what they make.
    """
    likes = [[_like(a) for a in jax.tree.leaves(tree)] for tree in arguments]
    trees = [jax.tree.structure(tree) for tree in arguments]
    # A thread does not have the settings of a context of this one.
    config: Any = jax.config
    settings = config.jax_enable_x64, config.jax_default_matmul_precision
    is_compiled = threading.Event()
    found = _beside(_best_way, run, likes, trees, settings, is_compiled)
    try:
        return found.result(SECONDS)
    except concurrent.futures.TimeoutError:
        if not is_compiled.is_set():
            raise _too_slow(SECONDS) from None
        return _scan(f"it could not be measured within {SECONDS:.0f} s")


def _too_slow(seconds):
    return RuntimeError(f"the compilers took more than {seconds:.0f} s")


def _scan(reason, ms=None, errors=None):
    return Result(Way(kernel=False, reason=reason), ms or {}, errors or {})


def _failed(error):
    lines = f"the kernel failed here: {type(error).__name__}: {error}".splitlines()
    return lines[0][:200]


def _beside(function, *arguments):
    """Call a function in a thread, which may be left alone; return its future."""
    future = concurrent.futures.Future()

    def work():
        try:
            future.set_result(function(*arguments))
        except BaseException as e:
            future.set_exception(e)

    threading.Thread(target=work, daemon=True).start()
    return future


def _best_way(run, likes, trees, settings, is_compiled):
    last = time.monotonic() + COMPILERS
    with jax.enable_x64(settings[0]):
        values = _made_up(likes)

    def lowered(way, values=values, precision=settings[1]):
        function = jax.jit(_training_step(run, trees, way))
        with jax.enable_x64(settings[0]), jax.default_matmul_precision(precision):
            return function.lower(values)

    def compiled(*arguments):
        with kernels.watched():
            return lowered(*arguments).compile()

    try:
        with kernels.watched() as seen:
            first = lowered(Way(kernel=True))
    except Exception as e:
        return _scan(_failed(e))
    if kernels.KERNEL not in seen:
        # It runs as the scan then, and says why.
        return Result(Way(kernel=True), {}, {})
    scan = _beside(compiled, Way(kernel=False))
    exact = _beside(compiled, Way(kernel=False), _widened(values), "highest")
    ways = {Way(kernel=True): _beside(first.compile)}
    for layout in range(1, seen.layouts):
        way = Way(kernel=True, layout=layout)
        ways[way] = _beside(compiled, way)

    # Nothing runs before all compilers have ended, which would slow it down.
    futures = [scan, exact, *ways.values()]
    concurrent.futures.wait(futures, max(0.0, last - time.monotonic()))
    if not all(future.done() for future in futures[:3]):
        raise _too_slow(COMPILERS)
    is_compiled.set()
    scan, exact = scan.result(), exact.result()(_widened(values))
    errors = {"scan": distance(scan(values), exact)}
    ms = {"scan": milliseconds(scan, values)}
    found, reason = [], "the scan is as fast here"
    for way, future in ways.items():
        if not future.done():
            continue
        name = f"kernel {way.layout}"
        try:
            program = future.result()
            errors[name] = distance(program(values), exact)
        except Exception as e:
            reason = _failed(e)
            continue
        if not errors[name] <= TIMES * errors["scan"] + TF32:
            reason = "the kernel computes other numbers than the scan here"
            continue
        ms[name] = milliseconds(program, values)
        found.append((ms[name], way))
    fastest, way = min(found, default=(math.inf, None))
    if way is None or fastest > ENOUGH * ms["scan"]:
        return _scan(reason, ms, errors)
    return Result(way, ms, errors)


def milliseconds(program: Callable, values: Any) -> float:
    """Return the median time of a program that has run before."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        jax.block_until_ready(program(values))
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def distance(found: Any, exact: Any) -> float:
    """Return the largest error of values and gradients, or NaN.

    It is over the largest entry of an array, or a hundredth of that of all: what should
    be zero is only rounding.
    """
    found, exact = (
        [[np.asarray(a, np.float64) for a in jax.tree.leaves(part)] for part in parts]
        for parts in (found, exact)
    )
    errors = [0.0]
    for of_part, exact_part in zip(found, exact, strict=True):
        sizes = [np.max(np.abs(a), initial=0.0) for a in exact_part]
        least = max(1e-30, *(0.01 * size for size in sizes)) if sizes else 1.0
        errors += [
            np.max(np.abs(a - b), initial=0.0) / max(size, least)
            for a, b, size in zip(of_part, exact_part, sizes, strict=True)
        ]
    return float(np.max(errors))


def _training_step(run, trees, way):
    """The function (values) -> (values of results, gradients)."""

    def loss(floating, values):
        pairs = zip(values, floating, strict=True)
        leaves = iter([a if b is None else b for a, b in pairs])
        leaves = [[next(leaves) for _ in range(tree.num_leaves)] for tree in trees]
        results = run(way, *map(jax.tree.unflatten, trees, leaves))
        results = [a for a in jax.tree.leaves(results) if _is_floating(a)]
        return sum(jnp.sum(jnp.sin(a.astype(jnp.float32))) for a in results), results

    def function(values):
        floating = [a if _is_floating(a) else None for a in values]
        gradients, results = jax.grad(loss, has_aux=True)(floating, values)
        return results, gradients

    return function


class _Like(NamedTuple):
    """What an array is like: its shape and dtype, and the generator of a key."""

    shape: tuple
    dtype: Any
    generator: Any


def _like(a):
    is_key = jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
    return _Like(a.shape, a.dtype, jax.random.key_impl(a) if is_key else None)


def _made_up(likes):
    """Arrays of all arguments, in one list, with at most STEPS steps."""
    rng = np.random.default_rng(0)

    def of_weight(shape):
        return rng.standard_normal(shape) / math.sqrt(shape[min(len(shape) - 2, 1)])

    def of_step(shape):
        return rng.standard_normal((min(shape[0], STEPS), *shape[1:]))

    # What all steps read, as gains, biases and noise, is positive.
    places = [of_weight, lambda shape: rng.uniform(0.5, 1.5, shape)]
    places += [rng.standard_normal, of_step, of_step]
    values = []
    for place, like in (
        (p, a) for p, of in zip(places, likes, strict=True) for a in of
    ):
        made = np.asarray(place(like.shape))
        if like.generator is not None:
            made = jax.random.split(jax.random.key(0, impl=like.generator), made.shape)
        elif like.dtype == bool:
            made = made > 0.5
        elif not jnp.issubdtype(like.dtype, jnp.floating):
            made = np.zeros(made.shape)
        values.append(jnp.asarray(made, like.dtype))
    return values


def _is_floating(a):
    return jnp.issubdtype(a.dtype, jnp.floating)


def _widened(values):
    """The values with float32 in place of what is narrower."""

    def wide(a):
        return a.astype(jnp.promote_types(a.dtype, jnp.float32))

    return [wide(a) if _is_floating(a) else a for a in values]
