"""Print the seconds of an optimiser step.

    python -m scripts.paper.cost CONFIG CORES [FLAG ...]

CORES is a list such as 0,1. FLAG is --config.FIELD=VALUE. With several seeds,
config.seeds, it is a step of all of them.
"""

import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
import time

STEPS = 5


def main(argv: list[str]) -> None:
    """Compile the step, and print the median time of a few."""
    config_name, cores, *flags = argv
    # Before JAX starts its threads.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])

    import jax

    from lnrepro.engine import config_file, experiment
    from lnrepro.engine.train import Run
    from lnrepro.engine.train_step import take

    config = experiment.fill_sizes(config_file.read(config_name, flags))
    # One call of the trainer's compiled program takes steps_per_call steps.
    n = config.steps_per_call
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, pathlib.Path(folder))
        state = run.placement.place(run.initial())
        step = run.placement.compile(run.step(), state)
        with contextlib.closing(run.batches(0)) as batches:
            batch = run.placement.batch(take(batches, n))
        seconds = []
        # The first call compiles.
        for _ in range(1 + STEPS):
            began = time.perf_counter()
            state, _ = jax.block_until_ready(step(state, batch))
            seconds.append((time.perf_counter() - began) / n)
        run.store.close()
    print(statistics.median(seconds[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
