"""Runs as processes of this machine, which share its cores and GPUs."""

import itertools
import os
import signal
import subprocess

from scripts.sweeps import child
from scripts.sweeps.planned_runs import PlannedRun

CORES_PER_RUN = 4


class Local:
    """Starts and ends child processes.

    Attributes:
      slots: the number of runs at a time; each slot has its own cores and GPUs.
    """

    def __init__(self, processes: int | None):
        """Divide this machine.

        Args:
          processes: the number of slots; None: one for each GPU, or for every
            CORES_PER_RUN cores.
        """
        here, gpus = cores(), _gpus()
        self.slots = processes or len(gpus) or max(1, len(here) // CORES_PER_RUN)
        self._cores = divide(here, self.slots)
        self._gpus = divide(gpus, self.slots)
        self._runs_per_gpu = -(-self.slots // len(gpus)) if gpus else 1
        self._free = list(range(self.slots))
        self._children: dict[PlannedRun, tuple[int, subprocess.Popen]] = {}

    def cores_of(self, slot: int) -> list[int]:
        """Return the cores of a slot."""
        return self._cores[slot]

    def start(self, run: PlannedRun) -> None:
        """Start a run in a free slot."""
        slot = self._free.pop(0)
        self._children[run] = (
            slot,
            child.start(
                run.workdir,
                run.command,
                signal.SIGINT,
                self._cores[slot],
                self._environment(slot),
            ),
        )

    def poll(self) -> dict[PlannedRun, tuple[int, str]]:
        """Return {run: (exit code, "")} of the runs that ended since the last call."""
        ended = {}
        for run, (slot, process) in list(self._children.items()):
            if process.poll() is not None:
                ended[run] = process.returncode, ""
                self._free.append(slot)
                del self._children[run]
        return ended

    def stop(self) -> None:
        """Ask all runs to save and stop; `poll` tells when they have."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all runs at once; their newest checkpoints stay."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _signal(self, signum):
        for _, process in self._children.values():
            process.send_signal(signum)

    def _environment(self, slot):
        if not self._gpus[slot]:
            return {}
        env = {"CUDA_VISIBLE_DEVICES": ",".join(self._gpus[slot])}
        fraction = "XLA_PYTHON_CLIENT_MEM_FRACTION"
        if self._runs_per_gpu > 1 and fraction not in os.environ:
            env[fraction] = f"{0.9 / self._runs_per_gpu:.2f}"
        return env


def divide(things: list, slots: int) -> list[list]:
    """Divide a list into contiguous shares of nearly equal length.

    Args:
      things: the list.
      slots: the number of shares. Where there are fewer things than slots, several
        slots get the same thing.
    """
    n = len(things)
    if n == 0:
        return [[] for _ in range(slots)]
    if n < slots:
        return [[things[i % n]] for i in range(slots)]
    bounds = [i * n // slots for i in range(slots + 1)]
    return [things[a:b] for a, b in itertools.pairwise(bounds)]


def cores() -> list[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _gpus():
    """Return the names of the GPUs that this process may use, and initialise none."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # CUDA ignores the first invalid name and all names after it.
        names = [name.strip() for name in visible.split(",")]
        return list(itertools.takewhile(lambda name: name not in ("", "-1"), names))
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split()
