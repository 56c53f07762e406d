"""Storage faults done to real runs: one clear line, a non-zero exit code, and a run that goes on to the same bits.

First every file of a checkpoint is truncated, removed and has bytes flipped, one at a time: what is restored is that
checkpoint or the one before it, never anything else. Then a stopped or a running mnist:smoke is harmed, and resumed once
the harm is undone: it must end as the undisturbed run does. Disks are small tmpfs mounts; where mounting is not permitted
those faults are left out, and say so.
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
from collections.abc import Callable, Iterator
from typing import Any

import jax

from lnrepro.engine.checkpoint import Saved, Store
from scripts.hardening.kills import LONGER, Victim, differences, same_bits, steps
from tests.runs import SMOKE

FLAGS = (SMOKE, *LONGER)
DISK_MB = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this subject."""
    parser.add_argument(
        "--flips",
        type=int,
        default=200,
        help="bytes to flip in checkpoints, one at a time",
    )
    parser.add_argument("--only", default="", help="the faults with this in their name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        required=True,
        help="folder for the runs and faults.md",
    )


# Damage to single files ------------------------------------------------------------------------------------------------


def truncate(path: pathlib.Path, rng: random.Random) -> None:
    """Keep the first half."""
    os.truncate(path, path.stat().st_size // 2)


def remove(path: pathlib.Path, rng: random.Random) -> None:
    """Take it away."""
    path.unlink()


def flip(path: pathlib.Path, rng: random.Random) -> None:
    """Change one random byte."""
    blob = bytearray(path.read_bytes())
    blob[rng.randrange(len(blob))] ^= rng.randrange(1, 256)
    path.write_bytes(blob)


def contents(folder: pathlib.Path) -> list[pathlib.Path]:
    """Every file below that has bytes to damage."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)


def damage_each(
    checkpoints: pathlib.Path, like: Any, flips: int, rng: random.Random
) -> dict[str, collections.Counter]:
    """Damage copies of the newest of `checkpoints` file by file: how often which checkpoint was then restored.

    Keys are "as saved", "the one before" (said in one line) and "wrong".
    """
    copy = checkpoints.with_name("checkpoints-damaged")

    def after(damage: Callable[[], object]) -> tuple[Saved | None, str]:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(checkpoints, copy)
        damage()
        said, store = io.StringIO(), Store(copy)
        with contextlib.redirect_stderr(said):
            saved = store.restore("last", like)
        store.close()
        return saved, said.getvalue()

    newest, _ = after(lambda: None)
    victims = [
        p.relative_to(checkpoints)
        for p in contents(checkpoints / "last" / str(newest.step))
    ]
    before, _ = after(lambda: shutil.rmtree(copy / "last" / str(newest.step)))
    sizes = [(checkpoints / p).stat().st_size for p in victims]
    outcomes = {}
    for damage, paths in (
        (truncate, victims),
        (remove, victims),
        (
            flip,
            [*victims, *rng.choices(victims, sizes, k=max(0, flips - len(victims)))],
        ),
    ):
        found = outcomes[damage.__name__] = collections.Counter()
        for path in paths:
            saved, said = after(
                lambda path=path, damage=damage: damage(copy / path, rng)
            )
            if not said and _same(saved, newest):
                found["as saved"] += 1
            elif said.count("\n") == 1 and _same(saved, before):
                found["the one before"] += 1
            else:
                found["wrong"] += 1
                print(
                    f"WRONG: {damage.__name__} {path}: step {saved.step}, {said}",
                    flush=True,
                )
    shutil.rmtree(copy)
    return outcomes


def _same(a: Saved, b: Saved) -> bool:
    pairs = zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True)
    return (
        a.step == b.step
        and a.notes == b.notes
        and all(same_bits(x, y) for x, y in pairs)
    )


# Faults of runs --------------------------------------------------------------------------------------------------------


class Bench:
    """An undisturbed run, a stopped one, and places to do harm in."""

    def __init__(
        self, folder: pathlib.Path, home: pathlib.Path, flags: tuple[str, ...] = FLAGS
    ):
        self.folder, self.home, self.flags, self._started = (
            folder.absolute(),
            home.absolute(),
            flags,
            0,
        )
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.whole, self.stopped = self.folder / "whole", self.folder / "stopped"
        if (victim := self.start(self.whole)).end():
            raise RuntimeError(f"the undisturbed run failed: {victim.said}")
        self.running(self.stopped).end(signal.SIGTERM)

    def start(self, workdir: pathlib.Path, *more: str) -> Victim:
        """Start the trainer on `workdir`."""
        self._started += 1
        output = (
            self.folder / f"process{self._started}"
        )  # not beside the run, whose disk may be full
        return Victim(self.home, workdir, (*self.flags, *more), output)

    def running(self, workdir: pathlib.Path) -> Victim:
        """A run that has saved twice and goes on."""
        victim = self.start(workdir)
        if not victim.wait(
            lambda: len(steps(workdir)) > 1 and bool(steps(workdir, "best"))
        ):
            raise RuntimeError(f"the run ended before the fault: {victim.said}")
        return victim

    def fresh(self, name: str = "run") -> pathlib.Path:
        """A directory that does not exist."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return self.folder / name

    def copy(self) -> pathlib.Path:
        """A fresh copy of the stopped run."""
        return pathlib.Path(shutil.copytree(self.stopped, self.fresh()))

    def resumed(self, workdir: pathlib.Path) -> str:
        """Run it to its end: in what it then differs from the undisturbed run, "" if in nothing."""
        victim = self.start(workdir)
        return (
            f"does not resume: {victim.said}"
            if victim.end()
            else "; ".join(differences(self.whole, workdir))
        )


Result = tuple[
    int, str, str
]  # the exit code, what stderr said, and what is wrong about it or the run afterwards
FAULTS: dict[str, Callable[[Bench, random.Random], Result]] = {}


def fault(name: str):
    """Enter a fault into FAULTS."""
    return lambda function: FAULTS.setdefault(name, function)


def told(victim: Victim, code: int, says: str, lines: int = 1) -> Result:
    """Hold a process's end against the exit code and the line expected of it."""
    found, said = victim.end(), victim.said
    wrong = "" if found == code else f"exit code {found}, not {code}; "
    if said.count("\n") != lines or not re.search(says, said) or "Traceback" in said:
        wrong += f"stderr is not {lines} line(s) that say {says!r}"
    return found, said, wrong


def largest(workdir: pathlib.Path, kind: str, step: int) -> pathlib.Path:
    """The largest file of a checkpoint: a shard of its arrays."""
    return max(
        contents(workdir / "checkpoints" / kind / str(step)),
        key=lambda p: p.stat().st_size,
    )


def _newest_damaged(damage):
    def do(bench: Bench, rng: random.Random) -> Result:
        workdir = bench.copy()
        damage(largest(workdir, "last", steps(workdir)[-1]), rng)
        code, said, wrong = told(
            bench.start(workdir), 0, "cannot be read .*; set aside"
        )
        return code, said, wrong or "; ".join(differences(bench.whole, workdir))

    return do


for _damage in (truncate, flip, remove):
    fault(f"newest checkpoint: {_damage.__name__} its largest file")(
        _newest_damaged(_damage)
    )


@fault("every checkpoint: truncate its largest file")
def _all_damaged(bench: Bench, rng: random.Random) -> Result:
    workdir = bench.copy()
    for step in steps(workdir):
        truncate(largest(workdir, "last", step), rng)
    code, said, wrong = told(
        bench.start(workdir), 2, "none of the checkpoints .* can be read", lines=3
    )
    return code, said, wrong or bench.resumed(workdir)


@fault("best checkpoint: flip a byte, --evaluate")
def _best_damaged(bench: Bench, rng: random.Random) -> Result:
    workdir = bench.copy()
    flip(largest(workdir, "best", steps(workdir, "best")[-1]), rng)
    return told(
        bench.start(workdir, "--evaluate"),
        2,
        "none of the checkpoints .* can be read",
        lines=2,
    )


def _file_damaged(name: str, code: int, says: str):
    def do(bench: Bench, rng: random.Random) -> Result:
        workdir = bench.copy()
        truncate(workdir / name, rng)
        result = told(bench.start(workdir), code, says)
        shutil.copy(bench.stopped / name, workdir)
        return *result[:2], result[2] or bench.resumed(workdir)

    return do


fault("metrics.jsonl: truncate")(
    _file_damaged("metrics.jsonl", 2, "records that go with the checkpoint")
)
fault("config.json: truncate")(
    _file_damaged("config.json", 2, "not a run's config.json")
)


@fault("files may not grow (RLIMIT_FSIZE) in flight")
def _may_not_grow(bench: Bench, rng: random.Random) -> Result:
    victim = bench.running(workdir := bench.fresh())
    resource.prlimit(
        victim.process.pid, resource.RLIMIT_FSIZE, (8192, 8192)
    )  # its output, a file too, has room
    code, said, wrong = told(victim, 1, "File too large")
    return code, said, wrong or bench.resumed(workdir)


GONE = "was removed, moved or replaced|could not save"


@fault("directory removed in flight")
def _removed(bench: Bench, rng: random.Random) -> Result:
    victim = bench.running(workdir := bench.fresh())
    workdir.rename(gone := bench.fresh("gone"))  # at once, as no rmtree is
    shutil.rmtree(gone)
    result = told(victim, 1, GONE)
    # What was on its way to the disk still makes its unfinished folder.
    left = [p for p in contents(workdir) if "orbax-checkpoint-tmp" not in str(p)]
    return *result[:2], result[2] or (f"written anew: {left[0]}" if left else "")


@fault("directory moved in flight")
def _moved(bench: Bench, rng: random.Random) -> Result:
    victim = bench.running(workdir := bench.fresh())
    workdir.rename(moved := bench.fresh("moved"))
    code, said, wrong = told(victim, 1, GONE)
    return code, said, wrong or bench.resumed(moved)


@fault("directory taken by another run in flight")
def _replaced(bench: Bench, rng: random.Random) -> Result:
    victim = bench.running(workdir := bench.fresh())
    victim.process.send_signal(signal.SIGSTOP)
    workdir.rename(moved := bench.fresh("moved"))
    other = bench.running(workdir)
    victim.process.send_signal(signal.SIGCONT)
    code, said, wrong = told(victim, 1, GONE)
    if other.end():
        wrong += f"the other run failed: {other.said}"
    return (
        code,
        said,
        wrong or "; ".join(differences(bench.whole, workdir)) or bench.resumed(moved),
    )


@fault("a second process")
def _second(bench: Bench, rng: random.Random) -> Result:
    first = bench.running(workdir := bench.fresh())
    first.process.send_signal(
        signal.SIGSTOP
    )  # so that it is still there when the second comes
    code, said, wrong = told(bench.start(workdir), 2, "is in use by another run")
    first.process.send_signal(signal.SIGCONT)
    return (
        code,
        said,
        wrong
        or (first.end() and first.said)
        or "; ".join(differences(bench.whole, workdir)),
    )


class NotPermitted(Exception):
    """This process may not mount."""


@contextlib.contextmanager
def disk(bench: Bench) -> Iterator[pathlib.Path]:
    """A small file system of its own. Raises NotPermitted."""
    root = bench.fresh("disk")
    root.mkdir()
    mount("-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", root)
    try:
        yield root
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)


def mount(*arguments: str | pathlib.Path) -> None:
    """mount(8). Raises NotPermitted."""
    try:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as e:
        raise NotPermitted(getattr(e, "stderr", None) or e) from e


def fill(root: pathlib.Path, but_kib: int = 0) -> pathlib.Path:
    """Fill a disk with one file, but for so much; removing it makes room again."""
    left = os.statvfs(root)
    path = root / "filler"
    with open(path, "wb") as file:
        os.posix_fallocate(
            file.fileno(), 0, left.f_bavail * left.f_frsize - but_kib * 1024
        )
    return path


@fault("disk full in flight")
def _full(bench: Bench, rng: random.Random) -> Result:
    with disk(bench) as root:
        victim = bench.running(root / "run")
        victim.process.send_signal(signal.SIGSTOP)
        filler = fill(root)
        victim.process.send_signal(signal.SIGCONT)
        code, said, wrong = told(victim, 1, "No space left on device")
        filler.unlink()
        return code, said, wrong or bench.resumed(root / "run")


def _full_but(kib: int):
    def do(bench: Bench, rng: random.Random) -> Result:
        with disk(bench) as root:
            filler = fill(root, kib)
            code, said, wrong = told(
                bench.start(root / "run"), 1, "No space left on device"
            )
            filler.unlink()
            return code, said, wrong or bench.resumed(root / "run")

    return do


for _kib in (0, 8, 16, 64, 128, 256):
    fault(f"disk full but for {_kib} KiB at the start")(_full_but(_kib))


@fault("disk read-only in flight")
def _readonly(bench: Bench, rng: random.Random) -> Result:
    with disk(bench) as root:
        victim = bench.running(root / "run")
        victim.process.send_signal(signal.SIGSTOP)
        # A disk on which files are open for writing cannot become read-only; one bound over it can.
        mount("--bind", root, root)
        mount("-o", "remount,bind,ro", root)
        victim.process.send_signal(signal.SIGCONT)
        code, said, wrong = told(victim, 1, "Read-only file system")
        subprocess.run(["umount", root], check=True)
        return code, said, wrong or bench.resumed(root / "run")


@fault("disk read-only at the start")
def _readonly_from_the_start(bench: Bench, rng: random.Random) -> Result:
    with disk(bench) as root:
        shutil.copytree(bench.stopped, root / "run")
        mount("-o", "remount,ro", root)
        code, said, wrong = told(bench.start(root / "run"), 2, "Read-only file system")
        mount("-o", "remount,rw", root)
        return code, said, wrong or bench.resumed(root / "run")


def main(args: argparse.Namespace) -> int:
    """Do every fault, write OUT/faults.md; 1 if one of them did more harm than it may."""
    from configs.mnist import get_config
    from lnrepro.engine import train

    bench, rng = Bench(args.out / "runs", args.out / "home"), random.Random(args.seed)
    text, failed = [], 0
    if args.only in "damage to every file":
        like = train.Run(get_config("smoke"), bench.whole).initial()
        text = [
            "| one file of the newest checkpoint, each in turn | read as saved | the one before | wrong |"
        ]
        text.append("|---|---|---|---|")
        for damage, found in damage_each(
            bench.stopped / "checkpoints", like, args.flips, rng
        ).items():
            text.append(
                f"| {damage} | {found['as saved']} | {found['the one before']} | {found['wrong']} |"
            )
            failed += found["wrong"]
        print("\n".join(text), flush=True)
    text += [
        "",
        "| fault | exit | stderr, last line | afterwards |",
        "|---|---|---|---|",
    ]
    for name, do in FAULTS.items():
        if args.only not in name:
            continue
        try:
            code, said, wrong = do(bench, rng)
        except NotPermitted as e:
            print(f"{name}: left out, mounting is not permitted here ({e})", flush=True)
            continue
        failed += bool(wrong)
        line = (said.strip().splitlines() or [""])[-1].replace(f"{bench.folder}/", "")
        text.append(f"| {name} | {code} | {line} | {wrong or 'as it must be'} |")
        print(text[-1], flush=True)
    (args.out / "faults.md").write_text("\n".join(text) + "\n")
    return int(failed > 0)
