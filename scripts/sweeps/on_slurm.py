"""Runs as a SLURM job array, through submitit.

A run that is preempted or reaches its time limit is queued again and resumes where it
saved.
"""

import dataclasses
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

from lnrepro.errors import UserError
from scripts.sweeps import child
from scripts.sweeps.planned_runs import PlannedRun

# How often a run may reach its time limit and be queued again.
MAX_TIMEOUTS = 1000


@dataclasses.dataclass
class Job:
    """A job of the array, which SLURM calls.

    Attributes:
      task: what starts the run.
      process: the run, once it is started.
    """

    task: child.Task
    process: subprocess.Popen | None = None

    def __call__(self) -> None:
        """Train to the end.

        Raises:
          RuntimeError: the run failed, and so does the job.
        """
        self.process = self.task.start(signal.SIGINT)
        code = child.wait(self.process)
        if code:
            raise RuntimeError(f"exit code {code}; see {self.task.workdir / child.LOG}")

    def checkpoint(self) -> Any:
        """Have the run save and stop, and ask to be called again.

        submitit calls this before the allocation ends.
        """
        import submitit

        if self.process is not None:
            self.process.terminate()
            child.wait(self.process)
        return submitit.helpers.DelayedSubmission(Job(self.task))


def submit(
    runs: Sequence[PlannedRun],
    processes: int | None = None,
    cpus: int = 1,
    gpus: int = 0,
    minutes: int = 60,
    cluster: str = "slurm",
) -> list[str]:
    """Queue runs as one array, and return the ids of its jobs.

    Args:
      runs: the runs.
      processes: the largest number of runs at a time, or None.
      cpus: CPUs of each run.
      gpus: GPUs of each run.
      minutes: time limit of an allocation.
      cluster: "slurm", or "local" for submitit without SLURM.

    Raises:
      UserError: there is no SLURM on this machine, or sbatch refuses the runs.
    """
    import submitit

    folder = runs[0].workdir.parent
    parameters = {
        "name": f"sweep-{folder.name}"[:64],
        "timeout_min": minutes,
        "cpus_per_task": cpus,
        "slurm_signal_delay_s": min(90, minutes * 60 // 4),
    }
    if gpus:
        parameters["gpus_per_node"] = gpus
    if processes:
        parameters["slurm_array_parallelism"] = processes
    timeouts = {f"{cluster}_max_num_timeout": MAX_TIMEOUTS}
    jobs = []
    try:
        executor = submitit.AutoExecutor(
            folder=folder / ".submitit" / "%j", cluster=cluster, **timeouts
        )
        executor.update_parameters(**parameters)
        with executor.batch():
            for run in runs:
                jobs.append(executor.submit(Job(run.task(child.threads(cpus)))))
    # Also what sbatch refuses.
    except RuntimeError as e:
        reason = " ".join(str(e).split())
        raise UserError(f"--launcher slurm: submitit says: {reason}") from None
    return [job.job_id for job in jobs]
