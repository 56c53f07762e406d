"""Reliability tests of whole runs: python -m tests.hardening COMMAND [flags]

kills     SIGKILL and SIGTERM at random moments of every experiment; the resumed run
          must end with the same bits as the undisturbed one
faults    damaged checkpoints, full and read-only disks, a directory that vanishes, two
          processes in one directory
identity  files of another run, edited files, pipes in place of files, and processes
          that do not agree
numerics  loss and gradient of every experiment on inputs that no data set should hold
watch     memory, open files and threads of a long run
"""

from lnrepro.errors import ended
from scripts.commands import dispatch

COMMANDS = ("kills", "faults", "identity", "numerics", "watch")


def main(argv: list[str]) -> int:
    """Run the command line.

    Raises:
      UserError: something that the user can correct.
    """
    return dispatch(__doc__, "tests.hardening", COMMANDS, argv)


if __name__ == "__main__":
    ended(main, "this trial")
