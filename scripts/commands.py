"""Scripts that consist of several commands."""

import importlib
from collections.abc import Sequence

from lnrepro.engine.command_line import Parser


def dispatch(
    doc: str, package: str, names: Sequence[str], arguments: Sequence[str]
) -> int:
    """Run the command that the first argument names.

    Args:
      doc: the text of --help.
      package: the package that has a module for each command. The module's
        `add_arguments(parser)` adds its flags, and its `main(args)` runs it;
        `args.arguments` is the command line.
      names: the names of the commands.
      arguments: the command line.

    Returns:
      The exit code.
    """
    parser = Parser(description=doc)
    commands = parser.add_subparsers(dest="command", required=True)
    # All commands are known to the parser, for --help and for mistakes.
    wanted = next((a for a in arguments if a in names), None)
    for name in names:
        command = commands.add_parser(name)
        # Importing the others would only take time.
        if name == wanted:
            module = importlib.import_module(f"{package}.{name}")
            module.add_arguments(command)
            command.set_defaults(main=module.main, arguments=list(arguments))
    args = parser.parse_args(arguments)
    return args.main(args)
