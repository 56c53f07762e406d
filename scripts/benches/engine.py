"""Cost of the trainer beyond the compiled step, and the time to the first step.

The cost is that of data, dispatch, logging and checkpoints. The compiled step gets
batches that are on the device already.
"""

import argparse
import contextlib
import functools
import io
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import jax
from ml_collections import ConfigDict

from scripts.benches import records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `engine`."""
    records.add_json_flag(parser)


def main(args: argparse.Namespace) -> None:
    """Measure, and print a line for each batch size. `mnist` must be prepared."""
    from configs import mnist

    rows, found = {}, {}
    for variant in ("paper", "paper_bz4"):
        config = mnist.get_config(variant)
        # Evaluations and pictures are no part of the loop's own cost.
        config.evals = {}
        config.best.metric = None
        config.curves = ()
        row = rows[variant] = measure(config)
        found[f"loop / bare step, batch {config.batch_size}"] = row["ratio"]
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in row.items())
        print(f"{variant}: {numbers}", flush=True)
    first, second = _first_steps()
    print(
        f"command to first step: {first:.1f} s; warm compilation cache {second:.1f} s"
    )
    details = {"rows": rows, "to_first_step_s": [first, second]}
    records.write(args.json, "engine", found, details)


def measure(
    config: ConfigDict, rounds: int = 3, seconds: float = 15.0
) -> dict[str, float]:
    """Compare the training loop with the compiled step.

    A run of N steps is subtracted from one of 2 N, so that start and end do not count.

    Args:
      config: the config.
      rounds: interleaved repetitions, whose median is taken.
      seconds: approximate duration of each measurement.
    """
    n = config.steps_per_call
    bare = _bare(config)
    calls = max(2, round(seconds * 20 / bare(20)))
    loops, bares = [], []
    for _ in range(rounds):
        twice = _loop_seconds(config, 2 * calls * n)
        loops.append((twice - _loop_seconds(config, calls * n)) / calls / n)
        bares.append(bare(calls) / calls / n)
    ratios = [loop / bare for loop, bare in zip(loops, bares, strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "loop_ms": 1e3 * statistics.median(loops),
        "bare_ms": 1e3 * statistics.median(bares),
        "steps": calls * n,
    }


def _bare(config):
    """Return (number of calls) -> seconds of the compiled step alone."""
    from lnrepro.engine import train_step
    from lnrepro.engine.run import Run

    run = Run(config, pathlib.Path())
    step = functools.partial(run.step(), axis=None)
    compiled, initial = jax.jit(step, donate_argnums=0), run.initial()
    # Several batches, since one alone could stay in a cache of the processor.
    batches, stream = [], run.experiment.batches(0)
    for _ in range(max(2, 400 // config.steps_per_call)):
        batches.append(jax.device_put(train_step.take(stream, config.steps_per_call)))
    train_step.close(stream)

    def seconds(calls: int) -> float:
        # The first call compiles.
        state, _ = jax.block_until_ready(compiled(initial, batches[0]))
        began = time.perf_counter()
        for i in range(calls):
            state, _ = compiled(state, batches[(i + 1) % len(batches)])
        jax.block_until_ready(state)
        return time.perf_counter() - began

    return seconds


def _loop_seconds(config, total):
    """Return the duration of a run of so many steps."""
    from lnrepro.engine.train import train

    config = config.copy_and_resolve_references()
    config.steps = total
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            train(config, pathlib.Path(folder) / "run")
        return time.perf_counter() - began


def _first_steps():
    """Return the seconds from the command to the end of its first step.

    They are measured with an empty and with a warm compilation cache.
    """
    seconds = []
    # The run does one step and nothing else that takes time.
    flags = (
        "--config=configs/mnist.py:paper",
        "--config.steps=1",
        "--config.evals.valid=never",
        "--config.evals.test=never",
        "--config.best.metric=None",
    )
    with tempfile.TemporaryDirectory() as scratch:
        # Both launches share a cache that is empty at first.
        env = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{scratch}/cache"}
        for name in ("first", "second"):
            command = [sys.executable, "-m", "lnrepro.main", *flags]
            command.append(f"--workdir={scratch}/{name}")
            began = time.perf_counter()
            with subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, text=True
            ) as process:
                for line in process.stdout:
                    if line.startswith("step 1/"):
                        seconds.append(time.perf_counter() - began)
                process.wait()
    return seconds
