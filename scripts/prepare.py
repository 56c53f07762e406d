"""Prepare a data set from its official files: python scripts/prepare.py NAME [--raw DIR] [--download] [--data_dir DIR]

    python scripts/prepare.py --list                 every set: source, licence, size, files, where they go
    python scripts/prepare.py mnist --download       fetch the files, check them, prepare the set
    python scripts/prepare.py mnist --raw ~/mnist    the same from files you have (plain, .gz or .xz)

Files are checked against known checksums; --any-checksum admits other files of the same format. Exit code 2, with one
line, for anything missing or wrong; nothing half-prepared is left behind.
"""

import argparse
import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lnrepro import data
from lnrepro.engine.errors import ended


def main(argv: list[str]) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", help="the data set, see --list")
    parser.add_argument(
        "--list",
        action="store_true",
        help="show all sets, or the one named, and do nothing",
    )
    parser.add_argument(
        "--raw",
        metavar="DIR",
        help="folder with the official files; default DATA_DIR/raw/NAME",
    )
    parser.add_argument(
        "--download",
        action="store_true",
        help="first fetch the files that are missing into --raw",
    )
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="where sets lie prepared; $LNREPRO_DATA or ~/.cache/lnrepro",
    )
    parser.add_argument(
        "--any-checksum",
        action="store_true",
        help="take other files of the same format",
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
    """Where the official files of a set are looked for."""
    return (
        pathlib.Path(raw).expanduser()
        if raw
        else data.data_root(data_dir) / "raw" / name
    )


def show(name: str, raw: str | None, data_dir: str | None) -> None:
    """Print what a set is and where its files go."""
    cls = data.builder_class(name)
    print(
        f"{name}  {data.fingerprint(name, data_dir) if data.prepared(name, data_dir) else 'not prepared'}"
    )
    print(f"  what      {cls.__doc__.splitlines()[0]}")
    print(f"  source    {cls.source}")
    print(f"  licence   {cls.licence}")
    print(f"  size      {cls.size}")
    if cls.embedded:
        print("  files     none needed: prepares itself at first use")
    else:
        print(
            f"  files     {', '.join(file.name for file in cls.files)} (plain, .gz or .xz)"
        )
        print(
            f"  put into  {raw_folder(name, raw, data_dir)}  (or name another folder with --raw)"
        )
    print(f"  prepared  {data.place(name, data_dir)}")


def prepare(args: argparse.Namespace) -> None:
    """Download if asked to, and prepare."""
    if data.prepared(args.name, args.data_dir):
        print(
            f"{args.name} is prepared already; to do it again, first remove {data.place(args.name, args.data_dir)}"
        )
        return
    raw = raw_folder(args.name, args.raw, args.data_dir)
    with progress_bars() as report:
        if args.download:
            from lnrepro.data.raw import Raw, download

            files = data.builder_class(args.name).files
            for file in files:
                if not Raw(args.name, raw, files).find(file.name):
                    download(
                        file,
                        raw,
                        progress=lambda done, total, file=file: report(
                            file.name, done, total
                        ),
                    )
        where = data.prepare(
            args.name,
            raw,
            args.data_dir,
            any_checksum=args.any_checksum,
            progress=report,
        )
    print(f"{data.fingerprint(args.name, args.data_dir)} is prepared in {where}")


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yields report(what, done, total), which keeps one bar for each `what`; nothing is drawn before its first call."""
    from rich.console import Console
    from rich.progress import Progress

    bars, tasks = Progress(console=Console(stderr=True)), {}

    def report(what: str, done: int, total: int) -> None:
        bars.start()
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total or None)
        bars.update(tasks[what], completed=done)

    try:
        yield report
    finally:
        if tasks:
            bars.stop()


if __name__ == "__main__":
    ended(main, "preparing data")
