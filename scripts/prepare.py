"""Prepare a data set from its official files: python scripts/prepare.py NAME [flags]

    python scripts/prepare.py --list            show every set: source, licence, files
    python scripts/prepare.py mnist --raw DIR   prepare official files that you have
    python scripts/prepare.py mnist --raw DIR --as my_digits    prepare your own files
    python scripts/prepare.py mnist --verify    compare the content with its checksum
    python scripts/prepare.py mnist --from_tfds DIR    read a set that TFDS prepared
    python scripts/prepare.py mnist --tfds DIR  write a prepared set as a set of TFDS

Files may be plain, .gz, .xz or .bz2. A set gets its own name only if its content is
shown to be the official one. Other files of the same format become a set with a name of
their own. Where something is missing or wrong, the exit code is 2, and nothing
half-prepared is left behind.
"""

import argparse
import contextlib
import importlib
import json
import operator
import pathlib
import shlex
import warnings
from collections.abc import Iterator
from typing import Any

from lnrepro import data
from lnrepro.data.files import PLAIN_OR_PACKED
from lnrepro.data.raw_folder import Progress
from lnrepro.data.set_folder import open_folder
from lnrepro.engine.command_line import Parser, print_warning
from lnrepro.errors import UserError, run_script

ROOT = pathlib.Path(__file__).parents[1]
# Characters of a fact that is printed.
LONGEST = 100


def main(argv: list[str]) -> None:
    """Show, prepare or convert data sets.

    Raises:
      UserError: a wrong flag, or files that are missing or wrong.
    """
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("name", nargs="?", help="the data set, see --list")
    add("--list", action="store_true", help="show all sets or one, and do nothing else")
    add("--raw", metavar="DIR", help="the official files; DATA_DIR/raw/NAME by default")
    add("--data_dir", metavar="DIR", help="where prepared sets are, see docs/data.md")
    add("--as", dest="own_name", metavar="OWN_NAME", help="name of a set of own files")
    add("--verify", action="store_true", help="only compare a set with its checksum")
    add("--from_tfds", metavar="DIR", help="read the set from a folder of TFDS")
    add("--tfds", metavar="DIR", help="only write the prepared set as a set of TFDS")
    args = parser.parse_args(argv)
    warnings.showwarning = print_warning
    if args.list:
        for name in [args.name] if args.name else sorted(data.TABLE):
            show(name, args.raw, args.data_dir)
    elif not args.name:
        parser.error("name a data set, or pass --list")
    elif args.verify:
        opened = data.open_set(args.name, args.data_dir)
        opened.verify()
        print(f"{opened.fingerprint}: the content of {opened.folder} is unchanged")
    elif args.tfds:
        from lnrepro.data import tfds_sets

        tfds_sets.write(data.open_set(args.name, args.data_dir), args.tfds)
        print(f"{args.name} is in {args.tfds}, for tfds.builder_from_directory")
    else:
        prepare(args)


def show(name: str, raw: str | None, data_dir: str | None) -> None:
    """Print what a set is and where its files go.

    Args:
      name: the set.
      raw: --raw.
      data_dir: --data_dir.
    """
    reader = data.reader_of(name, data_dir)
    place = data.folder_of(name, data_dir)
    opened = open_folder(place)
    print(f"{name}  {opened.fingerprint if opened else 'not prepared'}")
    lines = {
        "what": reader.title,
        "source": reader.source,
        "licence": reader.licence,
        "size": reader.size,
        "prepared": place,
    }
    if reader.embedded:
        lines["files"] = "none: it prepares itself at its first use"
    else:
        lines["files"] = f"{', '.join(reader.files)} ({PLAIN_OR_PACKED})"
        lines["put into"] = data.raw_folder(name, raw, data_dir)
    for label, text in lines.items():
        print(f"  {label:9} {text}")


def prepare(args: argparse.Namespace) -> None:
    """Prepare a set, and print what it holds.

    Raises:
      UserError: files are missing or wrong.
    """
    name, given = args.name, args.raw or args.from_tfds
    # The default folder is for the official files.
    if args.own_name and not given:
        raise UserError(f"--as={args.own_name} needs --raw, the folder of your files")
    # A prepared set is never overwritten.
    place = data.folder_of(name, args.data_dir)
    if not args.own_name and open_folder(place):
        state = f"{name} is prepared already; to prepare it again, first remove {place}"
        if given:
            raise UserError(f"{given} was not read: {state}, or pass --as OWN_NAME")
        print(state)
        return
    reader = None
    if args.from_tfds:
        from lnrepro.data import tfds_sets

        reader = tfds_sets.reader(data.reader_of(name, args.data_dir))
    options = {"own_name": args.own_name, "reader": reader}
    with progress_bar() as progress:
        data.prepare(name, given, args.data_dir, progress=progress, **options)
    opened = data.open_set(args.own_name or name, args.data_dir)
    # The fingerprint is what runs record of their data.
    print(f"{opened.fingerprint} is prepared in {opened.folder}")
    for split, count in opened.splits.items():
        print(f"  {split}: {count:,}")
    for fact, value in {**opened.files, **opened.facts}.items():
        print(f"  {fact.replace('_', ' ')}: {in_short(value)}")
    for config in data.reader_of(name, args.data_dir).configs:
        try:
            print(f"  {training_command(opened.name, config, args.data_dir)}")
        except UserError as e:
            print(f"  not for {config}: {e}")


def in_short(value: Any) -> str:
    """Return a fact as text; of a long one, its length."""
    text = json.dumps(value)
    if len(text) <= LONGEST or not isinstance(value, list | dict):
        return text
    return f"{len(value):,} entries"


def training_command(name: str, config: str, data_dir: str | None) -> str:
    """Return the command that trains on a set.

    Args:
      name: the set.
      config: the config file.
      data_dir: --data_dir.
    """
    from lnrepro.engine import config_file

    is_paper = config_file.read(f"{ROOT / config}:paper").data.name == name
    flags = [] if is_paper else [f"--config.data.name={name}"]
    if is_paper:
        config += ":paper"
    if data_dir:
        flags.append(shlex.quote(f"--config.data.dir={data_dir}"))
    resolved = config_file.read(str(ROOT / config), shlex.split(" ".join(flags)))
    sizes = importlib.import_module(resolved.experiment).sizes(resolved)
    for field, size in sizes.items():
        stated = operator.attrgetter(field)(resolved)
        # The default config has sizes of small sets, such as that of a vocabulary.
        if size.problem(stated) or (not is_paper and stated != size.value):
            flags.append(f"--config.{field}=None")
    if not is_paper:
        # The default directory belongs to the config's own data.
        experiment = resolved.experiment.rpartition(".")[2]
        flags.append(f"--workdir=runs/{experiment}/{name}")
    return " ".join(["python -m lnrepro.main", f"--config={config}", *flags])


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yield a function (what, done, total) that shows one bar on stderr."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    # stdout has the result alone.
    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", visible=False)

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, visible=True)
            bar.update(task, total=total or None)

        yield progress


if __name__ == "__main__":
    run_script(main, "preparing data")
