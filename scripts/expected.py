"""Compare the embedded defaults with the numbers that docs/training.md expects of them.

    python scripts/expected.py --out DIR            train them, and compare
    python scripts/expected.py --out DIR --write    train them, and write the table

Every config trains its embedded default with seed 0, one after the other, in a folder
of DIR: about six minutes on two idle cores. The times are those of an idle machine
only. A release runs this once with --write; the page then holds what was measured.

Exit codes: 0 all numbers are within their tolerance; 1 some are not; 2 a mistake.
"""

import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from lnrepro.engine import provenance, workdir
from lnrepro.engine.command_line import Parser
from lnrepro.errors import RunError, UserError, ended
from scripts import page_sections
from scripts.benches import records

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "training.md"
SCRIPT = "scripts/expected.py"


class Expected(NamedTuple):
    """What is expected of the embedded default of a config.

    Attributes:
      words: what the page says, with {} in place of the number.
      metric: the number in results.json.
      factor: what it is multiplied by.
      digits: digits behind the decimal point.
      tolerance: largest difference, in the unit of the page. Other machines and
        versions sum floating-point numbers in another order.
    """

    words: str
    metric: str
    factor: float
    digits: int
    tolerance: float

    def number(self, results: Mapping[str, float]) -> float:
        """Return the number of a run, in the unit of the page."""
        return self.factor * results[self.metric]

    def stated(self, text: str) -> float:
        """Return the number that the page states."""
        pattern = re.escape(self.words).replace(r"\{\}", r"(-?\d+(?:\.\d+)?)")
        found = re.search(pattern, text)
        if not found:
            raise UserError(f"{PAGE}: there is no {self.words!r}; run with --write")
        return float(found[1])


DEFAULTS = {
    "mnist": Expected("test error {} %", "test/error", 100, 1, 1.5),
    "convnet": Expected("test error {} %", "test/error", 100, 1, 1.5),
    "sequential_mnist": Expected("test error {} %", "test/error", 100, 1, 6),
    "order_embeddings": Expected(
        "recall at 1 of {} % among 500 images", "final/image_r1", 1, 1, 3
    ),
    "attentive_reader": Expected(
        "validation error {} %; guessing has 86 %", "valid/error", 100, 1, 15
    ),
    "skip_thoughts": Expected(
        "Pearson {} on generated pairs; word counts have 0.61",
        "story_sick/pearson",
        1,
        2,
        0.04,
    ),
    "draw": Expected(
        "test bound {} nats per image", "test/bound_binarized_digits", 1, 1, 6
    ),
    "handwriting": Expected("validation NLL {} nats per line", "valid/nll", 1, 0, 10),
}


class Measured(NamedTuple):
    """A run: the time from the command to its table, and its results.json."""

    seconds: float
    results: Mapping[str, float]


def main(argv: list[str]) -> int:
    """Run the command line.

    Returns:
      The exit code.

    Raises:
      UserError: something that the user can correct.
      RunError: a run failed.
    """
    parser = Parser(prog="expected.py", description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--write", action="store_true", help="write the page")
    args = parser.parse_args(argv)
    runs = {name: train(name, args.out / name) for name in DEFAULTS}
    if args.write:
        page_sections.write(PAGE, SCRIPT, table(runs, machine()))
        print(f"wrote the table of {PAGE}")
        return 0
    outside = compare(page_sections.read(PAGE, SCRIPT), runs)
    print("\n".join(outside) or "all numbers are within their tolerance")
    return 1 if outside else 0


def train(name: str, folder: pathlib.Path) -> Measured:
    """Train an embedded default.

    Args:
      name: the config.
      folder: a new folder, the run directory.

    Raises:
      UserError: the folder exists.
      RunError: the run failed.
    """
    if folder.exists():
        raise UserError(f"{folder} exists; give a new folder, so that times are right")
    command = [sys.executable, "-m", "lnrepro.main", f"--config=configs/{name}.py"]
    began = time.monotonic()
    done = subprocess.run([*command, f"--workdir={folder.absolute()}"], cwd=ROOT)
    if done.returncode:
        raise RunError(f"configs/{name}.py ended with exit code {done.returncode}")
    seconds = time.monotonic() - began
    return Measured(seconds, workdir.read_results(folder) or {})


def compare(stated: str, runs: Mapping[str, Measured]) -> list[str]:
    """Return a line for each number that is not as the page states.

    Args:
      stated: the section of the page.
      runs: the runs by the names of their configs.
    """
    lines = []
    for name, run in runs.items():
        expected = DEFAULTS[name]
        (row,) = [
            line for line in stated.splitlines() if f"`configs/{name}.py`" in line
        ] or [""]
        number, there = expected.number(run.results), expected.stated(row)
        if not abs(number - there) <= expected.tolerance:
            lines.append(
                f"configs/{name}.py: {expected.words.format(f'{number:g}')}; the page "
                f"states {there:g}, with a tolerance of {expected.tolerance:g}"
            )
    return lines


def table(runs: Mapping[str, Measured], where: str) -> str:
    """Return the table in Markdown, and a sentence about where it was measured.

    Args:
      runs: the runs by the names of their configs.
      where: what `machine` returned.
    """
    rows = [
        "| config | time | what to expect, seed 0 | tolerance |",
        "|---|--:|---|--:|",
    ]
    for name, run in sorted(runs.items(), key=lambda item: item[1].seconds):
        expected = DEFAULTS[name]
        number = f"{expected.number(run.results):.{expected.digits}f}"
        rows.append(
            f"| `configs/{name}.py` | {run.seconds:.0f} s | "
            f"{expected.words.format(number)} | {expected.tolerance:g} |"
        )
    return "\n".join([*rows, "", f"Time from the command to the table, on {where}."])


def machine() -> str:
    """Return what the times and numbers depend on, in words."""
    cores = f"{os.cpu_count()} cores of {records.processor()}"
    jax = provenance.versions()["jax"]
    return f"{cores} (commit {records.commit()}, jax {jax})"


if __name__ == "__main__":
    ended(main, "this comparison")
