"""Train the runs of a figure: python scripts/sweep.py CONFIG[:VARIANT] [--name NAME] [--launcher local|ray|slurm|print]

    python scripts/sweep.py configs/mnist.py                                     on this machine
    python scripts/sweep.py configs/mnist.py:paper --launcher slurm --cpus 8 --gpus 1 --time 240 --partition gpu
    RAY_ADDRESS=auto python scripts/sweep.py configs/draw.py:paper --launcher ray --tpus 4 --root /shared/draw
    python scripts/sweep.py configs/mnist.py --launcher print                    one command a line, for anything else
    python scripts/sweep.py configs/mnist.py --name learning_rate --only norm=layer,none -- --config.epochs=5

Every run is `python -m lnrepro.main ...` in a directory below --root, named after its overrides. The same command again
leaves finished runs alone and resumes the others. Ctrl-C has all of them save and stop. Exit codes: 0 all are finished,
1 some failed (named at the end with their last line), 2 a mistake, nothing started, 128 + n stopped by signal n.
"""

import argparse
import collections
import pathlib
import shlex
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lnrepro.engine.errors import UserError, ended

LAUNCHERS = ("local", "ray", "slurm", "print")
POLL_S = 0.5


def main(argv: list[str]) -> int:
    """Run the command line and return the exit code. Raises UserError."""
    args, further = _arguments(argv)
    from scripts.sweeps.runs import plan

    runs = plan(args.config, args.name, args.root, further, args.only)
    todo = [run for run in runs if not run.finished]
    where = runs[0].workdir.parent
    if args.launcher == "print":
        if len(todo) < len(runs):
            print(
                f"{len(runs) - len(todo)} of {len(runs)} runs are finished already",
                file=sys.stderr,
            )
        for run in todo:
            print(shlex.join(["python", *run.command]))
        return 0
    if not todo:
        print(f"all {len(runs)} runs are finished; they lie in {where}")
        return 0
    from scripts.sweeps.watch import Watch

    watch = Watch(runs)
    launcher = _launcher(args, where)
    for s in (
        signal.SIGTERM,
        signal.SIGINT,
    ):  # behind Ray's own; a shell's background jobs ignore SIGINT by default
        signal.signal(s, _interrupt)
    try:
        watch.say(
            f"{len(runs)} runs in {where}, {len(runs) - len(todo)} of them finished already"
        )
        outcomes, stopped = drive(launcher, todo, watch)
    finally:
        watch.close()
        launcher.close()
    return report(runs, outcomes, stopped)


def drive(launcher, todo: list, watch) -> tuple[dict, int]:
    """Keep the launcher's slots filled until every run has ended: ({run: (exit code, note)}, signal that stopped it or 0).

    The first interrupt asks the runs to save and stop, a second one ends them.
    """
    waiting, running, outcomes, stopped = collections.deque(todo), set(), {}, 0
    while running or (waiting and not stopped):
        try:
            free = (
                min(launcher.slots - len(running), len(waiting)) if not stopped else 0
            )
            if free > 0:
                batch = [waiting.popleft() for _ in range(free)]
                running |= set(batch)
                launcher.submit(batch)
            ended = launcher.poll()
            running -= ended.keys()
            outcomes |= ended
            watch.show({run: code for run, (code, _) in outcomes.items()})
            if running:
                time.sleep(POLL_S)
        except KeyboardInterrupt as e:
            if stopped:
                watch.say("ending them now")
                launcher.kill()
            else:
                stopped = e.args[0] if e.args else signal.SIGINT
                watch.say(
                    f"stopping: {len(running)} runs save what they have; once more ends them at once"
                )
                launcher.stop()
    return outcomes, stopped


def report(runs: list, outcomes: dict, stopped: int) -> int:
    """Print what has become of the runs; returns the exit code."""
    from scripts.sweeps.runs import last_line

    finished = [run for run in runs if run.finished]
    failed = [
        run
        for run, (code, _) in outcomes.items()
        if not run.finished and not (stopped and code > 128)
    ]
    print(
        f"{len(finished)} of {len(runs)} runs are finished; they lie in {runs[0].workdir.parent}"
    )
    for run in failed:
        code, note = outcomes[run]
        if code == 0 and not note:
            note = f"ended well, but {run.workdir / 'results.json'} is not here: --root must be seen by every node"
        if code < 0:
            note = note or f"killed by {signal.Signals(-code).name}; {last_line(run)}"
        print(
            f"failed: {run.id}: {note or last_line(run)}  (exit code {code}; {run.workdir / 'output.log'})"
        )
    if stopped:
        print("stopped; the same command goes on", file=sys.stderr)
        return 128 + stopped
    return 1 if failed else 0


def _interrupt(signum, frame):
    raise KeyboardInterrupt(signum)


def _arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = _Parser(
        prog="sweep.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", help="FILE[:VARIANT], e.g. configs/mnist.py:paper")
    parser.add_argument(
        "--name",
        default="",
        help="which sweep of the config, e.g. learning_rate; its figure's if not given",
    )
    parser.add_argument("--launcher", choices=LAUNCHERS, default="local")
    parser.add_argument(
        "--root",
        metavar="DIR",
        help="the runs' directories lie here; runs/EXPERIMENT/VARIANT if not given",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="FIELD=VALUE[,VALUE]",
        help="only these runs",
    )
    parser.add_argument(
        "--processes", type=_positive, metavar="N", help="at most N runs at once"
    )
    cluster = parser.add_argument_group("ray and slurm, for each run")
    cluster.add_argument("--cpus", type=_positive, default=1, metavar="N")
    cluster.add_argument(
        "--gpus",
        type=float,
        default=0,
        metavar="N",
        help="with ray also a part of one, e.g. 0.5",
    )
    ray = parser.add_argument_group("ray (RAY_ADDRESS names the cluster)")
    ray.add_argument(
        "--tpus", type=int, default=0, metavar="N", help="TPU chips for each run"
    )
    ray.add_argument(
        "--retries",
        type=int,
        default=10,
        metavar="N",
        help="how many node deaths a run survives; -1: any",
    )
    ray.add_argument(
        "--upload",
        action="store_true",
        help="send this checkout to the nodes, if they do not see it",
    )
    slurm = parser.add_argument_group("slurm")
    slurm.add_argument(
        "--time",
        type=_positive,
        default=60,
        metavar="MINUTES",
        help="time limit of one allocation",
    )
    slurm.add_argument("--partition")
    slurm.add_argument(
        "--sbatch",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="further sbatch options",
    )
    slurm.add_argument(
        "--cluster",
        choices=("slurm", "local"),
        default="slurm",
        help="local: submitit without SLURM",
    )
    split = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:split])
    if args.upload and not pathlib.Path(args.root or "").is_absolute():
        parser.error(
            "--upload needs --root with the absolute path of a folder that every node sees"
        )
    if args.launcher == "slurm" and args.gpus != int(args.gpus):
        parser.error(f"--gpus {args.gpus:g}: SLURM gives whole GPUs")
    if bad := next((s for s in args.sbatch if "=" not in s), None):
        parser.error(f"--sbatch {bad}: give KEY=VALUE, as in --sbatch account=me")
    return args, argv[split + 1 :]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UserError(f"{message}; see --help")


def _positive(word: str) -> int:
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word}: at least 1 is needed")
    return int(word)


def _launcher(args: argparse.Namespace, where: pathlib.Path):
    if args.launcher == "local":
        from scripts.sweeps.local import Local

        return Local(args.processes)
    if args.launcher == "ray":
        from scripts.sweeps.on_ray import OnRay

        return OnRay(
            where,
            args.cpus,
            args.gpus,
            args.tpus,
            args.processes,
            args.retries,
            args.upload,
        )
    from scripts.sweeps.on_slurm import OnSlurm

    sbatch = dict(pair.split("=", 1) for pair in args.sbatch)
    gpus = int(args.gpus)
    return OnSlurm(
        where,
        args.cluster,
        args.processes,
        args.cpus,
        gpus,
        args.time,
        args.partition,
        sbatch,
    )


if __name__ == "__main__":
    ended(main, "this sweep")
