"""Runs as Ray tasks, on this machine or on the cluster of RAY_ADDRESS or `ray start`.

A task whose node dies is retried on another node, where the run resumes from its newest
checkpoint. All nodes must therefore see the run's directory and the checkout.
"""

import logging
import os
import pathlib
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from lnrepro.errors import UserError
from scripts.sweeps import child
from scripts.sweeps.planned_runs import PlannedRun

# Number of node failures that a run survives.
RETRIES = 10


class OnRay:
    """One task for each run; Ray decides where and when it runs.

    Attributes:
      slots: the number of runs at a time.
    """

    def __init__(self, processes: int | None, cpus: int, gpus: float, tpus: int):
        """Join the cluster.

        Args:
          processes: the largest number of runs at a time, or None.
          cpus: CPUs of each run.
          gpus: GPUs of each run; a fraction shares one.
          tpus: TPU chips of each run.

        Raises:
          UserError: there is no such cluster, or it is too small.
        """
        self.slots = processes or sys.maxsize
        self._ray, self._tasks, self._killed = _connect(), {}, False
        # Ray would wait for ever for resources that no node has.
        there = self._ray.cluster_resources()
        for name, amount in (("CPU", cpus), ("GPU", gpus), ("TPU", tpus)):
            if amount > there.get(name, 0):
                raise UserError(
                    f"--{name.lower()}s {amount:g}: this Ray cluster has "
                    f"{there.get(name, 0):g} {name} in all; ask for less, or add nodes"
                )
        options = {
            "num_cpus": cpus,
            "num_gpus": gpus,
            "resources": {"TPU": tpus} if tpus else None,
            "max_retries": RETRIES,
            "scheduling_strategy": "SPREAD",
        }
        self._train = self._ray.remote(**options)(_train)
        # XLA's CPU client makes a thread for each core of the machine unless it is told
        # a number.
        self._env = {"PJRT_NPROC": os.environ.get("PJRT_NPROC", str(cpus))}
        for name, value in os.environ.items():
            if name.startswith("LNREPRO_"):
                self._env[name] = value

    def start(self, run: PlannedRun) -> None:
        """Hand a run to Ray."""
        train = self._train.options(name=run.id)
        folder = run.workdir.absolute()
        task = train.remote(folder, run.command, os.getcwd(), self._env)
        self._tasks[task] = run

    def poll(self) -> dict[PlannedRun, tuple[int, str]]:
        """Return {run: (exit code, note)} of the runs that ended since the last call.

        The note is what to report besides the run's last line.
        """
        tasks = list(self._tasks)
        if not tasks:
            return {}
        done, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)
        return {self._tasks.pop(task): self._outcome(task) for task in done}

    def stop(self) -> None:
        """Ask all runs to save and stop; `poll` tells when they have."""
        for task in self._tasks:
            self._ray.cancel(task, force=False)

    def kill(self) -> None:
        """End all runs at once; their newest checkpoints stay."""
        self._killed = True
        for task in self._tasks:
            self._ray.cancel(task, force=True)

    def close(self) -> None:
        """Leave the cluster; if it was started here, it ends."""
        self._ray.shutdown()

    def _outcome(self, task):
        try:
            return self._ray.get(task), ""
        except self._ray.exceptions.TaskCancelledError:
            return -signal.SIGTERM, ""
        except self._ray.exceptions.RayError as e:
            if self._killed:
                return -signal.SIGKILL, ""
            lines = [line for line in str(e).splitlines() if line.strip()]
            return 1, f"Ray gave up: {lines[0] if lines else type(e).__name__}"


def _train(
    workdir: pathlib.Path, command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> int:
    """Train on a node of Ray, and return the exit code."""
    # The command names files of the checkout.
    os.chdir(cwd)
    process = child.start(workdir, command, signal.SIGKILL, env=env)
    # This waits in Python, where Ray's cancelling reaches it.
    try:
        while process.poll() is None:
            time.sleep(0.2)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
    return process.returncode


def _connect():
    """Join the cluster that is there, or start one on this machine; return `ray`.

    Raises:
      UserError: the cluster of RAY_ADDRESS cannot be joined.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    try:
        # Ray's logs are kept off the terminal.
        ray.init(logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as e:
        address = os.environ.get("RAY_ADDRESS", "")
        reason = " ".join(str(e).split())
        raise UserError(
            f"RAY_ADDRESS={address}: cannot join this Ray cluster: {reason}"
        ) from None
    return ray
