"""Every parser of official files, on damaged files.

    python -m tests.hardening fuzz --inputs 10000 --seeds DATA_DIR --out fuzz

The files are small ones of every format (samples.py), generated or, with --seeds, cut
from the official ones. The damage is that of mutate.py. Hypothesis draws it, repeats it
for the same --seed, and looks for the smallest file that shows a fault.

A parser may return, or raise DataError with one printable line that names the file.
Everything else is a fault: another exception, a MemoryError behind a DataError, more
than LIMIT_SECONDS of processor time, more than MEMORY, a crash of the process. Rows
that begin with `prepare` damage one file of a set's folder, or change the folder, and
prepare the set from it: then either all its columns can be read, or nothing is left in
the data directory. A change that is harmless, such as files that an operating system
adds, must give the same fingerprint. A row ends at its first fault; OUT/ROW has the
files that show it.
"""

import argparse
import collections
import contextlib
import fnmatch
import functools
import json
import multiprocessing
import pathlib
import resource
import shutil
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import hypothesis
from hypothesis import strategies as st

from lnrepro import data
from lnrepro.errors import DataError
from scripts import markdown as md
from tests.hardening.mutate import FOLDER_KINDS, HARMLESS, PACK, Files, damaged
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
PREPARE = "prepare "
# The name of the set that is prepared from damaged files.
OWN_NAME = "damaged"
# Rows are processes of a fork server. It is started before JAX has threads, and imports
# this module once.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


class Result(NamedTuple):
    """What happened to the inputs of a row.

    Attributes:
      name: the row.
      accepted: how many inputs the parser accepted.
      refused: how many it refused.
      fault: what else it did, or None.
      slowest: processor time of the slowest input.
    """

    name: str
    accepted: int
    refused: int
    fault: str | None
    slowest: float


class Fault(Exception):
    """A parser did what it must not do."""


class Slow(BaseException):
    """An input took longer than LIMIT_SECONDS.

    It is not an Exception, so that no parser takes it for the sign of a damaged file.
    """


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `fuzz`."""
    add = parser.add_argument
    add("--inputs", type=int, default=10_000, help="damaged files for each parser")
    add("--prepared", type=int, default=300, help="damaged folders for each set")
    add("--parsers", nargs="+", metavar="NAME", help="only these rows of the table")
    add(
        "--seeds",
        type=pathlib.Path,
        metavar="DATA_DIR",
        help="folder with official files to cut from",
    )
    add("--seed", type=int, default=0, help="seed of the damage")
    add(
        "--out",
        type=pathlib.Path,
        required=True,
        help="folder for the table and the files that show faults",
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
    names_of_columns = ("parser", "inputs", "accepted", "refused", "other errors")
    lines = [md.head((*names_of_columns, "slowest ms"))]
    print(lines[0], flush=True)
    faults = 0
    for name in names:
        count = args.prepared if name.startswith(PREPARE) else args.inputs
        scratch = args.out / name.replace(" ", "-")
        r = in_own_process(name, count, args.seed, found, scratch)
        counts = (f"{n:,}" for n in (r.accepted + r.refused, r.accepted, r.refused))
        fault, slowest = int(bool(r.fault)), f"{1000 * r.slowest:.0f}"
        lines.append(md.row((r.name, *counts, fault, slowest)))
        print(lines[-1], flush=True)
        if r.fault:
            faults += 1
            print(f"    {r.fault}; see {scratch}", flush=True)
        else:
            shutil.rmtree(scratch)
    (args.out / "fuzz.md").write_text("\n".join(lines) + "\n")
    return int(faults > 0)


Table = Callable[[], dict[str, Parser]]


def in_own_process(
    name: str,
    count: int,
    seed: int,
    found: list[Sample],
    scratch: pathlib.Path,
    table: Table = parsers,
) -> Result:
    """Call `trial` in a process with limited memory.

    A crash, or a process that does not end, is a fault too.
    """
    receiver, sender = PROCESSES.Pipe(duplex=False)
    arguments = (sender, name, count, seed, found, scratch, table)
    child = PROCESSES.Process(target=_limited_trial, args=arguments)
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
        fault = f"the process ended with exit code {child.exitcode}"
        return Result(name, 0, 0, fault, 0.0)
    finally:
        child.join()


def _limited_trial(sender, name, *arguments):
    # The first number is the size of the address space in pages.
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    # Preparing starts threads of TFDS, which reserve more than they use.
    if not name.startswith(PREPARE):
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    sender.send(trial(name, *arguments))


def trial(
    name: str,
    count: int,
    seed: int,
    found: list[Sample],
    scratch: pathlib.Path,
    table: Table = parsers,
) -> Result:
    """Try the inputs of a row.

    Args:
      name: the row.
      count: the number of inputs.
      seed: of the damage.
      found: the samples.
      scratch: folder of the input; the one that shows a fault stays there.
      table: returns the parsers by their names.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    row = _preparing if name.startswith(PREPARE) else _parsing
    inputs, is_accepted = row(name, found, scratch, table())
    counts, seconds = collections.Counter(), [0.0]

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
    )
    @hypothesis.given(inputs)
    def attempt(drawn):
        began = time.process_time()
        counts[is_accepted(drawn)] += 1
        seconds.append(time.process_time() - began)

    fault = None
    try:
        attempt()
    except Fault as e:
        fault = str(e)
    # An input that was slow once, and not again.
    except hypothesis.errors.Flaky as e:
        fault = str(getattr(e, "exceptions", [e])[0])
    return Result(name, counts[True], counts[False], fault, max(seconds))


def matches(parser: Parser, where: str, content: bytes) -> bool:
    """Whether a parser reads a file.

    Args:
      parser: the parser.
      where: SET/PATH of the file.
      content: its content.
    """
    return fnmatch.fnmatch(where, parser.files) and content.startswith(parser.begins)


def _parsing(name, found, scratch, table):
    """Return damaged files, and a function that tries a parser on one."""
    parser = table[name]
    tars = Sample("archives", {str(i): tar for i, tar in enumerate(archives())})
    seeds = []
    for sample in [*found, tars]:
        for path, content in sample.files.items():
            if matches(parser, f"{sample.name}/{path}", content):
                seeds.append(content)
    inputs = damaged(seeds, parser.tokens)
    if parser.repair:
        inputs = inputs.map(parser.repair) | inputs
    # With a packing, the damage is done before packing or after.
    if parser.packing:
        pack = PACK[parser.packing]
        inputs = inputs.map(pack) | damaged([pack(s) for s in seeds], parser.tokens)
    path = scratch / (parser.name + parser.packing)

    def is_accepted(content):
        path.write_bytes(content)
        error = refusal(functools.partial(parser.parse, content, path))
        if error:
            check_message(error, path)
        return not error

    return inputs, is_accepted


class Folder(NamedTuple):
    """A folder with a damaged file or a change.

    Attributes:
      number: the number of the sample that it was.
      files: its files.
      harmless: whether it must give the same set as the sample.
    """

    number: int
    files: Files
    harmless: bool


@st.composite
def folders(draw: st.DrawFn, own: list[Sample], table: dict[str, Parser]) -> Folder:
    """Draw a folder.

    Args:
      draw: of hypothesis.
      own: the samples of a set.
      table: the parsers by their names.
    """
    number = draw(st.integers(0, len(own) - 1))
    sample = own[number]
    if draw(st.sampled_from((False, False, True))):
        change = draw(st.sampled_from(FOLDER_KINDS))
        rng = draw(st.randoms(use_true_random=False))
        return Folder(number, change(rng, sample.files), change in HARMLESS)
    path = draw(st.sampled_from(sorted(sample.files)))
    where, whole = f"{sample.name}/{path}", sample.files[path]
    reading = [p.tokens for p in table.values() if matches(p, where, whole)]
    content = draw(damaged([whole], reading[0] if reading else ()))
    # One file is damaged, and the others are whole.
    return Folder(number, sample.files | {path: content}, False)


def _preparing(name, found, scratch, table):
    """Return changed folders, and a function that prepares a set from one."""
    own = [sample for sample in found if sample.name == name.removeprefix(PREPARE)]
    raw, target = scratch / "raw", scratch / "data"

    def prepared(files):
        """Return the fingerprint, or None if the files were refused."""
        for folder in (raw, target):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for path, content in files.items():
            (raw / path).parent.mkdir(parents=True, exist_ok=True)
            (raw / path).write_bytes(content)
        prepare = functools.partial(data.prepare, own_name=OWN_NAME)
        error = refusal(functools.partial(prepare, own[0].name, raw, target))
        if not error:
            unread = refusal(functools.partial(_read, OWN_NAME, target))
            if unread:
                raise Fault(f"prepared, but cannot be read: {unread}")
            return data.fingerprint(OWN_NAME, target)
        left = [str(path.relative_to(target)) for path in target.rglob("*")]
        if left:
            raise Fault(f"left in the data directory: {', '.join(left[:5])}")
        check_message(error)
        return None

    @functools.cache
    def unchanged(number):
        return prepared(own[number].files)

    def is_accepted(folder):
        # The fingerprint of the sample comes first, so that raw is the changed folder
        # when there is a fault.
        wanted = unchanged(folder.number) if folder.harmless else None
        fingerprint = prepared(folder.files)
        if folder.harmless and (fingerprint is None or fingerprint != wanted):
            raise Fault(f"not the same set: {fingerprint}")
        return fingerprint is not None

    return folders(own, table), is_accepted


def _read(name, target):
    """Read everything that a prepared set has."""
    data.facts(name, target)
    seal = json.loads((data.set_folder(name, target) / data.SEAL).read_text())
    for split in seal["splits"]:
        for column in data.open_columns(name, split, target).values():
            len(column)


def refusal(run: Callable[[], object]) -> DataError | None:
    """Call a function, and return the error by which it refuses its input, or None.

    Raises:
      Fault: it raised something else, or took too long.
    """
    try:
        with _time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    except DataError as e:
        return e
    except (Exception, Slow) as e:
        frame = traceback.extract_tb(e.__traceback__)[-1]
        place = f"{pathlib.Path(frame.filename).name}:{frame.lineno}"
        raise Fault(f"{type(e).__name__}: {str(e)[:200]!a} at {place}") from e
    return None


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


def check_message(error: DataError, path: pathlib.Path | None = None) -> None:
    """Check the message of a refusal.

    Args:
      error: the refusal.
      path: the file that it must name, or None.

    Raises:
      Fault: it is not one short line about the file, or memory was short.
    """
    line, cause = str(error), error
    # Parsers turn exceptions into DataErrors, so a MemoryError may stand behind one.
    while cause is not None:
        if isinstance(cause, MemoryError):
            raise Fault(f"refused for want of memory: {line[:200]}")
        cause = cause.__cause__ or cause.__context__
    if not line.isprintable():
        raise Fault(f"the message is not one printable line: {line[:300]!a}")
    if path and str(path) not in line:
        raise Fault(f"the message does not name the file: {line[:300]}")
    if len(line) - len(str(path or "")) > LONGEST_MESSAGE:
        raise Fault(f"the message has {len(line)} characters: {line[:300]}")
