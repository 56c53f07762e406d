"""Every parser of official files, on damaged files.

    python -m tests.hardening fuzz --inputs 10000 --seeds DATA_DIR --out fuzz

The files are small ones of every format (samples.py), generated or, with --seeds, cut
from the official ones. The damage is that of mutate.py. It is seeded, so that input i
of a parser is always the same file.

A parser may return, or raise DataError with one printable line that names the file.
Everything else is a fault: another exception, a MemoryError behind a DataError, more
than LIMIT_SECONDS of processor time, more than MEMORY, a crash of the process. Rows
that begin with `prepare` damage one file of a set's folder, or change the folder, and
prepare the set from it: then either all its columns can be read, or nothing is left in
the data directory. A change that is harmless, such as files that an operating system
adds, must give the same fingerprint.
"""

import argparse
import contextlib
import fnmatch
import functools
import json
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
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lnrepro import data
from lnrepro.errors import DataError
from tests.hardening.mutate import FOLDER_KINDS, HARMLESS, PACK, Damage
from tests.hardening.parsers import Parser, parsers
from tests.hardening.samples import Sample, archives, samples

# Limit of an input, in processor time.
LIMIT_SECONDS = 5.0
# Limit in bytes of address space that a process may take beyond its first.
MEMORY = 1 << 30
# Limit in characters of a message, without the path of the file.
LONGEST_MESSAGE = 600
# Limit of a row of the table.
TOTAL_SECONDS = 3600.0
# Number of faults of a row whose inputs are kept.
KEPT = 50
PREPARE = "prepare "
# The name of the set that is prepared from damaged files.
OWN_NAME = "damaged"


class Result(NamedTuple):
    """What happened to the inputs of a row.

    Attributes:
      name: the row.
      inputs: their number.
      accepted: how many the parser accepted.
      refused: how many it refused.
      faults: (number of the input, what happened).
      seconds: processor time of all.
      slowest: processor time of the slowest.
      memory: bytes that the process took beyond its first.
    """

    name: str
    inputs: int
    accepted: int
    refused: int
    faults: list[tuple[int, str]]
    seconds: float
    slowest: float
    memory: int


class Slow(BaseException):
    """An input took longer than LIMIT_SECONDS.

    It is not an Exception, so that no parser takes it for the sign of a damaged file.
    """


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `fuzz`."""
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
        help="only these rows of the table; all by default",
    )
    parser.add_argument(
        "--seeds",
        type=pathlib.Path,
        metavar="DATA_DIR",
        help="folder with official files to cut from",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the damage")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        required=True,
        help="folder for the table and the inputs of faults",
    )


def main(args: argparse.Namespace) -> int:
    """Try every row and print the table.

    Returns:
      1 if there was a fault, otherwise 0.
    """
    found = samples(args.seeds)
    sets = sorted({sample.name for sample in found} & set(data.TABLE))
    names = args.parsers or [*parsers(), *(PREPARE + name for name in sets)]
    args.out.mkdir(parents=True, exist_ok=True)
    lines = [
        "| parser | inputs | accepted | refused | other errors | seconds | slowest ms "
        "| peak memory MB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    print("\n".join(lines), flush=True)
    results = []
    for name in names:
        count = args.prepared if name.startswith(PREPARE) else args.inputs
        r = in_own_process(name, count, args.seed, found, args.out)
        results.append(r)
        lines.append(
            f"| {r.name} | {r.inputs:,} | {r.accepted:,} | {r.refused:,} "
            f"| {len(r.faults)} | {r.seconds:.0f} | {1000 * r.slowest:.0f} "
            f"| {r.memory / 2**20:.0f} |"
        )
        print(lines[-1], flush=True)
        for number, what in r.faults[:10]:
            print(f"    input {number}: {what}", flush=True)
    (args.out / "fuzz.md").write_text("\n".join(lines) + "\n")
    text = json.dumps([r._asdict() for r in results], indent=1)
    (args.out / "fuzz.json").write_text(text)
    inputs = sum(r.inputs for r in results)
    faults = sum(len(r.faults) for r in results)
    print(
        f"\n{inputs:,} inputs, {faults} other errors; seed {args.seed}; table in "
        f"{args.out}"
    )
    return 1 if faults else 0


def in_own_process(
    name: str, count: int, seed: int, found: list[Sample], out: pathlib.Path
) -> Result:
    """Call `trial` in a process with limited memory.

    A crash, or a process that does not end, is a result too.

    Args:
      name: the row.
      count: the number of inputs.
      seed: of the damage.
      found: the samples.
      out: the folder of kept inputs.
    """
    # A fork does not import everything again.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    current = context.Value("q", -1)
    arguments = (sender, current, name, count, seed, found, out)
    child = context.Process(target=_limited_trial, args=arguments)
    began = time.monotonic()
    child.start()
    # The parent's copy is closed, so that `recv` sees the end of the pipe when the
    # child dies.
    sender.close()
    try:
        if not receiver.poll(TOTAL_SECONDS):
            child.kill()
        return receiver.recv()
    except EOFError:
        child.join()
        fault = current.value, f"the process ended with exit code {child.exitcode}"
        seconds = time.monotonic() - began
        return Result(name, current.value + 1, 0, 0, [fault], seconds, 0.0, 0)
    finally:
        child.join()


def _limited_trial(sender, current, name, count, seed, found, out):
    size = _status("VmSize")
    # Preparing starts threads of TFDS, which reserve more than they use.
    if size and not name.startswith(PREPARE):
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))

    def note(i):
        current.value = i

    sender.send(trial(name, count, seed, found, out, note))


def trial(
    name: str,
    count: int,
    seed: int,
    found: list[Sample],
    out: pathlib.Path | None = None,
    began: Callable[[int], None] = lambda i: None,
) -> Result:
    """Try inputs 0, ..., count - 1 of a row.

    Args:
      name: the row.
      count: the number of inputs.
      seed: of the damage.
      found: the samples.
      out: the folder where the inputs of faults are kept, or None.
      began: called with the number of each input before it is tried.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        attempts = _prepare if name.startswith(PREPARE) else _parse
        # The generator tries one input at a time, so that its number is known if it
        # crashes.
        runs = attempts(name, range(count), seed, found, pathlib.Path(scratch))
        # This resets VmHWM.
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/self/clear_refs").write_text("5")
        before, begin = _status("VmRSS"), time.process_time()
        accepted = refused = 0
        slowest, faults = 0.0, []
        for i in range(count):
            began(i)
            taken, fault, seconds, content = next(runs)
            slowest = max(slowest, seconds)
            if not fault:
                accepted += taken
                refused += not taken
                continue
            faults.append((i, fault))
            if out and len(faults) <= KEPT:
                kept = out / "faults" / f"{name.replace(' ', '-')}-{seed}-{i}"
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(content)
        seconds, memory = time.process_time() - begin, _status("VmHWM") - before
        return Result(name, count, accepted, refused, faults, seconds, slowest, memory)


def matches(parser: Parser, where: str, content: bytes) -> bool:
    """Whether a parser reads a file.

    Args:
      parser: the parser.
      where: SET/PATH of the file.
      content: its content.
    """
    return fnmatch.fnmatch(where, parser.files) and content.startswith(parser.begins)


class Attempt(NamedTuple):
    """What a parser did with one input.

    Attributes:
      accepted: whether it returned.
      fault: what is wrong, or None.
      seconds: processor time.
      content: the damaged file.
    """

    accepted: bool
    fault: str | None
    seconds: float
    content: bytes


def _parse(
    name,
    numbers,
    seed,
    found,
    scratch,
) -> Iterator[Attempt]:
    """Try a parser on one input after the other."""
    parser = parsers()[name]
    tars = Sample("archives", {str(i): tar for i, tar in enumerate(archives())})
    seeds = []
    for sample in [*found, tars]:
        for path, content in sample.files.items():
            if matches(parser, f"{sample.name}/{path}", content):
                seeds.append(content)
    # With a packing, the damage is done before packing or after.
    pack = PACK.get(parser.packing)
    inner = Damage(seeds, parser.tokens)
    outer = Damage([pack(s) for s in seeds], parser.tokens) if pack else None
    path = scratch / (parser.name + parser.packing)
    for i in numbers:
        rng = random.Random(f"{seed}/{name}/{i}")
        if not pack or rng.random() < 0.7:
            content = inner.draw(rng)
            if parser.repair and rng.random() < 0.8:
                content = parser.repair(content)
            if pack:
                content = pack(content)
        else:
            content = outer.draw(rng)
        path.write_bytes(content)
        begin = time.process_time()
        error, fault = _call(functools.partial(parser.parse, content, path))
        if error:
            fault = _wrong_message(error, path)
        seconds = time.process_time() - begin
        yield Attempt(not error and not fault, fault, seconds, content)


def _prepare(
    name,
    numbers,
    seed,
    found,
    scratch,
) -> Iterator[Attempt]:
    """Prepare a set from one folder with a damaged file after the other."""
    own = [sample for sample in found if sample.name == name.removeprefix(PREPARE)]
    raw, target = scratch / "raw", scratch / "data"
    whole_sets: dict[int, str] = {}
    for i in numbers:
        rng = random.Random(f"{seed}/{name}/{i}")
        sample = rng.choice(own)
        if rng.random() < 0.3:
            yield _change(sample, rng, raw, target, whole_sets)
            continue
        chosen = rng.choice(sorted(sample.files))
        whole = sample.files[chosen]
        where = f"{sample.name}/{chosen}"
        reading = [p for p in parsers().values() if matches(p, where, whole)]
        tokens = reading[0].tokens if reading else ()
        content = Damage([whole], tokens).draw(rng)
        # One file is damaged, and the others are whole.
        files = sample.files | {chosen: content}
        begin = time.process_time()
        accepted, fault, _ = _prepare_once(sample.name, files, raw, target)
        if fault:
            fault = f"{chosen}: {fault}"
        yield Attempt(accepted, fault, time.process_time() - begin, content)


def _change(
    sample: Sample,
    rng: random.Random,
    raw: pathlib.Path,
    target: pathlib.Path,
    whole_sets: dict[int, str],
) -> Attempt:
    """Change a folder and prepare the set from it.

    Args:
      sample: the folder.
      rng: chooses the change.
      raw: where the files are written.
      target: the data directory.
      whole_sets: the fingerprint of each unchanged folder, by its identity.
    """
    if id(sample) not in whole_sets:
        accepted, fault, found = _prepare_once(sample.name, sample.files, raw, target)
        if not accepted:
            return Attempt(False, f"unchanged: {fault or found}", 0.0, b"")
        whole_sets[id(sample)] = found
    change = rng.choice(FOLDER_KINDS)
    files = change(rng, sample.files)
    begin = time.process_time()
    accepted, fault, found = _prepare_once(sample.name, files, raw, target)
    if not fault and change in HARMLESS and found != whole_sets[id(sample)]:
        fault = f"not the same set: {found}"
    if fault:
        fault = f"{change.__name__}: {fault}"
    seconds = time.process_time() - begin
    return Attempt(accepted, fault, seconds, json.dumps(sorted(files)).encode())


def _prepare_once(
    name: str, files: dict[str, bytes], raw: pathlib.Path, target: pathlib.Path
) -> tuple[bool, str | None, str]:
    """Prepare a set from files.

    Args:
      name: the set.
      files: its files by their paths.
      raw: where they are written.
      target: the data directory.

    Returns:
      Whether it was prepared, what is wrong or None, and its fingerprint or why it was
      refused.
    """
    for folder in (raw, target):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    for path, content in files.items():
        (raw / path).parent.mkdir(parents=True, exist_ok=True)
        (raw / path).write_bytes(content)
    prepare = functools.partial(data.prepare, own_name=OWN_NAME)
    error, fault = _call(functools.partial(prepare, name, raw, target))
    found = str(error)
    accepted = not error and not fault
    left = [str(path.relative_to(target)) for path in target.rglob("*")]
    if accepted:
        unread, fault = _call(functools.partial(_read, OWN_NAME, target))
        if unread:
            fault = f"prepared, but cannot be read: {unread}"
        else:
            found = data.fingerprint(OWN_NAME, target)
    # A refused set must leave nothing behind.
    elif left and not fault:
        fault = f"left in the data directory: {', '.join(left[:5])}"
    if error and not fault:
        fault = _wrong_message(error, None)
    return accepted, fault, found


def _read(name, target):
    """Read everything that a prepared set has."""
    data.facts(name, target)
    seal = json.loads((data.set_folder(name, target) / data.SEAL).read_text())
    for split in seal["splits"]:
        for column in data.open_columns(name, split, target).values():
            len(column)


def _call(run) -> tuple[DataError | None, str | None]:
    """Call a function; return its refusal and its fault."""
    try:
        with _time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    except DataError as e:
        return e, None
    except (Exception, Slow) as e:
        frame = traceback.extract_tb(e.__traceback__)[-1]
        place = f"{pathlib.Path(frame.filename).name}:{frame.lineno}"
        return None, f"{type(e).__name__}: {str(e)[:200]!a} at {place}"
    return None, None


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Raise Slow after LIMIT_SECONDS.

    Threads other than the first get no signals. There it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_):
        raise Slow(f"took longer than {LIMIT_SECONDS:g} s")

    # ITIMER_PROF counts processor time, so that a busy machine does not make a parser
    # slow.
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _wrong_message(error, path):
    """Return what is wrong with a refusal, or None."""
    line, cause = str(error), error
    # Parsers turn exceptions into DataErrors, so a MemoryError may stand behind one.
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


def _status(key):
    """Return a number of /proc/self/status in bytes; 0 where there is no such file."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0
