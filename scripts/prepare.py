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
import importlib
import json
import pathlib
import shlex
import sys

from lnrepro import data
from lnrepro.data.files import PLAIN_OR_PACKED
from lnrepro.data.set_folder import open_folder
from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, run_script

ROOT = pathlib.Path(__file__).parents[1]


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
    if args.list or not args.name:
        for name in [args.name] if args.name else sorted(data.TABLE):
            show(name, args.data_dir)
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


def show(name: str, data_dir: str | None) -> None:
    """Print what a set is and where its files go.

    Args:
      name: the set.
      data_dir: --data_dir.
    """
    reader = data.reader_of(name, data_dir)
    place = data.folder_of(name, data_dir)
    opened = open_folder(place)
    files = "none: it prepares itself at its first use"
    if not reader.embedded:
        folder = data.raw_folder(name, data_dir=data_dir)
        files = f"{', '.join(reader.files)} ({PLAIN_OR_PACKED}) in {folder} or --raw"
    print(
        f"{name}  {opened.fingerprint if opened else 'not prepared'}\n"
        f"  what      {reader.title}\n"
        f"  source    {reader.source}\n"
        f"  licence   {reader.licence}\n"
        f"  size      {reader.size}\n"
        f"  prepared  {place}\n"
        f"  files     {files}"
    )


def prepare(args: argparse.Namespace) -> None:
    """Prepare a set, and print what it holds.

    Raises:
      UserError: files are missing or wrong.
    """
    name, own_name, data_dir = args.name, args.own_name, args.data_dir
    given = args.raw or args.from_tfds
    # A prepared set is never overwritten.
    place = data.folder_of(name, data_dir)
    if given and not own_name and open_folder(place):
        raise UserError(
            f"{given} was not read: {name} is prepared already; to prepare it again, "
            f"first remove {place}, or pass --as OWN_NAME"
        )
    reader = data.reader_of(name, data_dir)
    from_tfds = None
    if args.from_tfds:
        from lnrepro.data import tfds_sets

        from_tfds = tfds_sets.reader(reader)
    data.prepare(
        name,
        given,
        data_dir,
        own_name=own_name,
        reader=from_tfds,
        progress=show_progress,
    )
    opened = data.open_set(own_name or name, data_dir)
    # The fingerprint is what runs record of their data.
    print(f"{opened.fingerprint} is prepared in {opened.folder}")
    # Of a long fact, such as a vocabulary, the beginning is enough.
    for fact, value in {**opened.splits, **opened.files, **opened.facts}.items():
        print(f"  {fact.replace('_', ' ')}: {json.dumps(value):.100}")
    for config in reader.configs:
        try:
            print(f"  {training_command(opened.name, config, data_dir)}")
        except UserError as e:
            print(f"  not for {config}: {e}")


def training_command(name: str, config: str, data_dir: str | None) -> str:
    """Return the command that trains on a set.

    Args:
      name: the set.
      config: the config file.
      data_dir: --data_dir.
    """
    from lnrepro.engine import config_file

    file = str(ROOT / config)
    module = config_file.load_module(file)
    # The data dir is $LNREPRO_DATA where the flag is not given.
    flags = [f"--config.data.dir={data_dir}"] if data_dir else []
    is_papers = "paper" in getattr(module, "VARIANTS", ())
    if is_papers and module.get_config("paper").data.name == name:
        config += ":paper"
    else:
        flags = [f"--config.data.name={name}", *flags]
        resolved = config_file.read(file, flags)
        # The sizes and the directory of the config are those of its own data.
        sizes = importlib.import_module(resolved.experiment).sizes(resolved)
        flags += [f"--config.{field}=None" for field in sizes]
        experiment = resolved.experiment.rpartition(".")[2]
        flags.append(f"--workdir=runs/{experiment}/{name}")
    return f"python -m lnrepro.main {shlex.join([f'--config={config}', *flags])}"


def show_progress(what: str, done: int, total: int) -> None:
    """Show what is being done in one line of the terminal, if stderr is one."""
    # stdout has the result alone.
    if sys.stderr.isatty():
        print(f"{what}: {done} of {total or '?'}", end="  \r", file=sys.stderr)


if __name__ == "__main__":
    run_script(main, "preparing data")
