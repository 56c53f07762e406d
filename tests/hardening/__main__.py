"""Reliability tests of whole runs: python -m tests.hardening COMMAND [flags]

numerics  loss and gradient of every experiment on inputs that no data set should hold
"""

from lnrepro.errors import ended
from scripts.commands import dispatch

COMMANDS = ("numerics",)


def main(argv: list[str]) -> int:
    """Run the command line.

    Raises:
      UserError: something that the user can correct.
    """
    return dispatch(__doc__, "tests.hardening", COMMANDS, argv)


if __name__ == "__main__":
    ended(main, "this trial")
