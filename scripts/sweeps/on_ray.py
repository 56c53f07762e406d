"""Runs as Ray tasks, on this machine or on the cluster of RAY_ADDRESS or `ray start`.

A task whose node dies is retried on another node, where the run resumes from its newest
checkpoint. All nodes must therefore see the run's directory, and also the checkout
unless it is uploaded.
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
import signal
import socket
import sys
from collections.abc import Iterable

from lnrepro.errors import UserError
from scripts.sweeps.local import cores
from scripts.sweeps.planned_runs import PlannedRun

# These are not uploaded: they are large, or belong to this machine.
EXCLUDES = [".git", ".venv", "runs", "**/__pycache__"]
ANSWER_SECONDS = 10
ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the launcher.

    Attributes:
      cpus: CPUs of each run.
      gpus: GPUs of each run; a fraction shares one.
      tpus: TPU chips of each run.
      processes: the largest number of runs at a time, or None.
      retries: the number of node failures that a run survives; -1: any.
      upload: whether this checkout is sent to the nodes.
    """

    cpus: float
    gpus: float
    tpus: int
    processes: int | None
    retries: int
    upload: bool


class OnRay:
    """One task for each run; Ray decides where and when it runs.

    Attributes:
      slots: the number of runs at a time.
    """

    def __init__(self, folder: pathlib.Path, options: Options):
        """Join the cluster.

        Args:
          folder: where Ray's own output goes, as ray.log.
          options: the options.

        Raises:
          UserError: there is no such cluster, or it is too small.
        """
        self.slots = options.processes or sys.maxsize
        self._ray, self._tasks = _connect(options.upload), {}
        wanted = {"CPU": options.cpus, "GPU": options.gpus, "TPU": options.tpus}
        _check_resources(self._ray.cluster_resources(), wanted)
        self._train = self._ray.remote(_task(options.cpus))
        self._options = {
            "num_cpus": options.cpus,
            "num_gpus": options.gpus,
            "max_retries": options.retries,
            "scheduling_strategy": "SPREAD",
        }
        if options.tpus:
            self._options["resources"] = {"TPU": options.tpus}
        self._upload = options.upload
        # Ray prints long reports about dead nodes to this process's output.
        folder.mkdir(parents=True, exist_ok=True)
        self._output = contextlib.ExitStack()
        log = open(folder / "ray.log", "a", encoding="utf-8")
        self._output.enter_context(log)
        self._output.enter_context(contextlib.redirect_stdout(log))

    def submit(self, runs: Iterable[PlannedRun]) -> None:
        """Hand these runs to Ray."""
        env = {k: v for k, v in os.environ.items() if k.startswith("LNREPRO_")}
        cwd = None if self._upload else os.getcwd()
        for run in runs:
            # The task replaces {python} and the parent 0.
            start = run.start("{python}", 0, signal.SIGKILL)
            if self._upload:
                # The upload is elsewhere on the node, and the task starts in it.
                start[1] = str(pathlib.Path(start[1]).relative_to(ROOT))
            train = self._train.options(name=run.id, **self._options)
            self._tasks[train.remote(start, cwd, env)] = run

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
        for task in self._tasks:
            self._ray.cancel(task, force=True)

    def close(self) -> None:
        """Leave the cluster; if it was started here, it ends."""
        self._ray.shutdown()
        self._output.close()

    def _outcome(self, task):
        try:
            return self._ray.get(task), ""
        except self._ray.exceptions.TaskCancelledError:
            return 128 + signal.SIGTERM, ""
        except self._ray.exceptions.RayError as e:
            lines = [line for line in str(e).splitlines() if line.strip()]
            return 1, f"Ray gave up: {lines[0] if lines else type(e).__name__}"


def _task(cpus):
    """Return the function of a Ray task.

    It is nested, so that Ray sends its code along instead of importing it by name.
    """
    threads = str(max(1, int(cpus)))

    def train(start: list[str], cwd: str | None, env: dict[str, str]) -> int:
        import os
        import subprocess
        import sys
        import time

        # XLA's CPU client makes a thread for each core of the machine unless it is told
        # a number.
        env = os.environ | env | {"PJRT_NPROC": os.environ.get("PJRT_NPROC", threads)}
        start = [sys.executable if word == "{python}" else word for word in start]
        start[start.index("--parent") + 1] = str(os.getpid())
        process = subprocess.Popen(
            start, cwd=cwd, env=env, stdin=subprocess.DEVNULL, start_new_session=True
        )
        # This waits in Python, where Ray's cancelling reaches it.
        try:
            while process.poll() is None:
                time.sleep(0.2)
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
        return process.returncode

    return train


def _connect(upload):
    """Join the cluster that is there, or start one on this machine; return `ray`.

    Ray's logs are kept off the terminal.

    Raises:
      UserError: the cluster of RAY_ADDRESS cannot be joined.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    options = {"logging_level": logging.ERROR, "log_to_driver": False}
    if upload:
        options["runtime_env"] = {"working_dir": str(ROOT), "excludes": EXCLUDES}
    address = os.environ.get("RAY_ADDRESS")
    if address:
        _check_address(address)
        try:
            ray.init(address=address, **options)
        except (ConnectionError, RuntimeError, ValueError) as e:
            raise UserError(
                f"RAY_ADDRESS={address}: cannot join this Ray cluster: "
                f"{' '.join(str(e).split())}"
            ) from None
        return ray
    try:
        ray.init(address="auto", **options)
    except ConnectionError:
        # There is no cluster on this machine.
        here = len(cores())
        ray.init(address="local", include_dashboard=False, num_cpus=here, **options)
    return ray


def _check_address(address):
    """Raise UserError if nothing listens at HOST:PORT; Ray itself waits for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    # Ray resolves "auto", "local" and names itself.
    if not port.isdigit():
        return
    place = host.strip("[]"), int(port)
    try:
        socket.create_connection(place, timeout=ANSWER_SECONDS).close()
    except OSError as e:
        raise UserError(
            f"RAY_ADDRESS={address}: no Ray cluster answers there ({e})"
        ) from None


def _check_resources(there, wanted):
    """Raise UserError if the whole cluster has less than one run needs."""
    for name, amount in wanted.items():
        available = there.get(name, 0)
        if amount > available:
            raise UserError(
                f"--{name.lower()}s {amount:g}: this Ray cluster has {available:g} "
                f"{name} in all; ask for less, or add nodes"
            )
