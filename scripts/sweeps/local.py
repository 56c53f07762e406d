"""Runs as processes of this machine: so many at once, its cores and GPUs divided among them."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterable

from scripts.sweeps.runs import Run

CORES_PER_RUN = 4


class Local:
    """Starts, watches and ends child processes; each of `slots` places has its own cores and GPUs."""

    def __init__(self, processes: int | None):
        here, gpus = cores(), _gpus()
        self.slots = processes or len(gpus) or max(1, len(here) // CORES_PER_RUN)
        self._cores, self._gpus = divide(here, self.slots), divide(gpus, self.slots)
        self._sharing = -(-self.slots // len(gpus)) if gpus else 1
        self._free = list(range(self.slots))
        self._children: dict[Run, tuple[int, subprocess.Popen]] = {}

    def submit(self, runs: Iterable[Run]) -> None:
        """Start these runs, at most as many as slots are free."""
        for run in runs:
            slot = self._free.pop(0)
            # A session of its own: Ctrl-C on the terminal reaches this process alone, which then asks them to stop.
            child = subprocess.Popen(
                run.start(
                    sys.executable, os.getpid(), signal.SIGINT, self._cores[slot]
                ),
                env=os.environ | self._environment(slot),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._children[run] = slot, child

    def poll(self) -> dict[Run, tuple[int, str]]:
        """Runs that ended since the last call: exit code, and what is to be said about it beyond its last line."""
        ended = {
            run: child.returncode
            for run, (_, child) in self._children.items()
            if child.poll() is not None
        }
        for run in ended:
            self._free.append(self._children.pop(run)[0])
        return {run: (code, "") for run, code in ended.items()}

    def stop(self) -> None:
        """Ask all to save and stop; `poll` tells when they have."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all at once; their newest checkpoints stay."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Nothing is left to do."""

    def _signal(self, signum: int) -> None:
        for _, child in self._children.values():
            child.send_signal(signum)

    def _environment(self, slot: int) -> dict[str, str]:
        if not self._gpus[slot]:
            return {}
        env = {"CUDA_VISIBLE_DEVICES": ",".join(self._gpus[slot])}
        if self._sharing > 1 and "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
            env["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 / self._sharing:.2f}"
        return env


def divide(things: list, slots: int) -> list[list]:
    """Contiguous shares for `slots`, as equal as can be; where there are fewer things than slots, they are shared."""
    n = len(things)
    if n < slots:
        return [things[i % n : i % n + 1] if n else [] for i in range(slots)]
    bounds = [i * n // slots for i in range(slots + 1)]
    return [things[a:b] for a, b in itertools.pairwise(bounds)]


def cores() -> list[int]:
    """The cores this process may use."""
    return (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else list(range(os.cpu_count() or 1))
    )


def _gpus() -> list[str]:
    """Names of the GPUs this process may use, without initialising any; none where jax is told to use the CPU."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in visible.split(",") if name]
    try:
        command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return []
