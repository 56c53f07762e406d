"""Storage faults of real runs: one clear line, an exit code above 0, and the same bits.

First, every file of a checkpoint is truncated, removed and has bytes changed, one file
at a time: what is restored is that checkpoint or the one before, and never anything
else. Then a stopped or running mnist:smoke is damaged, and is resumed when the damage
is undone. It must end as the undisturbed run does.

Disks are small tmpfs mounts. Where mounting is not permitted, those faults are left out
and reported.
"""

import argparse
import collections
import contextlib
import io
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from lnrepro.engine.checkpoint import Store
from scripts import markdown as md
from tests.hardening.kills import Trainer, differences, longer, same_bits, steps

FLAGS = longer("configs/mnist.py:smoke")
DISK_MB = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `faults`."""
    add_common_arguments(parser, "faults.md")
    parser.add_argument(
        "--flips",
        type=int,
        default=200,
        help="number of bytes to change in checkpoints, one at a time",
    )


def add_common_arguments(parser: argparse.ArgumentParser, page: str) -> None:
    """Add the flags --only, --seed and --out of a command that writes OUT/`page`."""
    add = parser.add_argument
    add("--only", default="", help="only the faults with this in their name")
    add("--seed", type=int, default=0)
    add(
        "--out",
        type=pathlib.Path,
        required=True,
        help=f"folder for the runs and {page}",
    )


# Damage to single files


def truncate(path: pathlib.Path, rng: random.Random) -> None:
    """Keep the first half of a file."""
    os.truncate(path, path.stat().st_size // 2)


def remove(path: pathlib.Path, rng: random.Random) -> None:
    """Remove a file."""
    path.unlink()


def flip(path: pathlib.Path, rng: random.Random) -> None:
    """Change one random byte of a file."""
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    path.write_bytes(content)


def contents(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return every file below a folder that has bytes to damage."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)


def damage_each(
    checkpoints: pathlib.Path, like: Any, flips: int, rng: random.Random
) -> dict[str, collections.Counter]:
    """Damage copies of the newest checkpoint, one file at a time.

    Args:
      checkpoints: the checkpoints of a run.
      like: a state of the same structure.
      flips: the number of bytes to change.
      rng: chooses the bytes.

    Returns:
      {kind of damage: {what was restored: how often}}. What was restored is "as saved",
      "the one before" (which was reported in one line) or "wrong".
    """
    copy = checkpoints.with_name("checkpoints-damaged")

    def fresh_copy():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(checkpoints, copy)

    def restored():
        stderr, store = io.StringIO(), Store(copy)
        with contextlib.redirect_stderr(stderr):
            saved = store.restore("last", like)
        store.close()
        return saved, stderr.getvalue()

    fresh_copy()
    # What the newest checkpoint holds, and what the one before it holds.
    newest, _ = restored()
    folder = pathlib.Path("last") / str(newest.step)
    shutil.rmtree(copy / folder)
    before, _ = restored()
    files = [path.relative_to(checkpoints) for path in contents(checkpoints / folder)]
    sizes = [(checkpoints / file).stat().st_size for file in files]
    # Larger files are chosen more often for further bytes.
    further = rng.choices(files, sizes, k=max(0, flips - len(files)))
    outcomes = {}
    for damage in (truncate, remove, flip):
        found = outcomes[damage.__name__] = collections.Counter()
        for file in [*files, *further] if damage is flip else files:
            fresh_copy()
            damage(copy / file, rng)
            saved, stderr = restored()
            if not stderr and _same(saved, newest):
                found["as saved"] += 1
            elif stderr.count("\n") == 1 and _same(saved, before):
                found["the one before"] += 1
            else:
                found["wrong"] += 1
                what = f"{damage.__name__} {file}: step {saved.step}, {stderr}"
                print(f"WRONG: {what}", flush=True)
    shutil.rmtree(copy)
    return outcomes


def _same(a, b):
    if a.step != b.step or a.notes != b.notes:
        return False
    pairs = zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True)
    return all(same_bits(x, y) for x, y in pairs)


# Faults of runs


class Bench:
    """An undisturbed run, a stopped one, and places for damaged ones.

    Attributes:
      folder: where they are.
      home: folder of caches and data.
      flags: the flags of the runs.
      whole: the undisturbed run.
      stopped: the stopped run.
    """

    def __init__(
        self, folder: pathlib.Path, home: pathlib.Path, flags: tuple[str, ...] = FLAGS
    ):
        """Make both runs.

        Args:
          folder: where they go.
          home: folder of caches and data.
          flags: the flags of the runs.

        Raises:
          RuntimeError: a run failed.
        """
        self.folder, self.home, self.flags = folder.absolute(), home.absolute(), flags
        self._started = 0
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.whole, self.stopped = self.folder / "whole", self.folder / "stopped"
        trainer = self.start(self.whole)
        if trainer.end():
            raise RuntimeError(f"the undisturbed run failed: {trainer.stderr}")
        self._stop(self.stopped)

    def _stop(self, workdir, *flags):
        """Start a run and stop it."""
        # On a busy machine, the run may end before the signal arrives.
        for _ in range(5):
            self.running(self.fresh(workdir.name), *flags).end(signal.SIGTERM)
            if not (workdir / "results.json").exists():
                return
        raise RuntimeError("the run always ended before it could be stopped")

    def other(self) -> pathlib.Path:
        """Return a stopped run of another seed."""
        if not (self.folder / "other").exists():
            self._stop(self.folder / "other", "--config.seed=1")
        return self.folder / "other"

    def start(self, workdir: pathlib.Path, *flags: str) -> Trainer:
        """Start the trainer on a run directory, with further flags."""
        self._started += 1
        # Its output is not beside the run, whose disk may be full.
        output = self.folder / f"process{self._started}"
        return Trainer(self.home, workdir, (*self.flags, *flags), output)

    def running(self, workdir: pathlib.Path, *flags: str) -> Trainer:
        """Start a run with further flags, and return when it has saved twice.

        Raises:
          RuntimeError: the run ended before.
        """
        trainer = self.start(workdir, *flags)

        def saved_twice():
            return len(steps(workdir)) > 1 and bool(steps(workdir, "best"))

        if not trainer.wait(saved_twice):
            raise RuntimeError(f"the run ended before the fault: {trainer.stderr}")
        return trainer

    def fresh(self, name: str = "run") -> pathlib.Path:
        """Return a directory that does not exist."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return self.folder / name

    def copy(self) -> pathlib.Path:
        """Return a fresh copy of the stopped run."""
        return pathlib.Path(shutil.copytree(self.stopped, self.fresh()))

    def difference(self, workdir: pathlib.Path) -> str:
        """Return in what a finished run differs from the undisturbed one."""
        return "; ".join(differences(self.whole, workdir))

    def resume(self, workdir: pathlib.Path) -> str:
        """Resume a run to its end, and return in what it differs then."""
        trainer = self.start(workdir)
        if trainer.end():
            return f"does not resume: {trainer.stderr}"
        return self.difference(workdir)


class Result(NamedTuple):
    """What a fault did.

    Attributes:
      code: the exit code of the process.
      stderr: what it wrote to stderr.
      wrong: what is wrong about them, or about the run afterwards; "" if nothing is.
    """

    code: int
    stderr: str
    wrong: str

    def then(self, check: Callable[[pathlib.Path], str], workdir: pathlib.Path):
        """Check a run directory afterwards, if nothing is wrong yet."""
        return self if self.wrong else self._replace(wrong=check(workdir))


Fault = Callable[[Bench, random.Random], Result]
FAULTS: dict[str, Fault] = {}


def fault(name: str) -> Callable[[Fault], Fault]:
    """Return a decorator that adds a function to FAULTS."""

    def add(function):
        FAULTS[name] = function
        return function

    return add


def ended(trainer: Trainer, code: int, message: str, lines: int = 1) -> Result:
    """Wait for the end of a process and check how it ended.

    Args:
      trainer: the process.
      code: the expected exit code.
      message: a regular expression that stderr must match.
      lines: the expected number of lines on stderr.
    """
    found, stderr = trainer.end(), trainer.stderr
    wrong = "" if found == code else f"exit code {found}, not {code}; "
    is_clear = stderr.count("\n") == lines and "Traceback" not in stderr
    if not is_clear or not re.search(message, stderr):
        wrong += f"stderr is not {lines} line(s) that say {message!r}"
    return Result(found, stderr, wrong)


def largest(workdir: pathlib.Path, kind: str, step: int) -> pathlib.Path:
    """Return the largest file of a checkpoint, which has values of its arrays.

    Args:
      workdir: the run directory.
      kind: "last" or "best".
      step: the step.
    """
    files = contents(workdir / "checkpoints" / kind / str(step))
    return max(files, key=os.path.getsize)


@contextlib.contextmanager
def paused(trainer: Trainer) -> Iterator[None]:
    """Pause a process meanwhile."""
    trainer.process.send_signal(signal.SIGSTOP)
    yield
    trainer.process.send_signal(signal.SIGCONT)


def _newest_damaged(damage):
    @fault(f"newest checkpoint: {damage.__name__} its largest file")
    def do(bench: Bench, rng: random.Random) -> Result:
        workdir = bench.copy()
        damage(largest(workdir, "last", steps(workdir)[-1]), rng)
        result = ended(bench.start(workdir), 0, "cannot be read .*; set aside")
        # No array uses some bytes of the file: then nothing is said, and the run ends
        # with the same bits all the same.
        if damage is flip and result.code == 0 and not result.stderr:
            result = Result(0, "", "")
        return result.then(bench.difference, workdir)


for _damage in (truncate, flip, remove):
    _newest_damaged(_damage)

NONE_READABLE = "none of the checkpoints .* can be read"


@fault("every checkpoint: truncate its largest file")
def _all_damaged(bench, rng):
    workdir = bench.copy()
    for step in steps(workdir):
        truncate(largest(workdir, "last", step), rng)
    result = ended(bench.start(workdir), 2, NONE_READABLE, lines=3)
    return result.then(bench.resume, workdir)


@fault("best checkpoint: flip a byte, --evaluate")
def _best_damaged(bench, rng):
    workdir = bench.copy()
    flip(largest(workdir, "best", steps(workdir, "best")[-1]), rng)
    return ended(bench.start(workdir, "--evaluate"), 2, NONE_READABLE, lines=2)


def _file_truncated(name, message):
    @fault(f"{name}: truncate")
    def do(bench: Bench, rng: random.Random) -> Result:
        workdir = bench.copy()
        truncate(workdir / name, rng)
        result = ended(bench.start(workdir), 2, message)
        shutil.copy(bench.stopped / name, workdir)
        return result.then(bench.resume, workdir)


_file_truncated("metrics.jsonl", "records that go with the checkpoint")
_file_truncated("config.json", "not a run's config.json")


@fault("files may not grow (RLIMIT_FSIZE) in flight")
def _may_not_grow(bench, rng):
    workdir = bench.fresh()
    trainer = bench.running(workdir)
    # The files of its output are smaller than this.
    resource.prlimit(trainer.process.pid, resource.RLIMIT_FSIZE, (8192, 8192))
    return ended(trainer, 1, "File too large").then(bench.resume, workdir)


GONE = "was removed, moved or replaced|could not save"


@fault("directory removed in flight")
def _removed(bench, rng):
    workdir, gone = bench.fresh(), bench.fresh("gone")
    trainer = bench.running(workdir)
    # It is renamed first, because rmtree takes time.
    workdir.rename(gone)
    shutil.rmtree(gone)

    def written(workdir):
        # A checkpoint that was being written still makes its unfinished folder.
        for path in contents(workdir):
            if "orbax-checkpoint-tmp" not in str(path):
                return f"written anew: {path}"
        return ""

    return ended(trainer, 1, GONE).then(written, workdir)


@fault("directory moved in flight")
def _moved(bench, rng):
    workdir, moved = bench.fresh(), bench.fresh("moved")
    trainer = bench.running(workdir)
    workdir.rename(moved)
    return ended(trainer, 1, GONE).then(bench.resume, moved)


@fault("directory taken by another run in flight")
def _replaced(bench, rng):
    workdir, moved = bench.fresh(), bench.fresh("moved")
    trainer = bench.running(workdir)
    with paused(trainer):
        workdir.rename(moved)
        other = bench.running(workdir)
    result = ended(trainer, 1, GONE)
    if other.end():
        wrong = f"{result.wrong}the other run failed: {other.stderr}"
        return result._replace(wrong=wrong)
    return result.then(bench.difference, workdir).then(bench.resume, moved)


@fault("a second process")
def _second(bench, rng):
    workdir = bench.fresh()
    first = bench.running(workdir)
    # It is paused, so that it has not ended when the second process starts.
    with paused(first):
        result = ended(bench.start(workdir), 2, "is in use by another run")
    if first.end():
        wrong = f"{result.wrong}the first run failed: {first.stderr}"
        return result._replace(wrong=wrong)
    return result.then(bench.difference, workdir)


class NotPermitted(Exception):
    """This process may not mount."""


@contextlib.contextmanager
def disk(bench: Bench) -> Iterator[pathlib.Path]:
    """Mount a small file system.

    Raises:
      NotPermitted: this process may not mount.
    """
    root = bench.fresh("disk")
    root.mkdir()
    mount("-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", root)
    try:
        yield root
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)


def mount(*arguments: str | pathlib.Path) -> None:
    """Call the system's mount command.

    Raises:
      NotPermitted: it fails.
    """
    try:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as e:
        raise NotPermitted(getattr(e, "stderr", None) or e) from e


def fill(root: pathlib.Path, free_kib: int = 0) -> pathlib.Path:
    """Fill a disk with one file, and return the file.

    Args:
      root: the disk.
      free_kib: how much is left free.
    """
    free = os.statvfs(root)
    # f_bavail counts free blocks, f_frsize is the size of one.
    size = free.f_bavail * free.f_frsize - free_kib * 1024
    path = root / "filler"
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return path


NO_SPACE, READ_ONLY = "No space left on device", "Read-only file system"


@fault("disk full in flight")
def _full(bench, rng):
    with disk(bench) as root:
        trainer = bench.running(root / "run")
        with paused(trainer):
            filler = fill(root)
        result = ended(trainer, 1, NO_SPACE)
        filler.unlink()
        return result.then(bench.resume, root / "run")


def _nearly_full(free_kib):
    @fault(f"disk full but for {free_kib} KiB at the start")
    def do(bench: Bench, rng: random.Random) -> Result:
        with disk(bench) as root:
            filler = fill(root, free_kib)
            result = ended(bench.start(root / "run"), 1, NO_SPACE)
            filler.unlink()
            return result.then(bench.resume, root / "run")


for _kib in (0, 8, 16, 64, 128, 256):
    _nearly_full(_kib)


@fault("disk read-only in flight")
def _readonly(bench, rng):
    with disk(bench) as root:
        trainer = bench.running(root / "run")
        with paused(trainer):
            # A disk on which files are open for writing cannot become read-only. One
            # that is bound over it can.
            mount("--bind", root, root)
            mount("-o", "remount,bind,ro", root)
        result = ended(trainer, 1, READ_ONLY)
        subprocess.run(["umount", root], check=True)
        return result.then(bench.resume, root / "run")


@fault("disk read-only at the start")
def _readonly_from_the_start(bench, rng):
    with disk(bench) as root:
        shutil.copytree(bench.stopped, root / "run")
        mount("-o", "remount,ro", root)
        result = ended(bench.start(root / "run"), 2, READ_ONLY)
        mount("-o", "remount,rw", root)
        return result.then(bench.resume, root / "run")


def _damage_table(bench, flips, rng):
    """Damage every file; return a table and the number of wrong results."""
    from configs.mnist import get_config
    from lnrepro.engine import train

    # A checkpoint is restored into the structure of this state.
    like = train.Run(get_config("smoke"), bench.whole).initial()
    outcomes = damage_each(bench.stopped / "checkpoints", like, flips, rng)
    columns = ("as saved", "the one before", "wrong")
    rows = [(name, *map(found.get, columns)) for name, found in outcomes.items()]
    table = md.table(("one file of the newest checkpoint", *columns), rows)
    return table, sum(found["wrong"] for found in outcomes.values())


def table(
    faults: Mapping[str, Fault], bench: Bench, args: argparse.Namespace
) -> tuple[list[str], int]:
    """Do faults; return the lines of a table, and how many did more than they may.

    Args:
      faults: the faults by their names.
      bench: the runs.
      args: the flags.
    """
    lines, failed = [md.head(("fault", "exit", "stderr, last line", "afterwards"))], 0
    for name, do in faults.items():
        if args.only not in name:
            continue
        try:
            result = do(bench, random.Random(f"{args.seed} {name}"))
        except NotPermitted as e:
            print(f"{name}: left out, mounting is not permitted here ({e})", flush=True)
            continue
        failed += bool(result.wrong)
        last = (result.stderr.strip().splitlines() or [""])[-1]
        last = last.replace(f"{bench.folder}/", "")
        verdict = result.wrong or "as it must be"
        lines.append(md.row((name, result.code, last, verdict)))
        print(lines[-1], flush=True)
    return lines, failed


def main(args: argparse.Namespace) -> int:
    """Do every fault and write OUT/faults.md.

    Returns:
      1 if a fault did more harm than it may, otherwise 0.
    """
    bench, rng = Bench(args.out / "runs", args.out / "home"), random.Random(args.seed)
    damaged, wrong = "", 0
    if args.only in "damage to every file":
        damaged, wrong = _damage_table(bench, args.flips, rng)
        print(damaged, flush=True)
    lines, failed = table(FAULTS, bench, args)
    (args.out / "faults.md").write_text("\n".join([damaged, "", *lines]) + "\n")
    return int(wrong + failed > 0)
