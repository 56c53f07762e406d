"""Prepare a data set from its official files: python scripts/prepare.py NAME [flags]

    python scripts/prepare.py --list            show every set: source, licence, files
    python scripts/prepare.py mnist --download  fetch the files, check and prepare them
    python scripts/prepare.py mnist --raw DIR   prepare official files that you have
    python scripts/prepare.py mnist --raw DIR --as my_digits    prepare your own files

Files may be plain, .gz or .xz. Official files are checked against known checksums.
Other files of the same format become a set with a name of their own. Where something is
missing or wrong, the exit code is 2, and nothing half-prepared is left behind.
"""

import argparse
import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator

from lnrepro import data
from lnrepro.engine.errors import UserError, ended
from scripts.commands import Parser


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
    args = parser.parse_args(argv)
    if args.list:
        for name in [args.name] if args.name else sorted(data.TABLE):
            show(name, args.raw, args.data_dir)
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
    builder = data.builder_class(name)
    state = "not prepared"
    if data.prepared(name, data_dir):
        state = data.fingerprint(name, data_dir)
    print(f"{name}  {state}")
    print(f"  what      {builder.__doc__.splitlines()[0]}")
    print(f"  source    {builder.source}")
    print(f"  licence   {builder.licence}")
    print(f"  size      {builder.size}")
    if builder.embedded:
        print("  files     none needed: it prepares itself at first use")
    else:
        names = ", ".join(file.name for file in builder.files)
        folder = raw_folder(name, raw, data_dir)
        print(f"  files     {names} (plain, .gz or .xz)")
        print(f"  put into  {folder}  (or another folder, with --raw)")
    print(f"  prepared  {data.place(name, data_dir)}")


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
        place = data.place(name, args.data_dir)
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
            progress=report,
        )
    # The fingerprint is what runs record of their data.
    fingerprint = data.fingerprint(args.own_name or name, args.data_dir)
    print(f"{fingerprint} is prepared in {where}")


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
