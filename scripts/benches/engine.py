"""Cost of the trainer beyond the compiled step, and the time to the first step.

The cost is that of data, dispatch, logging and checkpoints.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

from scripts.benches import records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `engine`."""
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="interleaved repetitions; the median is reported",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=15.0,
        help="approximate duration of each measurement",
    )
    records.add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """Measure, and print a table. The data set `mnist` must be prepared.

    Returns:
      0.
    """
    from configs import mnist

    rows = []
    for variant in ("paper", "paper_bz4"):
        config = mnist.get_config(variant)
        # Evaluations and pictures are no part of the loop's own cost.
        config.evals = {}
        config.best.metric = None
        config.curves = ()
        row = _ratio(config, args)
        rows.append(row)
        ratios = ", ".join(f"{ratio:.3f}" for ratio in row["ratios"])
        print(
            f"{variant:<10} loop {row['loop_ms']:.3f} ms/step, bare step "
            f"{row['bare_ms']:.3f} ms: ratio {row['ratio']:.3f} (rounds {ratios}; "
            f"{row['steps']} steps, steps_per_call {config.steps_per_call})",
            flush=True,
        )
    first, second = _first_steps()
    print(
        f"command to first step: first launch {first:.1f} s, second (warm compilation "
        f"cache) {second:.1f} s"
    )
    ratios = {}
    for row in rows:
        ratios[f"loop / bare step, batch {row['batch_size']}"] = row["ratio"]
    details = {"rows": rows, "to_first_step_s": [first, second]}
    records.write(args.json, "engine", ratios, details)
    return 0


def _ratio(config, args):
    """Compare the training loop, after its first call, with the compiled step alone.

    The compiled step gets the same batches, which are on the devices already.
    """
    from lnrepro.engine import train

    run = train.Run(config, pathlib.Path("unused"))
    compiled = run.placement.compile(run.step(), run.placement.place(run.initial()))
    n = config.steps_per_call
    batches = []
    with run.batches(0) as stream:
        # Several batches, since one alone could stay in a cache of the processor.
        for _ in range(max(2, 400 // n)):
            batch = jax.tree.map(np.array, stream.take(n))
            batches.append(run.placement.batch(batch))

    def bare_seconds(calls: int) -> float:
        # The first call is not timed, as in the loop.
        state, _ = compiled(run.placement.place(run.initial()), batches[0])
        jax.block_until_ready(state)
        began = time.perf_counter()
        for i in range(calls):
            state, _ = compiled(state, batches[(i + 1) % len(batches)])
        jax.block_until_ready(state)
        return time.perf_counter() - began

    # A short measurement tells how many calls take about `seconds`.
    calls = max(2, round(args.seconds / (bare_seconds(20) / 20)))
    steps = calls * n
    # The first call of n steps is not timed.
    config.steps = steps + n
    loop, bare = [], []
    for _ in range(args.rounds):
        # Interleaved, so that a slow phase of the machine affects both.
        loop.append(_loop_seconds(config) / steps)
        bare.append(bare_seconds(calls) / steps)
    ratios = [a / b for a, b in zip(loop, bare, strict=True)]
    return {
        "batch_size": config.batch_size,
        "steps": steps,
        "loop_ms": 1e3 * statistics.median(loop),
        "bare_ms": 1e3 * statistics.median(bare),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def _loop_seconds(config):
    """Return the duration of the training loop after its first call."""
    from lnrepro.engine import loop, train

    first_call = []

    class Clock(loop.Progress):
        """Progress that prints nothing and notes when the first call has ended."""

        def __init__(self, total, step, quiet=False, first=None):
            super().__init__(total, step, quiet=True)

        def step(self, step):
            if not first_call:
                first_call.append(time.perf_counter())
            super().step(step)

    progress, loop.Progress = loop.Progress, Clock
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = train.Run(config, pathlib.Path(folder), writing=True)
            loop.Loop(run, lambda: None, "not checked", is_new=True).train()
            ended = time.perf_counter()
            run.store.close()
    finally:
        loop.Progress = progress
    return ended - first_call[0]


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
