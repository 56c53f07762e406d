"""Train the runs of a figure or of another sweep of a config.

    python scripts/sweep.py CONFIG[:VARIANT] [flags] [-- --config.FIELD=VALUE ...]

    python scripts/sweep.py configs/mnist.py
    python scripts/sweep.py configs/mnist.py --launcher print
    python scripts/sweep.py configs/mnist.py --only norm=layer -- --config.epochs=5
    python scripts/sweep.py configs/mnist.py:small --name small --seeds 5-14
    SBATCH_PARTITION=gpu python scripts/sweep.py configs/mnist.py:paper --launcher slurm
    RAY_ADDRESS=auto python scripts/sweep.py configs/draw.py --launcher ray

Every run is `python -m lnrepro.main ...` in a directory below --root, named after its
overrides, with its output in output.log. `python -m lnrepro.runs` shows its state. The
launcher "print" prints the commands, one a line; "slurm" queues the runs and returns.

The same command again leaves runs alone that are finished or have diverged, and resumes
the others. Ctrl-C makes all runs save and stop. Exit codes: 0 all runs are finished,
have diverged or are queued; 1 some failed and are named at the end with their last
line; 2 a mistake, nothing was started; 128 + n stopped by signal n.
"""

import argparse
import collections
import contextlib
import pathlib
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from lnrepro.engine.command_line import Parser
from lnrepro.errors import run_script

LAUNCHERS = ("local", "ray", "slurm", "print")
# Time between two looks at the runs.
POLL_SECONDS = 0.5
# Exit codes of runs that were asked to stop: a shell reports signal n as 128 + n, and
# subprocess as -n.
STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM, -signal.SIGINT)


def main(argv: list[str]) -> int:
    """Run the command line.

    Returns:
      The exit code.

    Raises:
      UserError: something that the user can correct.
    """
    args, common = _arguments(argv)
    # Imported late: --help and wrong flags need none of it.
    from scripts.sweeps.planned_runs import check_data, plan

    runs = plan(args.config, args.name, args.root, common, args.only, args.seeds)
    todo = [run for run in runs if not run.ended]
    where = runs[0].workdir.parent
    if args.launcher == "print":
        # Only the commands go to stdout, so that they can be piped into a shell.
        print(f"{ended_runs(runs)}, in {where}", file=sys.stderr)
        for run in todo:
            print(shlex.join(["python", *run.command]))
        return 0
    print(f"{ended_runs(runs)}; python -m lnrepro.runs {where}  shows their state")
    if not todo:
        return 0
    check_data(todo)
    # Only the libraries of the launcher are imported.
    if args.launcher == "slurm":
        from scripts.sweeps import on_slurm

        resources = args.processes, args.cpus, int(args.gpus), args.time
        ids = on_slurm.submit(todo, *resources)
        print(f"{len(todo)} are queued as {', '.join(ids)}; scancel stops them")
        return 0
    if args.launcher == "ray":
        from scripts.sweeps.on_ray import OnRay

        launcher = OnRay(args.processes, args.cpus, args.gpus)
    else:
        from scripts.sweeps.local import Local

        launcher = Local(args.processes)
    return report(runs, *drive(launcher, todo))


def drive(launcher, todo: Sequence, minutes: float = 0) -> tuple[dict, int]:
    """Start runs whenever the launcher has a free slot, until all have ended.

    SIGINT, SIGTERM and the end of the time ask the runs to save and stop. A second
    signal changes nothing. The launcher is closed.

    Args:
      launcher: `Local` or `OnRay` of scripts/sweeps. It starts a run as a process, or
        as something with the same methods.
      todo: the runs.
      minutes: the time after which the runs stop; 0: none.

    Returns:
      {run: how it ended, in words}, and the signal that stopped the sweep, or 0.
    """
    waiting, running = collections.deque(todo), {}
    outcomes, stopped = {}, 0
    with contextlib.closing(launcher), _noted_signals(minutes) as noted:
        while running or (waiting and not stopped):
            if noted and not stopped:
                stopped = noted[0]
                print(f"stopping: {len(running)} runs save and end", flush=True)
                for process in running.values():
                    process.terminate()
            while waiting and not stopped and len(running) < launcher.slots:
                run = waiting.popleft()
                print(f"{run.workdir}: started", flush=True)
                running[run] = launcher.start(run)
            for run, process in list(running.items()):
                code = process.poll()
                if code is not None:
                    del running[run]
                    outcomes[run] = _how_ended(run, code, stopped)
                    print(f"{run.workdir}: {outcomes[run]}", flush=True)
            if running:
                time.sleep(POLL_SECONDS)
    return outcomes, stopped


@contextlib.contextmanager
def _noted_signals(minutes: float) -> Iterator[list[int]]:
    """Yield the signals that arrive, instead of acting on them.

    An exception in the middle of a launcher's call would leave runs that nothing waits
    for.

    Args:
      minutes: the time after which SIGALRM arrives; 0: never.
    """
    noted = []

    def note(signum, frame):
        noted.append(signum)

    # These replace Ray's handlers. A shell's background jobs ignore SIGINT by default.
    before = {
        signum: signal.signal(signum, note)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    }
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield noted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for signum, handler in before.items():
            # None stands for a handler that was not set from Python.
            signal.signal(signum, handler or signal.SIG_DFL)


def report(
    runs: Sequence, outcomes: Mapping, stopped: int, where: pathlib.Path | None = None
) -> int:
    """Print how many runs are finished, and which diverged and which failed.

    Args:
      runs: all runs.
      outcomes: what `drive` returned.
      stopped: the signal that stopped the sweep, or 0.
      where: the folder of the runs; by default that of the first.

    Returns:
      The exit code. Where the time was up, it is that of runs that did not stop.
    """
    print(f"{ended_runs(runs)}, in {where or runs[0].workdir.parent}")
    failed = [run for run, how in outcomes.items() if how.startswith("failed")]
    for run in failed:
        print(f"{run.workdir}: {outcomes[run]}")
    if stopped:
        print("stopped; the same command resumes the runs")
    if stopped and stopped != signal.SIGALRM:
        # As a shell reports a process that a signal ended.
        return 128 + stopped
    return 1 if failed else 0


def ended_runs(runs: Sequence) -> str:
    """Return in words how many runs are finished, and which have diverged."""
    ended = [run.ended for run in runs]
    words = f"{ended.count('finished')} of {len(runs)} runs are finished"
    diverged = [str(run.workdir) for run in runs if run.ended == "diverged"]
    return f"{words}, diverged: {'; '.join(diverged)}" if diverged else words


def _how_ended(run, code, stopped) -> str:
    """Return finished, diverged or stopped, or failed with the last line."""
    how = f"failed: {run.last_line}  (exit code {code}; see output.log)"
    if stopped and code in STOPPED:
        how = "stopped"
    return run.ended or how


def _arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the flags, and return those behind "--" apart."""
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("config", help="FILE[:VARIANT], e.g. configs/mnist.py:paper")
    add("--name", default="", help="e.g. learning_rate; the figure's by default")
    add("--launcher", choices=LAUNCHERS, default="local")
    add("--root", metavar="DIR", help="default: runs/CONFIG/VARIANT")
    values = "FIELD=VALUE[,VALUE]"
    add("--only", action="append", default=[], metavar=values, help="only these runs")
    add(
        "--seeds",
        type=seeds,
        default=(),
        metavar="A-B",
        help="5-14 or 5, in place of its seeds",
    )
    add("--processes", type=positive, metavar="N", help="most runs at a time")
    add = parser.add_argument_group("ray and slurm, for each run").add_argument
    add("--cpus", type=positive, default=1, metavar="N")
    add("--gpus", type=float, default=0, metavar="N", help="with ray also 0.5, say")
    add("--time", type=positive, default=60, metavar="MINUTES", help="slurm's limit")
    # What stands behind "--" goes to every run as it is.
    split = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:split])
    if args.launcher == "slurm" and args.gpus != int(args.gpus):
        parser.error(f"--gpus {args.gpus:g}: SLURM gives whole GPUs")
    return args, argv[split + 1 :]


def positive(word: str) -> int:
    """Return a number of at least 1, as a type for argparse."""
    number = int(word)
    if number < 1:
        raise ValueError
    return number


def seeds(words: str) -> range:
    """Return the seeds of such as "5-14" or "5", as a type for argparse."""
    first, _, last = words.partition("-")
    found = range(int(first), int(last or first) + 1)
    if not found:
        raise ValueError
    return found


if __name__ == "__main__":
    run_script(main, "this sweep")
