"""Error of the gradient in narrow dtypes against float64, with time and memory.

Parameters and inputs have the dtype; statistics, gates and sums over time are float32.
"""

import argparse
import platform
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.functional import DreamerGRUCell, GRUCell, LSTMCell, unroll
from scripts import markdown as md
from scripts.benches import records

CELLS = {"lstm": LSTMCell, "gru": GRUCell, "dreamer": DreamerGRUCell}
DTYPES = ("float32", "bfloat16", "float16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `precision`."""
    parser.add_argument("--cell", choices=tuple(CELLS), default="lstm")
    parser.add_argument("--norms", nargs="+", default=["none", "layer", "rms"])
    parser.add_argument("--steps", nargs="+", type=int, default=[32, 128, 512])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument(
        "--gain",
        type=float,
        default=1.0,
        help="gain of the norms; at 1 a fresh network is chaotic over long sequences",
    )
    parser.add_argument("--seeds", type=int, default=3)
    records.add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """Print a Markdown table.

    Returns:
      0.
    """
    # float64 is the reference, and the narrow dtypes are unaffected by it.
    jax.config.update("jax_enable_x64", True)
    device = jax.devices()[0]
    print(
        f"{args.cell}, {device.device_kind} ({platform.machine()}), jax "
        f"{jax.__version__}, B {args.batch}, H {args.units}; error = |g - g64| / |g64| "
        f"over all parameters, median of {args.seeds} seeds; gain {args.gain:g}\n"
    )
    print(md.head(("norm", "T", "dtype", "error of the gradient", "ms", "temp MB")))
    errors = {}
    for norm in args.norms:
        gain = jax.nn.initializers.constant(args.gain)
        cell = CELLS[args.cell](args.units, norm, scale_init=gain)
        for steps in args.steps:
            for dtype in DTYPES:
                error, ms, megabytes = measure(cell, steps, dtype, args)
                errors[f"error, {norm}, T {steps}, {dtype}"] = error
                numbers = f"{error:.2g}", f"{ms:.0f}", f"{megabytes:.0f}"
                print(md.row((norm, steps, dtype, *numbers)), flush=True)
    records.write(args.json, f"precision, {args.cell}", errors)
    return 0


def measure(cell, steps, dtype, args):
    """Return the error of the gradient, milliseconds, and temporary memory in MB."""
    errors = []
    for seed in range(args.seeds):
        keys = jax.random.split(jax.random.key(seed), 3)
        params = cell.init(keys[0], args.units, jnp.float64)
        shape = (args.batch, steps, args.units)
        x, w = (jax.random.normal(key, shape, jnp.float64) for key in keys[1:])
        # Both start from the same numbers, those that the narrow dtype can hold.
        narrow = jax.tree.map(lambda a: a.astype(dtype), (params, x))
        exact = jax.tree.map(lambda a: a.astype(jnp.float64), narrow)
        gradient = _gradient_of(cell, w)
        compiled = jax.jit(gradient).lower(*narrow).compile()
        mine = _flat(compiled(*narrow))
        theirs = _flat(jax.jit(gradient)(*exact))
        errors.append(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs))
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        jax.block_until_ready(compiled(*narrow))
        seconds.append(time.perf_counter() - begin)
    memory = compiled.memory_analysis()
    megabytes = memory.temp_size_in_bytes / 1e6 if memory else float("nan")
    return statistics.median(errors), 1e3 * statistics.median(seconds), megabytes


def _gradient_of(cell, w):
    """(params, x) -> gradient with respect to the parameters."""

    def loss(params, x):
        outputs = unroll(cell, params, x).outputs
        # A sum, since the terms of a mean are below the range of float16.
        return jnp.sum(outputs.astype(jnp.float32) * w.astype(jnp.float32))

    return jax.grad(loss)


def _flat(tree):
    """All numbers of a tree as one vector in float64."""
    leaves = [np.asarray(a, np.float64).ravel() for a in jax.tree.leaves(tree)]
    return np.concatenate(leaves)
