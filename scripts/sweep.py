"""Train the runs of a figure or of another sweep of a config.

    python scripts/sweep.py CONFIG[:VARIANT] [flags] [-- --config.FIELD=VALUE ...]

    python scripts/sweep.py configs/mnist.py
    python scripts/sweep.py configs/mnist.py --launcher print
    python scripts/sweep.py configs/mnist.py --only norm=layer -- --config.epochs=5
    python scripts/sweep.py configs/mnist.py:paper --launcher slurm --cpus 8 --gpus 1
    RAY_ADDRESS=auto python scripts/sweep.py configs/draw.py --launcher ray

Every run is `python -m lnrepro.main ...` in a directory below --root, named after its
overrides. The launcher "print" only prints these commands, one a line.

The same command again leaves runs alone that are finished or have diverged, and resumes
the others. Ctrl-C makes all runs save and stop. Exit codes: 0 all runs are finished or
have diverged; 1 some failed and are named at the end with their last line; 2 a mistake,
nothing was started; 128 + n stopped by signal n.
"""

import argparse
import collections
import contextlib
import pathlib
import shlex
import signal
import sys
import time
from collections.abc import Iterator

from lnrepro.engine.command_line import Parser
from lnrepro.errors import ended

LAUNCHERS = ("local", "ray", "slurm", "print")
# Time between two looks at the runs.
POLL_SECONDS = 0.5


def main(argv: list[str]) -> int:
    """Run the command line.

    Returns:
      The exit code.

    Raises:
      UserError: something that the user can correct.
    """
    args, common = _arguments(argv)
    # Imported late: --help and wrong flags need none of it.
    from scripts.sweeps.planned_runs import plan

    runs = plan(args.config, args.name, args.root, common, args.only)
    todo = [run for run in runs if not run.ended]
    where = runs[0].workdir.parent
    n_done = len(runs) - len(todo)
    # Only the commands go to stdout, so that they can be piped into a shell or a file.
    if args.launcher == "print":
        if n_done:
            print(ended_runs(runs), file=sys.stderr)
        for run in todo:
            print(shlex.join(["python", *run.command]))
        return 0
    if not todo:
        return report(runs, {}, 0)
    from scripts.sweeps.watch import Watch

    watch = Watch(runs)
    launcher = _launcher(args, where)
    try:
        watch.say(f"{len(runs)} runs in {where}, {n_done} of them ended already")
        outcomes, stopped = drive(launcher, todo, watch)
    finally:
        watch.close()
        launcher.close()
    return report(runs, outcomes, stopped)


def drive(launcher, todo: list, watch, minutes: float = 0) -> tuple[dict, int]:
    """Start runs whenever the launcher has a free slot, until all have ended.

    SIGINT, SIGTERM and the end of the time ask the runs to save and stop. A second
    signal ends them.

    Args:
      launcher: a launcher of scripts/sweeps.
      todo: the runs.
      watch: the Watch that shows them.
      minutes: the time after which the runs stop; 0: none.

    Returns:
      {run: (exit code, note)}, and the signal that stopped the sweep, or 0.
    """
    waiting, running = collections.deque(todo), set()
    outcomes, stopped = {}, 0
    with _noted_signals(minutes) as signals:
        while running or (waiting and not stopped):
            while signals:
                signum = signals.popleft()
                if stopped:
                    watch.say("ending all runs now")
                    launcher.kill()
                    continue
                stopped = signum
                watch.say(
                    f"stopping: {len(running)} runs save and end; a second interrupt "
                    "ends them at once"
                )
                launcher.stop()
            free = min(launcher.slots - len(running), len(waiting))
            # Free slots are filled together: SLURM and Ray take several runs at once.
            if free > 0 and not stopped:
                batch = [waiting.popleft() for _ in range(free)]
                running |= set(batch)
                launcher.submit(batch)
            # Runs that have ended since the last look, with their exit codes.
            ended = launcher.poll()
            running -= ended.keys()
            outcomes |= ended
            watch.show({run: code for run, (code, _) in outcomes.items()})
            if running:
                time.sleep(POLL_SECONDS)
    return outcomes, stopped


@contextlib.contextmanager
def _noted_signals(minutes: float) -> Iterator[collections.deque[int]]:
    """Yield the signals that arrive, instead of acting on them.

    An exception in the middle of a launcher's call would leave runs that nothing waits
    for.

    Args:
      minutes: the time after which SIGALRM arrives; 0: never.
    """
    noted = collections.deque()

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
    runs: list, outcomes: dict, stopped: int, where: pathlib.Path | None = None
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
    where = where or runs[0].workdir.parent
    print(f"{ended_runs(runs)}, in {where}")
    failures = 0
    for run, (code, note) in outcomes.items():
        # A run that was not far enough to save is ended by the signal itself.
        was_asked = stopped and (code > 128 or code == -signal.SIGTERM)
        if run.ended or was_asked:
            continue
        failures += 1
        reason = note or _reason(run, code)
        log = run.workdir / "output.log"
        print(f"failed: {run.id}: {reason}  (exit code {code}; {log})")
    if stopped == signal.SIGALRM:
        print("the time is up; the same command resumes the runs")
    elif stopped:
        print("stopped; the same command resumes the runs", file=sys.stderr)
        # As a shell reports a process that a signal ended.
        return 128 + stopped
    return 1 if failures else 0


def ended_runs(runs: list) -> str:
    """Return in words how many runs are finished, and which have diverged."""
    diverged = [run.id for run in runs if run.diverged]
    words = f"{sum(run.finished for run in runs)} of {len(runs)} runs are finished"
    if diverged:
        words += f", {len(diverged)} diverged ({'; '.join(diverged)})"
    return words


def _reason(run, code):
    from scripts.sweeps.planned_runs import last_line

    if code == 0:
        return (
            f"exit code 0, but {run.workdir / 'results.json'} is not here: --root "
            "must be seen by every node"
        )
    # subprocess reports a process that signal n ended as -n.
    if code < 0:
        return f"killed by {signal.Signals(-code).name}; {last_line(run)}"
    return last_line(run)


def _arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the flags, and return those behind "--" apart."""
    parser = Parser(prog="sweep.py", description=__doc__)
    add = parser.add_argument
    add("config", help="FILE[:VARIANT], e.g. configs/mnist.py:paper")
    add(
        "--name",
        default="",
        help="the sweep of the config, e.g. learning_rate; its figure by default",
    )
    add("--launcher", choices=LAUNCHERS, default="local")
    add(
        "--root",
        metavar="DIR",
        help="folder of the run directories; runs/EXPERIMENT/VARIANT by default",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="FIELD=VALUE[,VALUE]",
        help="only these runs",
    )
    add(
        "--processes",
        type=positive,
        metavar="N",
        help="largest number of runs at a time",
    )
    add = parser.add_argument_group("ray and slurm, for each run").add_argument
    add("--cpus", type=positive, default=1, metavar="N")
    add("--gpus", type=float, default=0, metavar="N", help="with ray also 0.5, say")
    add = parser.add_argument_group("ray (RAY_ADDRESS is the cluster)").add_argument
    add("--tpus", type=int, default=0, metavar="N", help="TPU chips for each run")
    add(
        "--retries",
        type=int,
        default=10,
        metavar="N",
        help="number of node failures that a run survives; -1: any",
    )
    add(
        "--upload",
        action="store_true",
        help="send this checkout to the nodes, which do not see it",
    )
    add = parser.add_argument_group("slurm").add_argument
    add(
        "--time",
        type=positive,
        default=60,
        metavar="MINUTES",
        help="time limit of an allocation",
    )
    add("--partition")
    add(
        "--sbatch",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="further options of sbatch",
    )
    add(
        "--cluster",
        choices=("slurm", "local"),
        default="slurm",
        help="local: submitit without SLURM",
    )
    # What stands behind "--" goes to every run as it is.
    split = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:split])
    # The nodes unpack the checkout elsewhere, so a relative path would mean another
    # folder.
    if args.upload and not pathlib.Path(args.root or "").is_absolute():
        parser.error(
            "--upload needs --root with the absolute path of a folder that every node "
            "sees"
        )
    if args.launcher == "slurm" and args.gpus != int(args.gpus):
        parser.error(f"--gpus {args.gpus:g}: SLURM gives whole GPUs")
    for pair in args.sbatch:
        if "=" not in pair:
            parser.error(f"--sbatch {pair}: give KEY=VALUE, as in --sbatch account=me")
    return args, argv[split + 1 :]


def positive(word: str) -> int:
    """Return a number of at least 1, as a type for argparse."""
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word}: at least 1 is needed")
    return int(word)


def _launcher(args: argparse.Namespace, where: pathlib.Path):
    """Make the launcher; only that one's libraries are imported."""
    if args.launcher == "local":
        from scripts.sweeps.local import Local

        return Local(args.processes)
    if args.launcher == "ray":
        from scripts.sweeps import on_ray

        options = on_ray.Options(
            cpus=args.cpus,
            gpus=args.gpus,
            tpus=args.tpus,
            processes=args.processes,
            retries=args.retries,
            upload=args.upload,
        )
        return on_ray.OnRay(where, options)
    from scripts.sweeps import on_slurm

    options = on_slurm.Options(
        cluster=args.cluster,
        processes=args.processes,
        cpus=args.cpus,
        gpus=int(args.gpus),
        minutes=args.time,
        partition=args.partition,
        sbatch=dict(pair.split("=", 1) for pair in args.sbatch),
    )
    return on_slurm.OnSlurm(where, options)


if __name__ == "__main__":
    ended(main, "this sweep")
