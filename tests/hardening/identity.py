"""What does not belong to a run, and processes that do not belong together.

A run of mnist:smoke is stopped. In each trial a copy of it is changed, and goes on with
the same command: it must end with an exit code above 0 and one line that names what is
wrong, and no file may have changed. Other trials start wrong commands or processes that
differ. The changes are drawn by a seed, so that a trial can be repeated.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import socket
from collections.abc import Callable
from typing import NamedTuple

from tests.hardening.kills import longer
from tests.runs import run, start

FLAGS = longer("configs/mnist.py:smoke")
# The last line of a process that another one made stop.
PEERS = "differs between the processes of this run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `identity`."""
    add = parser.add_argument
    add("--repeats", type=int, default=3, help="number of times of each trial")
    add("--only", default="", help="only the trials with this in their name")
    add("--seed", type=int, default=0)
    add(
        "--out",
        type=pathlib.Path,
        required=True,
        help="folder for the runs and identity.md",
    )


class Trial(NamedTuple):
    """A trial.

    Attributes:
      name: what is done.
      says: a regular expression that the last line of stderr matches.
      change: (run directory, another stopped run, random) -> None, or None.
      flags: further flags of the command; of process 1 where there are two.
      processes: --num_processes of each process; () for a single one.
    """

    name: str
    says: str
    change: Callable[[pathlib.Path, pathlib.Path, random.Random], None] | None = None
    flags: tuple[str, ...] = ()
    processes: tuple[int, ...] = ()


def other_checkpoints(folder, other, rng):
    """Put the checkpoints of another seed in place."""
    shutil.rmtree(folder / "checkpoints")
    shutil.copytree(other / "checkpoints", folder / "checkpoints")


def other_records(folder, other, rng):
    """Put the records of another seed in place."""
    shutil.copy(other / "metrics.jsonl", folder / "metrics.jsonl")


def edited_record(folder, other, rng):
    """Change one number of one record."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines()
    # Records after the newest checkpoint are written again.
    number = rng.randrange(3)
    record = json.loads(lines[number])
    name = rng.choice([name for name in record if "/" in name])
    record[name] *= 0.9
    lines[number] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


def edited_config(folder, other, rng):
    """Change the seed, the data or the learning rate in config.json."""
    path = folder / "config.json"
    about = json.loads(path.read_text())
    field, value = rng.choice([("seed", 7), ("norm", "none"), ("batch_size", 32)])
    about["config"][field] = value
    path.write_text(json.dumps(about))


def removed(name):
    """Return a change that removes a file."""

    def change(folder, other, rng):
        (folder / name).unlink()

    return change


def replaced(name, by):
    """Return a change that puts a pipe, a device, a folder or a text in place."""

    def change(folder, other, rng):
        path = folder / name
        path.unlink(missing_ok=True)
        if by == "pipe":
            os.mkfifo(path)
        elif by == "device":
            path.symlink_to("/dev/zero")
        elif by == "folder":
            path.mkdir()
        else:
            path.write_text(by)

    return change


NO_FILE = [
    Trial(f"{name}: a {by} in its place", "is no regular file", replaced(name, by))
    for name in ("config.json", "metrics.jsonl", "results.json")
    for by in ("pipe", "device", "folder")
]
TRIALS = [
    Trial(
        "checkpoints of another seed", "checkpoint of another run", other_checkpoints
    ),
    Trial("metrics.jsonl of another seed", "are not those that go with", other_records),
    Trial("one edited record", "are not those that go with", edited_record),
    Trial("edited config.json", "holds a run of another config", edited_config),
    Trial("removed config.json", "but no config.json", removed("config.json")),
    Trial("empty results.json", "is damaged: remove it", replaced("results.json", "")),
    *NO_FILE,
    Trial(
        "seeds 10**8",
        "seeds = 100000000: at least 1",
        flags=("--config.seeds=100000000",),
    ),
    Trial("a misspelt evaluation", "no field", flags=("--config.evals.tset=end",)),
    Trial(
        "a misspelt best.metric",
        "not measured",
        flags=("--config.best.metric=valid/eror",),
    ),
    Trial(
        "two seeds together", f"config.seed {PEERS}", None, ("--config.seed=1",), (2, 2)
    ),
    Trial(
        "two learning rates together",
        f"config.optimizer.learning_rate {PEERS}",
        None,
        ("--config.optimizer.learning_rate=0.05",),
        (2, 2),
    ),
    Trial(
        "two lengths together",
        f"config.steps {PEERS}",
        None,
        ("--config.steps=72",),
        (2, 2),
    ),
    Trial(
        "two log_every together",
        f"config.log_every {PEERS}",
        None,
        ("--config.log_every=5",),
        (2, 2),
    ),
    Trial(
        "--num_processes too large in one", f"--num_processes {PEERS}", None, (), (2, 3)
    ),
    Trial("--num_processes too large in process 0", "could not join", None, (), (3, 2)),
    Trial(
        "learning rate 1e30",
        "is (nan|inf) at step|are not finite",
        flags=("--config.optimizer.learning_rate=1e30",),
    ),
]


class Bench:
    """The stopped runs, and the trials on copies of them."""

    def __init__(self, out: pathlib.Path):
        """Make two stopped runs, of seeds 0 and 1."""
        self.out, self.home = out, out / "home"
        self.runs = []
        for seed in (0, 1):
            folder = out / f"stopped{seed}"
            shutil.rmtree(folder, ignore_errors=True)
            self.runs.append(folder)
            process = start(
                self.home, *FLAGS, f"--config.seed={seed}", f"--workdir={folder}"
            )
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("step ") and not line.startswith(
                    ("step 2/", "step 4/")
                ):
                    process.terminate()
                    break
            process.communicate()

    def failure(self, trial: Trial, rng: random.Random) -> str:
        """Do a trial; return in what it did not end as it must, or ""."""
        folder = self.out / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        if trial.change:
            shutil.copytree(self.runs[0], folder)
            trial.change(folder, self.runs[1], rng)
        before = contents(folder)
        ends = self.two(trial, folder) if trial.processes else [self.one(trial, folder)]
        for code, err in ends:
            if not 0 < code < 128 or "Traceback" in err:
                return f"exit code {code}: {err[-300:]}"
            if not re.search(trial.says, (err.splitlines() or [""])[-1]):
                return f"another line: {err[-300:]}"
        if trial.change and contents(folder) != before:
            return "files have changed"
        return ""

    def one(self, trial, folder):
        """Return exit code and stderr of the command."""
        flags = (*FLAGS, "--config.seed=0", *trial.flags, f"--workdir={folder}")
        code, _, err = run(self.home, *flags)
        return code, err

    def two(self, trial, folder):
        """Return exit codes and stderr of two processes."""
        with socket.socket() as s:
            s.bind(("localhost", 0))
            address = f"localhost:{s.getsockname()[1]}"
        both = []
        for i in range(2):
            flags = [*FLAGS, f"--workdir={folder}", f"--coordinator={address}"]
            flags += [f"--num_processes={trial.processes[i]}", f"--process_id={i}"]
            flags += ["--peer_timeout=60", *(trial.flags if i else ())]
            both.append(start(self.home, *flags))
        return [(p.returncode, err) for p in both for _, err in [p.communicate()]]


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """Return the contents of the files of a run, without its lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.name != "lock"
    }


def main(args: argparse.Namespace) -> int:
    """Do the trials, and write OUT/identity.md.

    Returns:
      1 if a trial did not end as it must, otherwise 0.
    """
    args.out.mkdir(parents=True, exist_ok=True)
    bench, failures = Bench(args.out.absolute()), 0
    rows = ["| trial | times | ended in its line, nothing changed |", "|---|--:|--:|"]
    for trial in TRIALS:
        if args.only not in trial.name:
            continue
        good = 0
        for number in range(args.repeats):
            rng = random.Random(f"{args.seed} {trial.name} {number}")
            failure = bench.failure(trial, rng)
            good += not failure
            if failure:
                failures += 1
                print(f"WRONG {trial.name}: {failure}", flush=True)
        rows.append(f"| {trial.name} | {args.repeats} | {good} |")
        print(rows[-1], flush=True)
    (args.out / "identity.md").write_text("\n".join(rows) + "\n")
    return int(failures > 0)
