"""What reliability is claimed for, tried on this machine: python scripts/harden.py kills | faults | fuzz | numerics | watch [flags].

kills     SIGKILL and SIGTERM at random moments of every experiment, resume, compare with the undisturbed run bit for bit
faults    damaged checkpoints, full and read-only disks, a directory that vanishes, two processes on one
fuzz      every parser under thousands of mutated files
numerics  loss and gradient of every experiment on inputs that no data set should hold
watch     memory, open files and threads of a long run
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lnrepro.engine.errors import ended
from scripts.commands import dispatch

COMMANDS = ("kills", "faults", "fuzz", "numerics", "watch")


def main(argv: list[str]) -> int:
    """Run the command line. Raises UserError."""
    return dispatch(__doc__, "scripts.hardening", COMMANDS, argv)


if __name__ == "__main__":
    ended(main, "this trial")
