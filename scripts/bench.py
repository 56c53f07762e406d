"""Benchmarks: python scripts/bench.py COMMAND [flags]

engine    what the trainer costs beyond the compiled step, on MNIST
cells     the recurrent cells against Flax, and on a GPU cuDNN
programs  whole programs with Flax's cells and ours: PPO, a seq2seq
compiled  cells and optimiser steps compiled for an H100 or a TPU, without one

Results are ratios of medians. The compared programs run interleaved.
"""

import importlib
import pathlib

from lnrepro.engine.command_line import Parser
from lnrepro.errors import run_script

COMMANDS = ("engine", "cells", "programs", "compiled")


def main(argv: list[str]) -> int | None:
    """Run a command of scripts/benches: its `add_arguments`, then its `main`.

    Raises:
      UserError: something that the user can correct.
    """
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in COMMANDS:
        command = commands.add_parser(name)
        json = {"type": pathlib.Path, "metavar": "FILE", "help": "also write a record"}
        command.add_argument("--json", **json)
        # Importing the others would only take time.
        if name in argv[:1]:
            module = importlib.import_module(f"scripts.benches.{name}")
            module.add_arguments(command)
            command.set_defaults(main=module.main, arguments=argv)
    args = parser.parse_args(argv)
    return args.main(args)


if __name__ == "__main__":
    run_script(main, "this benchmark")
