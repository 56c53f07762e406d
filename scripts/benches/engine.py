"""Cost of the trainer beyond the compiled step, on MNIST, which must be prepared.

The cost is that of data, dispatch, logging and checkpoints. The compiled step gets
batches that are on the device already.
"""

import argparse
import contextlib
import functools
import io
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import jax
from ml_collections import ConfigDict

from configs import mnist
from lnrepro.engine.run import Run
from lnrepro.engine.train import train
from scripts.benches import cells, records

# {variant of the config: the number of steps of a run}.
STEPS = {"paper": 3_300, "paper_bz4": 15_600}
# The flags of `engine`.
add_arguments = cells.add_timing_arguments


def main(args: argparse.Namespace) -> None:
    """Print a Markdown table of medians, and the ratios of the loop to the step."""

    def rows_of(variant):
        calls = implementations(mnist.get_config(variant), STEPS[variant])
        return {label: {"ms": ms} for label, ms in cells.medians(calls, args).items()}

    table, ratios = cells.tabulate("the trainer", STEPS, rows_of), {}
    for variant, rows in table.items():
        batch_size = mnist.get_config(variant).batch_size
        # Start and end of a run do not count.
        loop = rows["run of 2 N"]["ms"] - rows["run of N"]["ms"]
        name = f"loop / bare step, batch {batch_size}"
        ratios[name] = loop / rows["N bare steps"]["ms"]
    records.write(args.json, "engine", ratios, table)


def implementations(config: ConfigDict, n: int) -> dict[str, Callable[[], Any]]:
    """Return a run of N steps, one of 2 N, and N steps of the compiled step alone.

    Args:
      config: the config.
      n: the number of steps.
    """
    # Evaluations and pictures are no part of the loop's own cost.
    config.evals, config.curves, config.best.metric = {}, (), None
    return {
        "run of N": functools.partial(_run, config, n),
        "run of 2 N": functools.partial(_run, config, 2 * n),
        "N bare steps": _bare(config, n),
    }


def _run(config, n):
    config = config.copy_and_resolve_references()
    config.steps = n
    silent = contextlib.redirect_stdout(io.StringIO())
    with tempfile.TemporaryDirectory() as folder, silent:
        train(config, pathlib.Path(folder) / "run")


def _bare(config, n) -> Callable[[], Any]:
    # Several batches, since one alone could stay in a cache of the processor.
    per_call = config.steps_per_call
    run, step, batches = first_batches(config, max(2, 400 // per_call), per_call)
    step, batches = jax.jit(step, donate_argnums=0), jax.device_put(batches)

    def call():
        state = run.initial()
        for i in range(n // per_call):
            state, _ = step(state, batches[i % len(batches)])
        return state

    return call


def first_batches(config: ConfigDict, count: int, steps: int) -> tuple[Run, Any, list]:
    """Return a run of a config, its function of a step, and its first batches.

    Args:
      config: the config.
      count: the number of batches.
      steps: the number of optimiser steps that a batch is for.
    """
    run = Run(config, pathlib.Path())
    with run.batches(0) as stream:
        batches = [stream.take(steps) for _ in range(count)]
    return run, functools.partial(run.step(), axis=None), batches
