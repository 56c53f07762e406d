"""Runs as processes of this machine, which share its cores and GPUs."""

import os
import signal
import subprocess

from lnrepro.engine import machine
from scripts.sweeps import child
from scripts.sweeps.planned_runs import PlannedRun

CORES_PER_RUN = 4


class Local:
    """Starts child processes.

    Attributes:
      slots: the number of runs at a time; each slot has its share of cores and GPUs.
    """

    def __init__(self, processes: int | None):
        """Divide this machine.

        Args:
          processes: the number of slots; None: one for each GPU, or for every
            CORES_PER_RUN cores.
        """
        cores, gpus = machine.cores(), _gpus()
        self.slots = processes or len(gpus) or max(1, cores // CORES_PER_RUN)
        self._environment = child.threads(max(1, cores // self.slots))
        self._gpus = gpus
        # The newest process of each slot.
        self._processes: list[subprocess.Popen | None] = [None] * self.slots

    def start(self, run: PlannedRun) -> subprocess.Popen:
        """Start a run in a free slot."""
        free = [p is None or p.poll() is not None for p in self._processes]
        slot = free.index(True)
        process = run.task(self.environment(slot)).start(signal.SIGINT)
        self._processes[slot] = process
        return process

    def environment(self, slot: int) -> dict[str, str]:
        """Return the variables that give a slot its share of the machine."""
        if not self._gpus:
            return self._environment
        # Slot i has the GPUs i, i + slots, ...; with more slots than GPUs, one of them.
        gpus = self._gpus[slot % len(self._gpus) :: self.slots]
        return self._environment | {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, and initialise none."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # Of "" and of "-1", CUDA uses none.
        return [name for name in visible.split(",") if name not in ("", "-1")]
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split()
