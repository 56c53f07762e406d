"""Every parser of official files on damaged files: what it does not take it refuses, with one line, soon, in little memory.

The files are small ones of every format (samples.py), made here and, with --seeds, cut from the official ones; the damage
is mutate.py's, seeded, so that input i of a parser is the same file again. A parser may return, or raise DataError with
one printable line that names the file. All else is a fault: another exception, a MemoryError behind a DataError, more
than LIMIT_S seconds of the processor, more than MEMORY, a crash of the process. Rows that begin with `prepare` damage one file of a set's
folder and prepare the set from it: either all its columns can be read then, or nothing is left in the data directory.

    python scripts/harden.py fuzz --inputs 10000 --seeds DATA_DIR --out fuzz
"""

import argparse
import contextlib
import fnmatch
import gzip
import json
import lzma
import multiprocessing
import pathlib
import random
import resource
import shutil
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from lnrepro import data
from lnrepro.engine.errors import DataError
from scripts.hardening.mutate import Damage
from scripts.hardening.parsers import Parser, parsers
from scripts.hardening.samples import Sample, archives, samples

LIMIT_S = 5.0  # of one input, of the processor's time
MEMORY = 1 << 30  # bytes of address space beyond what the process has when it begins
LONGEST_MESSAGE = 600  # characters beside the file's path
TOTAL_S = 3600.0  # of a row of the table
KEPT = 50  # faults whose inputs are kept
PACK = {
    ".gz": lambda content: gzip.compress(content, 1),
    ".xz": lambda content: lzma.compress(content, preset=0),
}
PREPARE = "prepare "


class Result(NamedTuple):
    """What became of the inputs; `faults` are (number of the input, what happened)."""

    name: str
    inputs: int
    accepted: int
    refused: int
    faults: list[tuple[int, str]]
    seconds: float  # of the processor's time, as `slowest`
    slowest: float
    memory: int  # bytes beyond what the process had when it began


class Slow(BaseException):
    """An input took longer than LIMIT_S; not an Exception, so that no parser takes it for a damaged file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `scripts/harden.py fuzz`."""
    parser.add_argument(
        "--inputs", type=int, default=10_000, help="damaged files for each parser"
    )
    parser.add_argument(
        "--prepared",
        type=int,
        default=300,
        help="damaged folders for each set that is prepared",
    )
    parser.add_argument(
        "--parsers",
        nargs="+",
        metavar="NAME",
        help="only these rows of the table, default all",
    )
    parser.add_argument(
        "--seeds",
        type=pathlib.Path,
        metavar="DATA_DIR",
        help="folder with official files to cut from",
    )
    parser.add_argument("--seed", type=int, default=0, help="another one, other damage")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        required=True,
        help="the table, and the files behind every fault",
    )


def main(args: argparse.Namespace) -> int:
    """Print the table; 1 if anything but DataError came out of a parser."""
    found = samples(args.seeds)
    parsers()
    names = args.parsers or [
        *parsers(),
        *(PREPARE + name for name in sorted({s.name for s in found} & set(data.TABLE))),
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    lines = [
        "| parser | inputs | accepted | refused | other errors | seconds | slowest ms | peak memory MB |"
    ]
    lines.append("|---|--:|--:|--:|--:|--:|--:|--:|")
    print("\n".join(lines), flush=True)
    results = []
    for name in names:
        count = args.prepared if name.startswith(PREPARE) else args.inputs
        results.append(r := apart(name, count, args.seed, found, args.out))
        lines.append(
            f"| {r.name} | {r.inputs:,} | {r.accepted:,} | {r.refused:,} | {len(r.faults)} | {r.seconds:.0f} "
            f"| {1000 * r.slowest:.0f} | {r.memory / 2**20:.0f} |"
        )
        print(lines[-1], flush=True)
        for number, what in r.faults[:10]:
            print(f"    input {number}: {what}", flush=True)
    (args.out / "fuzz.md").write_text("\n".join(lines) + "\n")
    (args.out / "fuzz.json").write_text(
        json.dumps([r._asdict() for r in results], indent=1)
    )
    faults = sum(len(r.faults) for r in results)
    print(
        f"\n{sum(r.inputs for r in results):,} inputs, {faults} other errors; seed {args.seed}; table in {args.out}"
    )
    return 1 if faults else 0


def apart(
    name: str, count: int, seed: int, found: list[Sample], out: pathlib.Path
) -> Result:
    """`trial` in a process of its own with bounded memory, so that a crash, or an end that never comes, is a result."""
    context = multiprocessing.get_context("fork")  # what is imported is imported once
    here, there = context.Pipe(duplex=False)
    at = context.Value("q", -1)
    child = context.Process(
        target=_bounded, args=(there, at, name, count, seed, found, out)
    )
    begin = time.monotonic()
    child.start()
    there.close()
    try:
        if not here.poll(TOTAL_S):
            child.kill()
        return here.recv()
    except EOFError:
        child.join()
        what = f"the process ended with exit code {child.exitcode}"
        return Result(
            name,
            at.value + 1,
            0,
            0,
            [(at.value, what)],
            time.monotonic() - begin,
            0.0,
            0,
        )
    finally:
        child.join()


def _bounded(
    pipe, at, name: str, count: int, seed: int, found: list[Sample], out: pathlib.Path
) -> None:
    if not name.startswith(
        PREPARE
    ):  # preparing starts TFDS' threads, which reserve more than they use
        taken = _status("VmSize")
        if taken:
            resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    pipe.send(trial(name, count, seed, found, out, lambda i: setattr(at, "value", i)))


def trial(
    name: str,
    count: int,
    seed: int,
    found: list[Sample],
    out: pathlib.Path | None = None,
    began: Callable[[int], None] = lambda i: None,
) -> Result:
    """Try inputs 0, ..., count - 1 of a row of the table; inputs behind faults are kept in `out`."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        attempts = _prepare if name.startswith(PREPARE) else _parse
        runs = attempts(name, range(count), seed, found, pathlib.Path(scratch))
        with contextlib.suppress(OSError):  # makes VmHWM begin anew
            pathlib.Path("/proc/self/clear_refs").write_text("5")
        before, begin = _status("VmRSS"), time.process_time()
        accepted = refused = 0
        slowest, faults = 0.0, []
        for i in range(count):
            began(i)
            taken, fault, seconds, content = next(runs)
            slowest = max(slowest, seconds)
            accepted, refused = (
                accepted + (taken and not fault),
                refused + (not taken and not fault),
            )
            if fault:
                faults.append((i, fault))
                if out and len(faults) <= KEPT:
                    kept = out / "faults" / f"{name.replace(' ', '-')}-{seed}-{i}"
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    kept.write_bytes(content)
        seconds = time.process_time() - begin
        return Result(
            name,
            count,
            accepted,
            refused,
            faults,
            seconds,
            slowest,
            _status("VmHWM") - before,
        )


def matches(parser: Parser, where: str, content: bytes) -> bool:
    """Whether a file of a sample is one that the parser reads."""
    return fnmatch.fnmatch(where, parser.files) and content.startswith(parser.begins)


Run = tuple[
    bool, str | None, float, bytes
]  # accepted, fault, seconds, the damaged file


def _parse(
    name: str,
    numbers: Iterable[int],
    seed: int,
    found: list[Sample],
    scratch: pathlib.Path,
) -> Iterator[Run]:
    """The inputs of a parser, one after the other."""
    parser = parsers()[name]
    seeds = [
        content
        for sample in [
            *found,
            Sample("archives", {str(i): a for i, a in enumerate(archives())}),
        ]
        for path, content in sample.files.items()
        if matches(parser, f"{sample.name}/{path}", content)
    ]
    inner = Damage(seeds, parser.tokens)
    outer = (
        Damage([PACK[parser.packing](s) for s in seeds], parser.tokens)
        if parser.packing
        else inner
    )
    path = scratch / (parser.name + parser.packing)
    for i in numbers:
        rng = random.Random(f"{seed}/{name}/{i}")
        if not parser.packing or rng.random() < 0.7:
            content = inner.draw(rng)
            if parser.repair and rng.random() < 0.8:
                content = parser.repair(content)
            content = PACK[parser.packing](content) if parser.packing else content
        else:
            content = outer.draw(rng)
        path.write_bytes(content)
        begin = time.process_time()
        taken, error, fault = _attempt(
            lambda content=content: parser.parse(content, path)
        )
        yield (
            taken,
            fault or (error and _unlike(error, path)),
            time.process_time() - begin,
            content,
        )


def _prepare(
    name: str,
    numbers: Iterable[int],
    seed: int,
    found: list[Sample],
    scratch: pathlib.Path,
) -> Iterator[Run]:
    """Folders with one damaged file, prepared one after the other."""
    own = [sample for sample in found if sample.name == name.removeprefix(PREPARE)]
    raw, target = scratch / "raw", scratch / "data"
    for i in numbers:
        rng = random.Random(f"{seed}/{name}/{i}")
        sample = rng.choice(own)
        victim = rng.choice(sorted(sample.files))
        where = f"{sample.name}/{victim}"
        tokens = next(
            (
                p.tokens
                for p in parsers().values()
                if matches(p, where, sample.files[victim])
            ),
            (),
        )
        content = Damage([sample.files[victim]], tokens).draw(rng)
        for folder in (raw, target):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for path, whole in sample.files.items():
            (raw / path).parent.mkdir(parents=True, exist_ok=True)
            (raw / path).write_bytes(content if path == victim else whole)
        begin = time.process_time()
        taken, error, fault = _attempt(
            lambda sample=sample: data.prepare(
                sample.name, raw, target, any_checksum=True
            )
        )
        if taken:
            _, unread, fault = _attempt(
                lambda sample=sample: _read(sample.name, target)
            )
            fault = fault or (unread and f"prepared, but cannot be read: {unread}")
        elif left := [str(p.relative_to(target)) for p in target.rglob("*")]:
            fault = fault or f"left in the data directory: {', '.join(left[:5])}"
        fault = fault or (error and _unlike(error, None))
        yield (
            taken,
            fault and f"{victim}: {fault}",
            time.process_time() - begin,
            content,
        )


def _read(name: str, target: pathlib.Path) -> None:
    """Look at everything a prepared set has."""
    data.facts(name, target)
    for split in json.loads((data.place(name, target) / data.SEAL).read_text())[
        "splits"
    ]:
        for column in data.open_columns(name, split, target).values():
            len(column)


def _attempt(run: Callable[[], object]) -> tuple[bool, DataError | None, str | None]:
    """(whether it returned, its refusal, its fault)."""
    try:
        with _limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
        return True, None, None
    except DataError as e:
        return False, e, None
    except (Exception, Slow) as e:
        at = traceback.extract_tb(e.__traceback__)[-1]
        return (
            False,
            None,
            f"{type(e).__name__}: {str(e)[:200]!a} at {pathlib.Path(at.filename).name}:{at.lineno}",
        )


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raises Slow after LIMIT_S; in other threads than the first, which get no signals, does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_):
        raise Slow(f"took longer than {LIMIT_S:g} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _unlike(error: DataError, path: pathlib.Path | None) -> str | None:
    """What is wrong with a refusal, None if nothing is."""
    line, cause = str(error), error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return f"refused for want of memory: {line[:200]}"
        cause = cause.__cause__ or cause.__context__
    if not line.isprintable():
        return f"the message is not one printable line: {line[:300]!a}"
    if path and str(path) not in line:
        return f"the message does not name the file: {line[:300]}"
    if len(line) - len(str(path or "")) > LONGEST_MESSAGE:
        return f"the message has {len(line)} characters: {line[:300]}"
    return None


def _status(key: str) -> int:
    """A number of /proc/self/status in bytes, 0 where there is no such file."""
    try:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:")), 0
    )
