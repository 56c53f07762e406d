"""Begin one run of a sweep: python start.py --workdir DIR --parent PID [--death SIGNAL] [--cores 0,1] -- COMMAND ...

The process becomes COMMAND. Before that it ties its life to its parent's, takes its cores, sends its output to
DIR/output.log, and waits until no other process trains in DIR: after a node died, or seemed to, there may be one.
Standard library only, because every launcher's workers start it.
"""

import argparse
import ctypes
import fcntl
import os
import pathlib
import shlex
import signal
import socket
import sys
import time

LOG = "output.log"
LOCK = "launch.lock"  # held from here to the end of COMMAND
RUN_LOCK = "lock"  # the trainer's own, held by runs that were started by hand as well
POLL_S = 0.5
PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Prepare this process and replace it by the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workdir", type=pathlib.Path, required=True)
    parser.add_argument(
        "--parent",
        type=int,
        required=True,
        help="the process without which this one has no use",
    )
    parser.add_argument(
        "--death",
        type=int,
        default=signal.SIGINT,
        help="the signal sent when the parent dies",
    )
    parser.add_argument(
        "--cores", default="", help="cores to run on, such as 0,1; all if not given"
    )
    parser.add_argument("command", nargs="+")
    args = parser.parse_args(argv)

    die_with(args.parent, args.death)
    # Schedulers announce preemption to every process by a user signal; it is the launcher that acts on it. Ray starts
    # its workers with SIGINT blocked, a shell what runs behind it with SIGINT ignored.
    for s in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(s, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    if args.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [int(core) for core in args.cores.split(",")])

    args.workdir.mkdir(parents=True, exist_ok=True)
    log = os.open(args.workdir / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    print(
        f"== {time.strftime('%F %T')} on {socket.gethostname()}: {shlex.join(args.command)}",
        flush=True,
    )
    wait_for(args.workdir)
    os.execvp(args.command[0], args.command)


def die_with(parent: int, signum: int) -> None:
    """Have the kernel send `signum` to this process, also after exec, when the thread that started it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            sys.exit(128 + signum)


def wait_for(workdir: pathlib.Path) -> None:
    """Take the launch lock for the rest of this process's life, and wait until the run's own lock is free."""
    said = False
    for name, keep in ((LOCK, True), (RUN_LOCK, False)):
        fd = os.open(workdir / name, os.O_RDWR | os.O_CREAT, 0o666)
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if not said:
                    print(
                        f"waiting: another process still trains in {workdir}",
                        flush=True,
                    )
                said = True
                time.sleep(POLL_S)
        if keep:
            os.set_inheritable(fd, True)
        else:
            os.close(fd)


if __name__ == "__main__":
    main(sys.argv[1:])
