"""Runs as Ray tasks, on this machine or on the cluster of RAY_ADDRESS or `ray start`.

A task whose node dies is retried on another node, where the run resumes from its newest
checkpoint. All nodes must therefore see the run's directory and the checkout.
"""

import dataclasses
import logging
import os
import pathlib
import signal
import sys
from typing import Any

from scripts.sweeps import child
from scripts.sweeps.planned_runs import PlannedRun

# Number of node failures that a run survives.
RETRIES = 10


class OnRay:
    """Starts tasks; Ray decides where and when they run.

    Attributes:
      slots: the number of runs at a time.
    """

    def __init__(self, processes: int | None, cpus: int, gpus: float):
        """Join the cluster that is there, or start one on this machine.

        Args:
          processes: the largest number of runs at a time, or None.
          cpus: CPUs of each run.
          gpus: GPUs of each run; a fraction shares one.
        """
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        # Ray's logs are kept off the terminal.
        ray.init(logging_level=logging.ERROR, log_to_driver=False)
        self.slots = processes or sys.maxsize
        self._ray = ray
        self._train = ray.remote(
            num_cpus=cpus,
            num_gpus=gpus,
            max_retries=RETRIES,
            scheduling_strategy="SPREAD",
        )(_train)
        settings = {k: v for k, v in os.environ.items() if k.startswith("LNREPRO_")}
        self._environment = settings | child.threads(cpus)

    def start(self, run: PlannedRun) -> "RayTask":
        """Hand a run to Ray."""
        task = run.task(self._environment)
        train = self._train.options(name=run.workdir.name)
        return RayTask(self._ray, train.remote(task), task.workdir)

    def close(self) -> None:
        """Leave the cluster; if it was started here, it ends."""
        self._ray.shutdown()


@dataclasses.dataclass
class RayTask:
    """A run on Ray, with the methods of `subprocess.Popen` that a sweep calls.

    Attributes:
      ray: the module.
      task: the task.
      workdir: the run directory.
      is_stopped: whether it was asked to stop.
    """

    ray: Any
    task: Any
    workdir: pathlib.Path
    is_stopped: bool = False

    def poll(self) -> int | None:
        """Return the exit code, or None while the run goes on."""
        done, _ = self.ray.wait([self.task], timeout=0)
        if not done:
            return None
        try:
            return self.ray.get(self.task)
        except self.ray.exceptions.RayError as e:
            if self.is_stopped:
                return -signal.SIGTERM
            self.workdir.mkdir(parents=True, exist_ok=True)
            with open(self.workdir / child.LOG, "a", encoding="utf-8") as log:
                print(f"Ray gave up: {' '.join(str(e).split())[:300]}", file=log)
            return 1

    def terminate(self) -> None:
        """Ask the run to save and stop."""
        self.ray.cancel(self.task)
        self.is_stopped = True


def _train(task: child.Task) -> int:
    """Train on a node of Ray, and return the exit code."""
    process = task.start(signal.SIGKILL)
    try:
        return child.wait(process)
    # Ray cancels a task in this way.
    except KeyboardInterrupt:
        process.terminate()
        return process.wait()
