"""What does not belong to a run, and processes that do not belong together.

A run of mnist:smoke is stopped. A copy of it is changed, and goes on with the same
command. Other commands are wrong, or start processes that differ. All must end with an
exit code above 0 and one line that names what is wrong, and change no file. --seed
chooses the changes.
"""

import argparse
import functools
import json
import os
import pathlib
import random
import shutil
import socket

from tests.hardening import faults
from tests.hardening.faults import Bench, Fault, Result, ended

# The line of a process that another one made stop.
PEERS = "differs between the processes of this run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `identity`."""
    faults.add_common_arguments(parser, "identity.md")


def other_files(name, folder, other, rng):
    """Put a file or a folder of a run of another seed in place."""
    _remove(folder / name)
    copy = shutil.copytree if (other / name).is_dir() else shutil.copy
    copy(other / name, folder / name)


def edited_record(folder, other, rng):
    """Change one number of one record."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines()
    # Records after the newest checkpoint are written again.
    number = rng.randrange(3)
    record = json.loads(lines[number])
    record[rng.choice([name for name in record if "/" in name])] *= 0.9
    lines[number] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


def edited_config(folder, other, rng):
    """Change the seed, the norm or the batch size in config.json."""
    path = folder / "config.json"
    about = json.loads(path.read_text())
    field, value = rng.choice([("seed", 7), ("norm", "none"), ("batch_size", 32)])
    about["config"][field] = value
    path.write_text(json.dumps(about))


def removed(name, folder, other, rng):
    """Remove a file."""
    _remove(folder / name)


def emptied(name, folder, other, rng):
    """Put an empty file in place."""
    (folder / name).write_text("")


def pipe(name, folder, other, rng):
    """Put a pipe in place."""
    _remove(folder / name)
    os.mkfifo(folder / name)


def device(name, folder, other, rng):
    """Put a device in place."""
    _remove(folder / name)
    (folder / name).symlink_to("/dev/zero")


def directory(name, folder, other, rng):
    """Put a folder in place."""
    _remove(folder / name)
    (folder / name).mkdir()


def _remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def snapshot(folder: pathlib.Path) -> dict[str, bytes]:
    """Return the contents of the files of a run, without its lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in faults.contents(folder)
        if not path.is_symlink() and path.name != "lock"
    }


def changed(change, says: str, bench: Bench, rng: random.Random) -> Result:
    """Change a copy of the stopped run and go on with it.

    Args:
      change: (run directory, stopped run of another seed, random) -> None.
      says: a regular expression that the line of the command matches.
      bench: the runs.
      rng: chooses what is changed.
    """
    folder = bench.copy()
    change(folder, bench.other(), rng)
    before = snapshot(folder)

    def difference(folder):
        return "" if snapshot(folder) == before else "files have changed"

    return ended(bench.start(folder), 2, says).then(difference, folder)


def wrong(flags: tuple[str, ...], says: str, bench: Bench, rng, code: int = 2):
    """Start a wrong command in a new directory."""
    return ended(bench.start(bench.fresh(), *flags), code, says)


def together(
    flags: tuple[str, ...], says: str, bench: Bench, rng, counts=(2, 2)
) -> Result:
    """Start two processes that differ.

    Args:
      flags: further flags of the second one.
      says: a regular expression that the lines of both match.
      bench: the runs.
      rng: not used.
      counts: --num_processes of each.
    """
    with socket.socket() as s:
        s.bind(("localhost", 0))
        address = f"--coordinator=localhost:{s.getsockname()[1]}"
    folder, both = bench.fresh(), []
    for i, more in enumerate(((), flags)):
        numbers = f"--num_processes={counts[i]}", f"--process_id={i}"
        common = address, "--peer_timeout=60", *numbers
        both.append(bench.start(folder, *common, *more))
    # The first line of each tells that it waits.
    first, second = (ended(process, 2, says, lines=2) for process in both)
    return first if first.wrong else second


REPLACED = {
    f"{name}: a {what.__name__} in its place": functools.partial(
        changed, functools.partial(what, name), "is no regular file"
    )
    for name in ("config.json", "metrics.jsonl", "results.json")
    for what in (pipe, device, directory)
}
TRIALS: dict[str, Fault] = {
    name: functools.partial(changed, change, says)
    for name, change, says in (
        (
            "checkpoints of another seed",
            functools.partial(other_files, "checkpoints"),
            "checkpoint of another run",
        ),
        (
            "metrics.jsonl of another seed",
            functools.partial(other_files, "metrics.jsonl"),
            "are not those that go with",
        ),
        ("one edited record", edited_record, "are not those that go with"),
        ("edited config.json", edited_config, "holds a run of another config"),
        (
            "removed config.json",
            functools.partial(removed, "config.json"),
            "but no config.json",
        ),
        (
            "empty results.json",
            functools.partial(emptied, "results.json"),
            "is damaged: remove it",
        ),
    )
}
TRIALS |= REPLACED
TRIALS |= {
    name: functools.partial(wrong, (f"--config.{flag}",), says)
    for name, flag, says in (
        ("seeds 10**8", "seeds=100000000", "seeds = 100000000: at least 1"),
        ("a misspelt evaluation", "evals.tset=end", "no field"),
        ("a misspelt best.metric", "best.metric=valid/eror", "not measured"),
    )
}
TRIALS |= {
    f"two values of {field} together": functools.partial(
        together, (f"--config.{field}={value}",), f"config.{field} {PEERS}"
    )
    for field, value in (
        ("seed", 1),
        ("optimizer.learning_rate", 0.05),
        ("steps", 72),
        ("log_every", 5),
    )
}
TRIALS |= {
    "--num_processes too large in one": functools.partial(
        together, (), f"--num_processes {PEERS}", counts=(2, 3)
    ),
    "--num_processes too large in process 0": functools.partial(
        together, (), "could not join", counts=(3, 2)
    ),
    "learning rate 1e30": functools.partial(
        wrong,
        ("--config.optimizer.learning_rate=1e30",),
        "is (nan|inf) at step|are not finite",
        code=1,
    ),
}


def main(args: argparse.Namespace) -> int:
    """Do the trials, and write OUT/identity.md.

    Returns:
      1 if a trial did not end as it must, otherwise 0.
    """
    bench = Bench(args.out / "runs", args.out / "home")
    lines, failed = faults.table(TRIALS, bench, args)
    (args.out / "identity.md").write_text("\n".join(lines) + "\n")
    return int(failed > 0)
