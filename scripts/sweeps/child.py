"""A run of a sweep as a child process that ends when its parent ends.

The process runs this file, which becomes the command of the run:

    python child.py PARENT DEATH COMMAND ...

PARENT is the process id of the parent, and DEATH the signal when it dies. The workers
of all launchers start it, so it uses the standard library only.
"""

import ctypes
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LOG = "output.log"
PR_SET_PDEATHSIG = 1


class Task(NamedTuple):
    """A run that is to be started, by this process or a worker on another machine.

    Attributes:
      workdir: the run directory, which is made.
      command: what follows `python`.
      env: variables beside those of the process that starts it.
      cwd: the directory to start it in.
    """

    workdir: pathlib.Path
    command: Sequence[str]
    env: Mapping[str, str]
    cwd: str

    def start(self, death: int) -> subprocess.Popen:
        """Start the run, with its output at the end of output.log.

        Args:
          death: the signal that the run gets when this process dies.
        """
        self.workdir.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, __file__, str(os.getpid()), str(int(death))]
        with open(self.workdir / LOG, "ab") as log:
            # The child has a session of its own, so that Ctrl-C on the terminal reaches
            # the launcher alone, which then asks its children to stop.
            return subprocess.Popen(
                [*words, sys.executable, *self.command],
                cwd=self.cwd,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def wait(process: subprocess.Popen) -> int:
    """Return the exit code of a process.

    This waits in Python, where a signal or Ray's cancelling reaches it. Its handler may
    wait for the same process: two `Popen.wait` would block each other.
    """
    while process.poll() is None:
        time.sleep(0.2)
    return process.returncode


def threads(count: int) -> dict[str, str]:
    """Return the variable that limits the threads of XLA's CPU client.

    It makes one for each core of the machine otherwise.
    """
    return {"PJRT_NPROC": os.environ.get("PJRT_NPROC", str(count))}


def main(parent: str, death: str, *command: str) -> None:
    """Prepare this process and replace it by the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(death), 0, 0, 0)
        # The parent may have died before the call.
        if os.getppid() != int(parent):
            sys.exit(128 + int(death))
    # Schedulers announce preemption to every process by a user signal, and the launcher
    # acts on it. Ray starts its workers with SIGINT blocked, and a shell starts
    # background jobs with SIGINT ignored.
    for user_signal in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(user_signal, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    now, shown = time.strftime("%F %T"), shlex.join(command)
    print(f"== {now} on {socket.gethostname()}: {shown}", flush=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
