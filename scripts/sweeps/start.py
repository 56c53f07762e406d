"""Start one run of a sweep.

    python start.py --workdir DIR --parent PID [flags] -- COMMAND ...

The process becomes COMMAND. Before that it arranges to die with its parent, restricts
itself to its cores, sends its output to DIR/output.log, and waits until no other
process trains in DIR: there may be one after a node failed, or seemed to.

Every launcher's workers start this file, so that it uses the standard library only.
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
# Held from here to the end of COMMAND.
LAUNCH_LOCK = "launch.lock"
# The trainer's own lock, which runs that were started by hand hold as well.
RUN_LOCK = "lock"
POLL_SECONDS = 0.5
PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Prepare this process and replace it by the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--workdir", type=pathlib.Path, required=True)
    add("--parent", type=int, required=True, help="id of the parent process")
    add(
        "--death",
        type=int,
        default=signal.SIGINT,
        help="the signal that is sent when the parent dies",
    )
    add("--cores", default="", help="cores to run on, such as 0,1; all by default")
    add("command", nargs="+")
    args = parser.parse_args(argv)

    die_with(args.parent, args.death)
    # Schedulers announce preemption to every process by a user signal, and the launcher
    # acts on it. Ray starts its workers with SIGINT blocked, and a shell starts
    # background jobs with SIGINT ignored.
    for user_signal in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(user_signal, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    if args.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [int(core) for core in args.cores.split(",")])

    args.workdir.mkdir(parents=True, exist_ok=True)
    log = os.open(args.workdir / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    now, command = time.strftime("%F %T"), shlex.join(args.command)
    print(f"== {now} on {socket.gethostname()}: {command}", flush=True)
    wait_for(args.workdir)
    os.execvp(args.command[0], args.command)


def die_with(parent: int, signum: int) -> None:
    """Have Linux signal this process, also after exec, when its parent's thread ends.

    Args:
      parent: id of the parent process.
      signum: the signal.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)
    # The parent may have died before the call.
    if os.getppid() != parent:
        sys.exit(128 + signum)


def wait_for(workdir: pathlib.Path) -> None:
    """Take the launch lock, and wait until the run's own lock is free.

    The launch lock is held for the rest of this process's life.
    """
    reported = False
    for name in (LAUNCH_LOCK, RUN_LOCK):
        lock = os.open(workdir / name, os.O_RDWR | os.O_CREAT, 0o666)
        os.set_inheritable(lock, True)
        while not _locks(lock):
            if not reported:
                print(f"waiting: another process still trains in {workdir}", flush=True)
                reported = True
            time.sleep(POLL_SECONDS)
    # The trainer takes the run's own lock itself.
    os.close(lock)


def _locks(file):
    """Try to lock a file; return whether this process has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
