"""Runs as a SLURM job array through submitit; a preempted or timed-out run is queued again and goes on where it saved."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

from lnrepro.engine.errors import UserError
from scripts.sweeps.runs import Run

QUEUE_EVERY_S = 10.0
MAX_TIMEOUTS = 1000  # how often a run may reach its time limit and be queued again


class Job:
    """What SLURM calls; `checkpoint` is submitit's name for what to do before the allocation is taken away."""

    def __init__(self, run: Run, cwd: str, threads: int):
        self.run, self.cwd, self.threads = run, cwd, threads
        self._child: subprocess.Popen | None = None
        self._taken = False

    def __call__(self) -> int:
        """Train to the end; the exit code."""
        self._listen()
        # Not SIGTERM for its parent's death: a second one of the same kind would end it before it has saved.
        start = self.run.start(sys.executable, os.getpid(), signal.SIGINT)
        env = os.environ | {
            "PJRT_NPROC": os.environ.get("PJRT_NPROC", str(self.threads))
        }
        self._child = subprocess.Popen(
            start,
            cwd=self.cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while self._child.poll() is None:
                time.sleep(0.2)
        except KeyboardInterrupt:
            self._end()
        if (
            self._taken
        ):  # no result: whether this run is queued again has been decided by SLURM
            sys.exit(128 + signal.SIGTERM)
        return self._child.returncode

    def checkpoint(self):
        """Have the run save and stop, and ask to be called again."""
        import submitit

        self._end()
        return submitit.helpers.DelayedSubmission(Job(self.run, self.cwd, self.threads))

    def _listen(self) -> None:
        """Note SIGTERM, which SLURM sends to every process of a job that it preempts or cancels, the trainer included."""
        before = signal.getsignal(signal.SIGTERM)

        def note(signum, frame):
            self._taken = True
            if callable(before):
                before(signum, frame)

        signal.signal(signal.SIGTERM, note)

    def _end(self) -> None:
        if self._child is not None and self._child.poll() is None:
            if not self._taken:
                self._child.terminate()
            self._child.wait()


class OnSlurm:
    """One task of a job array for each run; `cluster` "local" lets submitit run them on this machine, to try it out."""

    def __init__(
        self,
        folder: pathlib.Path,
        cluster: str,
        processes: int | None,
        cpus: int,
        gpus: int,
        minutes: int,
        partition: str | None,
        sbatch: dict[str, str],
    ):
        import submitit

        self._submitit, self._local, self._cpus = submitit, cluster == "local", cpus
        # SLURM itself holds back the array's tasks beyond --processes; submitit's local cluster starts all it is given.
        self.slots = (processes or 1) if self._local else sys.maxsize
        try:
            self._executor = submitit.AutoExecutor(
                folder=folder / ".submitit" / "%j",
                cluster=cluster,
                **{f"{cluster}_max_num_timeout": MAX_TIMEOUTS},
            )
        except RuntimeError:
            raise UserError(
                "--launcher slurm: there is no srun here; start it on a machine that submits to SLURM"
            ) from None
        parameters = {
            "timeout_min": minutes,
            "cpus_per_task": cpus,
            "gpus_per_node": gpus or None,
            "tasks_per_node": 1,
            "nodes": 1,
            "slurm_array_parallelism": processes,
            "slurm_partition": partition,
            "slurm_additional_parameters": sbatch or None,
            "slurm_signal_delay_s": min(90, minutes * 60 // 4),
            "slurm_use_srun": True,
        }
        self._executor.update_parameters(
            **{k: v for k, v in parameters.items() if v is not None}
        )
        self._jobs: dict[Run, object] = {}
        self._stopped = False
        self._asked, self._missing = (
            0.0,
            set(),
        )  # when the queue was last read; jobs that were not in it

    def submit(self, runs: Iterable[Run]) -> None:
        """Queue these runs as one array."""
        runs = list(runs)
        self._executor.update_parameters(
            name=f"sweep-{runs[0].workdir.parent.name}"[:64]
        )
        try:
            with self._executor.batch():
                jobs = [
                    self._executor.submit(Job(run, os.getcwd(), self._cpus))
                    for run in runs
                ]
        except self._submitit.core.utils.FailedJobError as e:
            raise UserError(f"sbatch refused: {' '.join(str(e).split())}") from None
        self._jobs |= dict(zip(runs, jobs, strict=True))

    def poll(self) -> dict[Run, tuple[int, str]]:
        """Runs that ended since the last call: exit code, and what is to be said about it beyond its last line."""
        gone = set() if self._local else self._gone()
        ended = [
            run for run, job in self._jobs.items() if run in gone or self._done(job)
        ]
        return {run: self._outcome(self._jobs.pop(run)) for run in ended}

    def stop(self) -> None:
        """Cancel all: SLURM sends them SIGTERM, on which they save, and ends them after its KillWait."""
        self._stopped = True
        for job in self._jobs.values():
            job.cancel(check=False)

    def kill(self) -> None:
        """SLURM ends them by itself."""
        self.stop()

    def close(self) -> None:
        """Nothing is left to do."""

    def _done(self, job) -> bool:
        # submitit would ask sacct, which many clusters do not keep.
        return job.done() if self._local else job.paths.result_pickle.exists()

    def _gone(self) -> set[Run]:
        """Runs whose jobs have left SLURM's queue, seen twice, as a result may arrive a little later on this disk."""
        if time.monotonic() - self._asked < QUEUE_EVERY_S:
            return set()
        self._asked = time.monotonic()
        asked = subprocess.run(
            ["squeue", "--me", "-h", "-r", "-o", "%i"], capture_output=True, text=True
        )
        if asked.returncode:  # the controller is busy or down: nothing is known
            return set()
        missing = {
            run
            for run, job in self._jobs.items()
            if job.job_id not in asked.stdout.split()
        }
        gone, self._missing = missing & self._missing, missing
        return gone

    def _outcome(self, job) -> tuple[int, str]:
        if job.paths.result_pickle.exists():
            try:
                return job.result(), ""
            except self._submitit.core.utils.FailedJobError as e:
                lines = [line.strip() for line in str(e).splitlines() if line.strip()]
                return (
                    1,
                    f"SLURM job {job.job_id}: {lines[-1] if lines else type(e).__name__}",
                )
        if self._stopped:
            return 128 + signal.SIGTERM, ""
        return (
            1,
            f"SLURM job {job.job_id} was ended without a word; {job.paths.stderr} may say why",
        )
