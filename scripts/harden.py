"""What reliability is claimed for, tried on this machine: python scripts/harden.py kills | faults | fuzz | watch [flags].

kills   SIGKILL and SIGTERM at random moments of every experiment, resume, compare with the undisturbed run bit for bit
faults  damaged checkpoints, full and read-only disks, a directory that vanishes, two processes on one
fuzz    every parser under thousands of mutated files
watch   memory, open files and threads of a long run
"""

import argparse
import importlib
import pathlib
import sys

SUBJECTS = ("kills", "faults", "fuzz", "watch")


def main() -> int:
    """Dispatch to scripts/hardening/SUBJECT.py."""
    root = pathlib.Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(root)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="subject", required=True)
    wanted = next((a for a in sys.argv[1:] if a in SUBJECTS), None)
    for subject in SUBJECTS:
        sub = commands.add_parser(subject)
        if subject == wanted:  # the others' imports would only take time
            module = importlib.import_module(f"scripts.hardening.{subject}")
            module.add_arguments(sub)
            sub.set_defaults(main=module.main)
    args = parser.parse_args()
    return args.main(args)


if __name__ == "__main__":
    sys.exit(main())
