"""A script whose first argument names one of several commands, each a module of its own."""

import argparse
import importlib


def dispatch(
    doc: str, package: str, names: tuple[str, ...], arguments: list[str]
) -> int:
    """Run `package.NAME.main(args)` for the NAME among the arguments; its `add_arguments(parser)` says which flags it takes."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    wanted = next((a for a in arguments if a in names), None)
    for name in names:
        sub = commands.add_parser(name)
        if name == wanted:  # the others' imports would only take time
            module = importlib.import_module(f"{package}.{name}")
            module.add_arguments(sub)
            sub.set_defaults(main=module.main)
    args = parser.parse_args(arguments)
    return args.main(args)
