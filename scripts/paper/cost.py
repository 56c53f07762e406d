"""Print the seconds of an optimiser step.

    python -m scripts.paper.cost CONFIG FLAG CORES

FLAG is a flag --config.FIELD=VALUE. CORES is a list such as 0,1, or empty for all.
"""

import os
import statistics
import sys

STEPS = 5


def main(argv: list[str]) -> None:
    """Compile the step, and print the median time of a few."""
    config_name, flag, cores = argv
    # Before JAX starts its threads.
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])

    from lnrepro.engine import config_file
    from scripts.benches.train import step_of

    step = step_of(config_file.read(config_name, [flag]))
    step.seconds()
    print(statistics.median(step.seconds() for _ in range(STEPS)))


if __name__ == "__main__":
    main(sys.argv[1:])
