"""Benchmarks: python scripts/bench.py COMMAND [flags]

engine    what the trainer costs beyond the compiled step, on MNIST
cells     the recurrent cells against Flax, and Haiku and torch if they are installed
programs  whole programs with Flax's cells and ours: PPO, a seq2seq
compiled  cells and optimiser steps compiled for an H100 or a TPU, without one

Results are ratios of medians. The compared programs run interleaved.
"""

from lnrepro.errors import ended
from scripts.commands import dispatch

COMMANDS = ("engine", "cells", "programs", "compiled")


def main(argv: list[str]) -> int:
    """Run the command line.

    Raises:
      UserError: something that the user can correct.
    """
    return dispatch(__doc__, "scripts.benches", COMMANDS, argv)


if __name__ == "__main__":
    ended(main, "this benchmark")
