"""Runs as Ray tasks: on this machine, or on the cluster that RAY_ADDRESS or `ray start` names.

A task whose node dies is retried on another one, where the run goes on from its newest checkpoint; so all nodes must see
the run's directory, and the checkout too unless it is uploaded.
"""

import contextlib
import logging
import os
import pathlib
import signal
import socket
import sys
from collections.abc import Iterable

from lnrepro.engine.errors import UserError
from scripts.sweeps.local import cores
from scripts.sweeps.runs import Run

# Left out of an upload: what is large, or belongs to this machine.
EXCLUDES = [".git", ".venv", "runs", "**/__pycache__"]
ANSWER_S = 10
ROOT = pathlib.Path(__file__).resolve().parents[2]


class OnRay:
    """One task for each run, with its CPUs, GPUs and TPU chips; Ray decides where and when."""

    def __init__(
        self,
        folder: pathlib.Path,
        cpus: float,
        gpus: float,
        tpus: int,
        processes: int | None,
        retries: int,
        upload: bool,
    ):
        self.slots = processes or sys.maxsize
        self._ray, self._tasks = _connect(upload), {}
        _feasible(
            self._ray.cluster_resources(), {"CPU": cpus, "GPU": gpus, "TPU": tpus}
        )
        self._train = self._ray.remote(_task(cpus))
        self._options = {
            "num_cpus": cpus,
            "num_gpus": gpus,
            "max_retries": retries,
            "scheduling_strategy": "SPREAD",
        }
        if tpus:
            self._options["resources"] = {"TPU": tpus}
        self._cwd = None if upload else os.getcwd()
        # Ray prints whole reports of a dead node to this process's output.
        folder.mkdir(parents=True, exist_ok=True)
        self._reports = contextlib.ExitStack()
        log = self._reports.enter_context(
            open(folder / "ray.log", "a", encoding="utf-8")
        )
        self._reports.enter_context(contextlib.redirect_stdout(log))

    def submit(self, runs: Iterable[Run]) -> None:
        """Hand these runs to Ray."""
        env = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("LNREPRO_")
        }
        for run in runs:
            # {...} are filled in where the task runs.
            start = run.start("{python}", 0, signal.SIGKILL)
            if (
                self._cwd is None
            ):  # the upload lies elsewhere there, and the task begins in it
                start[1] = str(pathlib.Path(start[1]).relative_to(ROOT))
            task = self._train.options(name=run.id, **self._options).remote(
                start, self._cwd, env
            )
            self._tasks[task] = run

    def poll(self) -> dict[Run, tuple[int, str]]:
        """Runs that ended since the last call: exit code, and what is to be said about it beyond its last line."""
        done, _ = (
            self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
            if self._tasks
            else ([], [])
        )
        return {self._tasks.pop(task): self._outcome(task) for task in done}

    def stop(self) -> None:
        """Ask all to save and stop; `poll` tells when they have."""
        for task in self._tasks:
            self._ray.cancel(task, force=False)

    def kill(self) -> None:
        """End all at once; their newest checkpoints stay."""
        for task in self._tasks:
            self._ray.cancel(task, force=True)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()
        self._reports.close()

    def _outcome(self, task) -> tuple[int, str]:
        try:
            return self._ray.get(task), ""
        except self._ray.exceptions.TaskCancelledError:
            return 128 + signal.SIGTERM, ""
        except self._ray.exceptions.RayError as e:
            return (
                1,
                f"Ray gave up: {next((line for line in str(e).splitlines() if line.strip()), type(e).__name__)}",
            )


def _task(cpus: float):
    """The function of a Ray task. Nested, so that Ray sends its code along instead of importing it by name."""
    threads = str(max(1, int(cpus)))

    def train(start: list[str], cwd: str | None, env: dict[str, str]) -> int:
        import os
        import subprocess
        import sys
        import time

        # XLA's CPU client makes as many threads as it sees cores unless it is told its share.
        env = os.environ | env | {"PJRT_NPROC": os.environ.get("PJRT_NPROC", threads)}
        start = [sys.executable if word == "{python}" else word for word in start]
        start[start.index("--parent") + 1] = str(os.getpid())
        process = subprocess.Popen(
            start, cwd=cwd, env=env, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            while (
                process.poll() is None
            ):  # in Python, where Ray's cancelling reaches it
                time.sleep(0.2)
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
        return process.returncode

    return train


def _connect(upload: bool):
    """Ray, joined to the cluster there is, or to one started on this machine; it keeps its logs to itself."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    options = {
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "runtime_env": {"working_dir": str(ROOT), "excludes": EXCLUDES}
        if upload
        else None,
    }
    if address := os.environ.get("RAY_ADDRESS"):
        _answers(address)
        try:
            ray.init(address=address, **options)
        except (ConnectionError, RuntimeError, ValueError) as e:
            raise UserError(
                f"RAY_ADDRESS={address}: cannot join this Ray cluster: {' '.join(str(e).split())}"
            ) from None
        return ray
    try:
        ray.init(address="auto", **options)
    except ConnectionError:  # no cluster here
        ray.init(
            address="local", include_dashboard=False, num_cpus=len(cores()), **options
        )
    return ray


def _answers(address: str) -> None:
    """Raises UserError if nothing listens at HOST:PORT, for which Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():  # "auto", "local", or a name that Ray resolves
        return
    try:
        socket.create_connection(
            (host.strip("[]"), int(port)), timeout=ANSWER_S
        ).close()
    except OSError as e:
        raise UserError(
            f"RAY_ADDRESS={address}: no Ray cluster answers there ({e})"
        ) from None


def _feasible(there: dict[str, float], wanted: dict[str, float]) -> None:
    """Raises UserError if the whole cluster has less than one run asks for."""
    for name, amount in wanted.items():
        if amount > there.get(name, 0):
            raise UserError(
                f"--{name.lower()}s {amount:g}: this Ray cluster has {there.get(name, 0):g} {name} in all; ask for less, "
                "or add nodes"
            )
