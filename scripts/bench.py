"""Benchmarks on this machine, as ratios of medians in interleaved runs: python scripts/bench.py engine | cells | train [flags].

engine  what the trainer costs beyond the compiled step, on permutation-invariant MNIST at paper size
cells   the recurrent library against Flax, torch and whatever peers are installed
train   one optimiser step of an experiment against its most direct Flax version
"""

import argparse
import importlib
import pathlib
import sys

SUBJECTS = ("engine", "cells", "train")


def main() -> int:
    """Dispatch to scripts/benches/SUBJECT.py."""
    root = pathlib.Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(root)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="subject", required=True)
    wanted = next((a for a in sys.argv[1:] if a in SUBJECTS), None)
    for subject in SUBJECTS:
        sub = commands.add_parser(subject)
        if subject == wanted:  # the others' imports would only take time
            bench = importlib.import_module(f"scripts.benches.{subject}")
            bench.add_arguments(sub)
            sub.set_defaults(main=bench.main)
    args = parser.parse_args()
    return args.main(args)


if __name__ == "__main__":
    sys.exit(main())
