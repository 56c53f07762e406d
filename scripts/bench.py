"""Benchmarks: python scripts/bench.py COMMAND [flags]

engine  what the trainer costs beyond the compiled step, on permutation-invariant MNIST
cells   the recurrent cells against Flax, torch and other libraries that are installed
switches  what options of the scan, precisions and flags of XLA do to a cell's time
precision  the error of gradients in bfloat16 and float16 against float64
programs  whole programs with Flax's cells and ours: PPO, a seq2seq
compiled  cells, programs and optimiser steps compiled for an H100 or a TPU, without one
train   one optimiser step of an experiment against its most direct Flax version
history  the ratios over commits, from the records that the others write with --json

Results are ratios of medians. The compared programs run interleaved.
"""

from lnrepro.errors import ended
from scripts.commands import dispatch

COMMANDS = (
    "engine",
    "cells",
    "switches",
    "precision",
    "programs",
    "compiled",
    "train",
    "history",
)


def main(argv: list[str]) -> int:
    """Run the command line.

    Raises:
      UserError: something that the user can correct.
    """
    return dispatch(__doc__, "scripts.benches", COMMANDS, argv)


if __name__ == "__main__":
    ended(main, "this benchmark")
