"""What the trainer costs beyond the compiled step: data, dispatch, logging, checkpoints; and the time to the first step."""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `scripts/bench.py engine`."""
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
        help="about how long a timed stretch of steps is",
    )
    parser.add_argument(
        "--json", type=pathlib.Path, help="also write the figures there"
    )


def main(args: argparse.Namespace) -> int:
    """Print a table; needs the prepared `mnist` data set."""
    from configs import mnist

    rows = []
    for variant in ("paper", "paper_bz4"):
        config = mnist.get_config(variant)
        config.evals = {}
        config.best.metric = None
        config.curves = ()
        rows.append(_ratio(config, args))
        r = rows[-1]
        print(
            f"{variant:<10} loop {r['loop_ms']:.3f} ms/step, bare step {r['bare_ms']:.3f} ms: ratio {r['ratio']:.3f} "
            f"(rounds {', '.join(f'{x:.3f}' for x in r['ratios'])}; {r['steps']} steps, "
            f"steps_per_call {config.steps_per_call})",
            flush=True,
        )
    launch = _first_step()
    print(
        f"command to first step: first launch {launch[0]:.1f} s, second (warm compilation cache) {launch[1]:.1f} s"
    )
    if args.json:
        args.json.write_text(
            json.dumps(
                {
                    "machine": platform.processor(),
                    "rows": rows,
                    "to_first_step_s": launch,
                },
                indent=2,
            )
            + "\n"
        )
    return 0


def _ratio(config, args) -> dict:
    """Wall time of train's loop after its first call, over the compiled step's on the same batches made beforehand."""
    from lnrepro.engine import train

    run = train.Run(config, pathlib.Path("unused"))
    compiled = run.placement.compile(run.step(), run.placement.place(run.initial()))
    n = config.steps_per_call
    with run.batches(0) as stream:
        batches = [
            run.placement.batch(jax.tree.map(np.array, stream.take(n)))
            for _ in range(max(2, 400 // n))
        ]

    def bare(calls: int) -> float:
        state, _ = compiled(run.placement.place(run.initial()), batches[0])
        jax.block_until_ready(state)
        began = time.perf_counter()
        for i in range(calls):
            state, _ = compiled(state, batches[(i + 1) % len(batches)])
        jax.block_until_ready(state)
        return time.perf_counter() - began

    calls = max(2, round(args.seconds / (bare(20) / 20)))
    config.steps = (calls + 1) * n

    pairs = [
        (_loop(config) / (calls * n), bare(calls) / (calls * n))
        for _ in range(args.rounds)
    ]
    ratios = [a / b for a, b in pairs]
    return {
        "batch_size": config.batch_size,
        "steps": calls * n,
        "loop_ms": 1e3 * statistics.median(a for a, _ in pairs),
        "bare_ms": 1e3 * statistics.median(b for _, b in pairs),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def _loop(config) -> float:
    from lnrepro.engine import train

    marks = []

    class Clock(train.Progress):
        def step(self, step):
            if not marks:
                marks.append(time.perf_counter())
            super().step(step)

    progress, train.Progress = (
        train.Progress,
        lambda total, step, quiet=False: Clock(total, step, quiet=True),
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = train.Run(config, pathlib.Path(folder), writing=True)
            train.Loop(run, assert_lock_held=lambda: None).train()
            ended = time.perf_counter()
            run.store.close()
    finally:
        train.Progress = progress
    return ended - marks[0]


def _first_step() -> list[float]:
    """Seconds from the command to its first step done, with an empty and with a warm compilation cache."""
    times = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("first", "second"):
            command = [
                sys.executable,
                "-m",
                "lnrepro.main",
                "--config=configs/mnist.py:paper",
                "--config.steps=1",
            ]
            command += [
                "--config.evals.valid=never",
                "--config.evals.test=never",
                "--config.best.metric=None",
                f"--workdir={scratch}/{name}",
            ]
            env = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{scratch}/cache"}
            began = time.perf_counter()
            with subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, text=True
            ) as process:
                for line in process.stdout:
                    if line.startswith("step 1/"):
                        times.append(time.perf_counter() - began)
                process.wait()
    return times
