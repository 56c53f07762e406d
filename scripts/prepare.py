"""Prepare a data set from its official files: python scripts/prepare.py NAME [flags]

    python scripts/prepare.py --list            show every set: source, licence, files
    python scripts/prepare.py mnist --download  fetch the files, check and prepare them
    python scripts/prepare.py mnist --raw DIR   prepare official files that you have
    python scripts/prepare.py mnist --raw DIR --as my_digits    prepare your own files
    python scripts/prepare.py mnist --verify    compare every file with its checksum

Files may be plain, .gz, .xz, .bz2 or .zst. Official files are checked against known
checksums. Other files of the same format become a set with a name of their own. Where
something is missing or wrong, the exit code is 2, and nothing half-prepared is left
behind.
"""

import argparse
import contextlib
import functools
import importlib
import itertools
import operator
import pathlib
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from lnrepro import data
from lnrepro.data.builder import read_notes
from lnrepro.data.encodings import visible
from lnrepro.data.file_kinds import PLAIN_OR_PACKED
from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, ended

ROOT = pathlib.Path(__file__).parents[1]
# Entries of a table of counts that are printed.
SHOWN = 8


def main(argv: list[str]) -> None:
    """Show or prepare data sets.

    Raises:
      UserError: a wrong flag, or files that are missing or wrong.
    """
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("name", nargs="?", help="the data set, see --list")
    add(
        "--list",
        action="store_true",
        help="show all sets, or the named one, and do nothing else",
    )
    add(
        "--raw",
        metavar="DIR",
        help="folder of the official files; DATA_DIR/raw/NAME by default",
    )
    add(
        "--records",
        action="store_true",
        help="keep the ArrayRecord files of TFDS too, for readers other than training",
    )
    add(
        "--download",
        action="store_true",
        help="first fetch the files that are missing into --raw",
    )
    add(
        "--data_dir",
        metavar="DIR",
        help="folder of the prepared sets; else $LNREPRO_DATA or ~/.cache/lnrepro",
    )
    add(
        "--as",
        dest="own_name",
        metavar="OWN_NAME",
        help="prepare other files of the same format, as a set of this name",
    )
    add(
        "--verify",
        action="store_true",
        help="only compare the files of the prepared set with their checksums",
    )
    args = parser.parse_args(argv)
    warnings.showwarning = print_warning
    if args.list:
        for name in [args.name] if args.name else sorted(data.TABLE):
            show(name, args.raw, args.data_dir)
    elif args.name and args.verify:
        verify(args.name, args.data_dir)
    elif args.name:
        prepare(args)
    else:
        parser.error("name a data set, or pass --list")


def raw_folder(name: str, raw: str | None, data_dir: str | None) -> pathlib.Path:
    """Return the folder of the official files of a set.

    Args:
      name: the set.
      raw: --raw.
      data_dir: --data_dir.
    """
    if raw:
        return pathlib.Path(raw).expanduser()
    return data.data_root(data_dir) / "raw" / name


def show(name: str, raw: str | None, data_dir: str | None) -> None:
    """Print what a set is and where its files go.

    Args:
      name: the set.
      raw: --raw.
      data_dir: --data_dir.
    """
    builder = data.builder_class(name, data_dir)
    place = data.set_folder(name, data_dir)
    state, where = "not prepared", f"  goes to   {place}"
    if builder.embedded:
        state = "prepares itself at first use"
    if data.prepared(name, data_dir):
        state, where = data.fingerprint(name, data_dir), f"  prepared  {place}"
    print(f"{name}  {state}")
    print(f"  what      {builder.__doc__.splitlines()[0]}")
    print(f"  source    {builder.source}")
    print(f"  licence   {builder.licence}")
    print(f"  size      {builder.size}")
    if builder.embedded:
        print("  files     none: it is generated, or part of a Python package")
    else:
        names = ", ".join(file.name for file in builder.files)
        folder = raw_folder(name, raw, data_dir)
        print(f"  files     {names} ({PLAIN_OR_PACKED})")
        print(f"  put into  {folder}  (or another folder, with --raw)")
    print(where)


def verify(name: str, data_dir: str | None) -> None:
    """Compare every file of a prepared set with its checksum.

    Args:
      name: the set.
      data_dir: --data_dir.

    Raises:
      UserError: the set is not prepared, or a file has changed.
    """
    place = data.set_folder(name, data_dir)
    if not data.prepared(name, data_dir):
        raise UserError(f"{name} is not prepared in {place}, or a file is missing")
    if damaged := data.open_set(name, data_dir).damaged_files():
        raise UserError(
            f"{place}: {', '.join(damaged)}: changed since the set was prepared; "
            "remove that folder and prepare the set again"
        )
    print(f"{data.fingerprint(name, data_dir)}: every file in {place} is unchanged")


def prepare(args: argparse.Namespace) -> None:
    """Download files if the flags say so, and prepare a set.

    Raises:
      UserError: files are missing or wrong.
    """
    name = args.name
    # The default folder is for the official files.
    if args.own_name and not args.raw:
        raise UserError(f"--as={args.own_name} needs --raw, the folder of your files")
    # A prepared set is never overwritten.
    if not args.own_name and data.prepared(name, args.data_dir):
        place = data.set_folder(name, args.data_dir)
        if args.raw:
            raise UserError(
                f"{name} is prepared already, and --raw was not read; to prepare files "
                f"of your own, pass --as OWN_NAME; to prepare it again, remove {place}"
            )
        print(f"{name} is prepared already; to prepare it again, first remove {place}")
        return
    raw = raw_folder(name, args.raw, args.data_dir)
    with progress_bars() as report:
        if args.download:
            download_missing(name, raw, report)
        where = data.prepare(
            name,
            raw,
            args.data_dir,
            own_name=args.own_name,
            records=args.records,
            progress=report,
        )
    name = args.own_name or name
    # The fingerprint is what runs record of their data.
    print(f"{data.fingerprint(name, args.data_dir)} is prepared in {where}")
    for line in summary(name, args.data_dir):
        print(f"  {line}")


def summary(name: str, data_dir: str | None) -> list[str]:
    """Return what a set holds and the commands that train on it, as lines.

    Args:
      name: the set.
      data_dir: --data_dir.
    """
    sizes = data.split_sizes(name, data_dir)
    lines = [f"{split}: {count:,}" for split, count in sizes.items()]
    for fact, value in data.facts(name, data_dir).items():
        lines.append(f"{fact.replace('_', ' ')}: {in_short(value)}")
    for what, count in read_notes(data.set_folder(name, data_dir)).items():
        lines.append(f"{what}: {count:,}")
    for config in data.builder_class(name, data_dir).configs:
        lines.append(training_command(name, config, data_dir))
    return lines


def in_short(value: Any) -> str:
    """Return a fact in a few words; of a long list, its length."""
    if isinstance(value, dict):
        few = itertools.islice(value.items(), SHOWN)
        shown = [f"{visible(key)}: {in_short(inner)}" for key, inner in few]
        return "; ".join(shown)
    if isinstance(value, list):
        if not 0 < len(value) <= SHOWN or not isinstance(value[0], int | float):
            return f"{len(value):,}"
        return " ".join(in_short(inner) for inner in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def training_command(name: str, config: str, data_dir: str | None) -> str:
    """Return the command that trains on a set.

    Args:
      name: the set.
      config: the config file.
      data_dir: --data_dir.
    """
    from lnrepro.checks import size_flag
    from lnrepro.engine import config_file

    flags = [f"--config.data.name={name}"]
    is_paper = config_file.read(f"{ROOT / config}:paper").data.name == name
    if is_paper:
        config += ":paper"
        flags = []
    if data_dir:
        flags.append(shlex.quote(f"--config.data.dir={data_dir}"))
    resolved = config_file.read(str(ROOT / config), shlex.split(" ".join(flags)))
    sizes = importlib.import_module(resolved.experiment).sizes(resolved)
    for field, size in sizes.items():
        stated = operator.attrgetter(field)(resolved)
        # The default config has sizes of small sets, such as that of a vocabulary.
        if size.problem(stated) or (not is_paper and stated != size.value):
            flags.append(size_flag(field, size))
    if not is_paper:
        # The default directory belongs to the config's own data.
        experiment = resolved.experiment.rpartition(".")[2]
        flags.append(f"--workdir=runs/{experiment}/{name}")
    return " ".join(["python -m lnrepro.main", f"--config={config}", *flags])


def print_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, in place of `warnings.showwarning`."""
    print(f"warning: {message}", file=sys.stderr)


def download_missing(
    name: str, raw: pathlib.Path, report: Callable[[str, int, int], None]
) -> None:
    """Download the files of a set that are missing.

    Args:
      name: the set.
      raw: the folder of the files.
      report: what `progress_bars` yields.
    """
    from lnrepro.data.download import download
    from lnrepro.data.raw import Raw

    files = data.builder_class(name).files
    for file in files:
        # A file may be there plain or packed.
        if not Raw(name, raw, files).find(file.name):
            download(file, raw, progress=functools.partial(report, file.name))


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield report(what, done, total), which keeps one bar for each `what`.

    Nothing is drawn before its first call.
    """
    from rich.console import Console
    from rich.progress import Progress

    # On stderr, so that stdout has the result alone.
    bars, tasks = Progress(console=Console(stderr=True)), {}

    def report(what: str, done: int, total: int) -> None:
        bars.start()
        if what not in tasks:
            # rich shows a bar without an end where the total is not known.
            tasks[what] = bars.add_task(what, total=total or None)
        bars.update(tasks[what], completed=done)

    try:
        yield report
    finally:
        # Nothing was started where nothing was reported.
        if tasks:
            bars.stop()


if __name__ == "__main__":
    ended(main, "preparing data")
