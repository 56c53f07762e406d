"""Runs as a SLURM job array, through submitit.

A run that is preempted or reaches its time limit is queued again and resumes where it
saved.
"""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from lnrepro.errors import UserError
from scripts.sweeps.planned_runs import PlannedRun

QUEUE_SECONDS = 10.0
# How often a run may reach its time limit and be queued again.
MAX_TIMEOUTS = 1000


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the launcher.

    Attributes:
      cluster: "slurm", or "local" to try submitit on this machine.
      processes: the largest number of runs at a time, or None.
      cpus: CPUs of each run.
      gpus: GPUs of each run.
      minutes: time limit of an allocation.
      partition: SLURM's partition, or None for its default.
      sbatch: further options of sbatch.
    """

    cluster: str
    processes: int | None
    cpus: int
    gpus: int
    minutes: int
    partition: str | None
    sbatch: Mapping[str, str]


class Job:
    """A task of the array, which SLURM calls."""

    def __init__(self, run: PlannedRun, cwd: str, threads: int):
        """Prepare the task.

        Args:
          run: the run.
          cwd: the directory to start it in.
          threads: the number of XLA's threads.
        """
        self.run, self.cwd, self.threads = run, cwd, threads
        self._child: subprocess.Popen | None = None
        self._preempted = False

    def __call__(self) -> int:
        """Train to the end and return the exit code."""
        self._note_preemption()
        # The trainer gets SIGINT when this process dies: SLURM sends SIGTERM, and a
        # second signal of the same kind would end the trainer before it has saved.
        start = self.run.start(sys.executable, os.getpid(), signal.SIGINT)
        threads = os.environ.get("PJRT_NPROC", str(self.threads))
        self._child = subprocess.Popen(
            start,
            cwd=self.cwd,
            env=os.environ | {"PJRT_NPROC": threads},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while self._child.poll() is None:
                time.sleep(0.2)
        except KeyboardInterrupt:
            self._stop()
        if self._preempted:
            # There is no result: SLURM has decided whether this run is queued again.
            sys.exit(128 + signal.SIGTERM)
        return self._child.returncode

    def checkpoint(self) -> Any:
        """Have the run save and stop, and ask to be called again.

        submitit calls this before the allocation ends.
        """
        import submitit

        self._stop()
        return submitit.helpers.DelayedSubmission(Job(self.run, self.cwd, self.threads))

    def _note_preemption(self):
        """Note SIGTERM.

        SLURM sends it to every process of a job that it preempts or cancels, also to
        the trainer.
        """
        before = signal.getsignal(signal.SIGTERM)

        def note(signum, frame):
            self._preempted = True
            if callable(before):
                before(signum, frame)

        signal.signal(signal.SIGTERM, note)

    def _stop(self):
        if self._child is not None and self._child.poll() is None:
            if not self._preempted:
                self._child.terminate()
            self._child.wait()


class OnSlurm:
    """One task of a job array for each run.

    Attributes:
      slots: the number of runs that may be submitted at a time.
    """

    def __init__(self, folder: pathlib.Path, options: Options):
        """Prepare the array.

        Args:
          folder: the folder of the run directories.
          options: the options.

        Raises:
          UserError: there is no SLURM on this machine.
        """
        import submitit

        self._submitit = submitit
        self._local = options.cluster == "local"
        self._cpus = options.cpus
        # SLURM itself limits the number of tasks at a time; submitit's local cluster
        # starts all that it is given.
        self.slots = (options.processes or 1) if self._local else sys.maxsize
        max_timeouts = {f"{options.cluster}_max_num_timeout": MAX_TIMEOUTS}
        try:
            self._executor = submitit.AutoExecutor(
                folder=folder / ".submitit" / "%j",
                cluster=options.cluster,
                **max_timeouts,
            )
        except RuntimeError:
            raise UserError(
                "--launcher slurm: there is no srun here; start it on a machine that "
                "submits to SLURM"
            ) from None
        parameters = {
            "timeout_min": options.minutes,
            "cpus_per_task": options.cpus,
            "gpus_per_node": options.gpus or None,
            "tasks_per_node": 1,
            "nodes": 1,
            "slurm_array_parallelism": options.processes,
            "slurm_partition": options.partition,
            "slurm_additional_parameters": dict(options.sbatch) or None,
            "slurm_signal_delay_s": min(90, options.minutes * 60 // 4),
            "slurm_use_srun": True,
        }
        given = {name: value for name, value in parameters.items() if value is not None}
        self._executor.update_parameters(**given)
        self._jobs: dict[PlannedRun, Any] = {}
        self._stopped = False
        # When the queue was last read, and the runs that were not in it.
        self._queue_read = 0.0
        self._missing: set[PlannedRun] = set()

    def submit(self, runs: Iterable[PlannedRun]) -> None:
        """Queue these runs as one array.

        Raises:
          UserError: sbatch refuses them.
        """
        runs = list(runs)
        name = f"sweep-{runs[0].workdir.parent.name}"
        self._executor.update_parameters(name=name[:64])
        jobs = {}
        try:
            with self._executor.batch():
                for run in runs:
                    job = Job(run, os.getcwd(), self._cpus)
                    jobs[run] = self._executor.submit(job)
        except self._submitit.core.utils.FailedJobError as e:
            raise UserError(f"sbatch refused: {' '.join(str(e).split())}") from None
        self._jobs |= jobs

    def poll(self) -> dict[PlannedRun, tuple[int, str]]:
        """Return {run: (exit code, note)} of the runs that ended since the last call.

        The note is what to report besides the run's last line.
        """
        gone = set() if self._local else self._gone()
        ended = {}
        for run, job in list(self._jobs.items()):
            if run in gone or self._done(job):
                ended[run] = self._outcome(job)
                del self._jobs[run]
        return ended

    def stop(self) -> None:
        """Cancel all runs.

        SLURM sends them SIGTERM, on which they save, and ends them after its KillWait.
        """
        self._stopped = True
        for job in self._jobs.values():
            job.cancel(check=False)

    def kill(self) -> None:
        """Cancel all runs; SLURM ends them by itself."""
        self.stop()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _done(self, job):
        # submitit would ask sacct, which many clusters do not have.
        return job.done() if self._local else job.paths.result_pickle.exists()

    def _gone(self) -> set[PlannedRun]:
        """Return the runs that have left SLURM's queue.

        They must be missing twice, because a result may appear on this disk a little
        later.
        """
        if time.monotonic() - self._queue_read < QUEUE_SECONDS:
            return set()
        self._queue_read = time.monotonic()
        command = ["squeue", "--me", "-h", "-r", "-o", "%i"]
        queue = subprocess.run(command, capture_output=True, text=True)
        if queue.returncode:
            # The controller is busy or down.
            return set()
        queued = queue.stdout.split()
        missing = {run for run, job in self._jobs.items() if job.job_id not in queued}
        gone = missing & self._missing
        self._missing = missing
        return gone

    def _outcome(self, job):
        if job.paths.result_pickle.exists():
            try:
                return job.result(), ""
            except self._submitit.core.utils.FailedJobError as e:
                lines = [line.strip() for line in str(e).splitlines() if line.strip()]
                reason = lines[-1] if lines else type(e).__name__
                return 1, f"SLURM job {job.job_id}: {reason}"
        if self._stopped:
            return 128 + signal.SIGTERM, ""
        return 1, (
            f"SLURM job {job.job_id} ended without a message; {job.paths.stderr} may "
            "say why"
        )
