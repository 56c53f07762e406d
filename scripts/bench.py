"""Benchmarks on this machine, as ratios of medians in interleaved runs: python scripts/bench.py engine | cells | train [flags].

engine  what the trainer costs beyond the compiled step, on permutation-invariant MNIST at paper size
cells   the recurrent library against Flax, torch and whatever peers are installed
train   one optimiser step of an experiment against its most direct Flax version
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lnrepro.engine.errors import ended
from scripts.commands import dispatch

COMMANDS = ("engine", "cells", "train")


def main(argv: list[str]) -> int:
    """Run the command line. Raises UserError."""
    return dispatch(__doc__, "scripts.benches", COMMANDS, argv)


if __name__ == "__main__":
    ended(main, "this benchmark")
