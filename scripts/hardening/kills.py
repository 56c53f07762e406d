"""Runs killed at random moments and resumed: what is left after every kill, and at the end, is the undisturbed run's.

Of every experiment's :smoke config, made long enough to be killed often, one run is left alone and another is killed and
resumed until it ends, and again from the start until every phase has had its share of kills. A kill aims at a phase (it
waits for that phase's sign, then for a random moment) and is counted under the phase it hit. A kill that loses anything is
a loss: afterwards the whole lines of metrics.jsonl must be the undisturbed run's first ones, no complete checkpoint may be
gone, and the next start may find none that it cannot read; and the run's end must equal the undisturbed one to the bit:
parameters, optimiser, records, best checkpoint, results. SIGTERM must also save at the current step and exit with 143.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

import numpy as np

from tests.runs import ROOT, environment, newest_state

EXPERIMENTS = (
    "mnist",
    "convnet",
    "draw",
    "handwriting",
    "order_embeddings",
    "attentive_reader",
    "skip_thoughts",
)
TOTAL, EVAL_EVERY = 60, 6
# Evaluations are no multiple of saves, so that best and last are saved now at unlike steps and now at one.
LONGER = (
    f"--config.steps={TOTAL}",
    "--config.log_every=2",
    f"--config.evals.valid={EVAL_EVERY}",
    f"--config.evals.test={EVAL_EVERY}",
    "--config.save_every=4",
)
PHASES = ("start-up", "compile", "step", "evaluation", "checkpoint", "SIGTERM")
PATIENCE_S = 3600.0  # a shared machine may be very slow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this subject."""
    parser.add_argument(
        "--kills",
        type=int,
        default=126,
        help="at least so many in all, SIGTERMs among them",
    )
    parser.add_argument(
        "--experiments",
        nargs="+",
        default=EXPERIMENTS,
        choices=EXPERIMENTS,
        metavar="NAME",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        required=True,
        help="folder for the runs and kills.md",
    )


class Victim:
    """A trainer that is watched from outside: what it printed, its records, the checkpoints it has begun."""

    def __init__(
        self,
        home: pathlib.Path,
        workdir: pathlib.Path,
        flags: Iterable[str],
        output: pathlib.Path | None = None,
    ):
        self.workdir, self._before = workdir, _unfinished(workdir)
        beside = output or workdir
        self._out, self._err = (
            beside.with_name(f"{beside.name}.{name}") for name in ("stdout", "stderr")
        )
        # JAX then says when it begins and ends to compile; not where the output is what is looked at.
        env = environment(home) | {"JAX_LOG_COMPILES": "0" if output else "1"}
        command = [sys.executable, "-m", "lnrepro.main", *flags, f"--workdir={workdir}"]
        with open(self._out, "w") as out, open(self._err, "w") as err:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=out, stderr=err
            )
        self._began = time.monotonic()

    def wait(self, sign: Callable[[], bool], every_s: float = 0.02) -> bool:
        """Until `sign()`; False if the process ended before it."""
        while not sign():
            if self.process.poll() is not None:
                return False
            if time.monotonic() - self._began > PATIENCE_S:
                self.process.kill()
                raise TimeoutError(
                    f"{self.workdir} showed no sign of {sign.__name__} in {PATIENCE_S:.0f} s"
                )
            time.sleep(every_s)
        return True

    @property
    def said(self) -> str:
        """What it wrote to stderr, without JAX's log of compilations."""
        noise = ("WARNING:jax._src", "Finished ", "Compiling ", "Persistent ")
        return "".join(
            line
            for line in self._err.read_text().splitlines(True)
            if not line.startswith(noise)
        )

    def announced(self) -> bool:
        """It has said what it is going to train."""
        return " steps on " in self._out.read_text()

    def stepping(self) -> bool:
        """It has written a record."""
        return "\nstep " in self._out.read_text()

    def compiling(self) -> bool:
        """It has announced itself and waits for XLA."""
        text = self._err.read_text()
        return self.announced() and text.count("Compiling jit(") > text.count(
            "Finished XLA compilation of jit("
        )

    def evaluating(self) -> bool:
        """Its last record is of the steps before an evaluation, or the last of all."""
        records = lines(self.workdir)
        last = json.loads(records[-1]) if records and self.stepping() else {"step": 1}
        return last["step"] == TOTAL or (
            last["step"] % EVAL_EVERY == 0 and any(n.startswith("train/") for n in last)
        )

    def saving(self) -> bool:
        """A checkpoint that it began is unfinished."""
        return bool(_unfinished(self.workdir) - self._before)

    def between(self) -> bool:
        """It takes steps, and neither evaluates nor saves."""
        return self.stepping() and not self.evaluating() and not self.saving()

    def phase(self) -> str:
        """What it is doing; of a dead one, what it was doing."""
        signs = {
            "checkpoint": self.saving,
            "evaluation": self.evaluating,
            "compile": self.compiling,
        }
        return (
            next((name for name, sign in signs.items() if sign()), "step")
            if self.announced()
            else "start-up"
        )

    def aim(self, phase: str, rng: random.Random, startup_s: float) -> bool:
        """Wait for a random moment of `phase`; False if the process ended before."""
        if phase == "start-up":
            time.sleep(rng.uniform(0, startup_s))
            return self.process.poll() is None
        if phase == "compile":
            sign, longest = self.compiling, 1.0
        else:
            if not self.wait(self.stepping):
                return False
            time.sleep(rng.uniform(0, 1))
            signs = {
                "evaluation": self.evaluating,
                "checkpoint": self.saving,
                "step": self.between,
            }
            sign = signs.get(phase, self.stepping)
            longest = {"evaluation": 0.1, "checkpoint": 0.03, "step": 0.03}.get(
                phase, 0.5
            )
        found = self.wait(sign, 0.003 if phase in ("checkpoint", "step") else 0.02)
        time.sleep(rng.uniform(0, longest))
        return found and self.process.poll() is None

    def end(self, signum: int | None = None) -> int:
        """Wait for the end, with a signal or without: the exit code."""
        if signum:
            self.process.send_signal(signum)
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()


def lines(workdir: pathlib.Path) -> list[str]:
    """The whole lines of a run's metrics.jsonl."""
    path = workdir / "metrics.jsonl"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def steps(workdir: pathlib.Path, name: str = "last") -> list[int]:
    """The complete checkpoints, in order."""
    folder = workdir / "checkpoints" / name
    return (
        sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit())
        if folder.is_dir()
        else []
    )


def _unfinished(workdir: pathlib.Path) -> set[tuple[str, str]]:
    found = set()
    for kind in ("last", "best"):
        with contextlib.suppress(OSError):
            found |= {
                (kind, name)
                for name in os.listdir(workdir / "checkpoints" / kind)
                if not name.isdigit()
            }
    return found


def differences(whole: pathlib.Path, broken: pathlib.Path) -> list[str]:
    """In what two finished runs differ, [] if they are the same to the bit."""
    found = []
    for name in ("last", "best"):
        at = [steps(w, name)[-1:] for w in (whole, broken)]
        if at == [[], []]:  # a config without config.best.metric keeps none
            continue
        a, b = (newest_state(w, name) for w in (whole, broken))
        if at[0] != at[1] or a.keys() != b.keys():
            found.append(f"the {name} checkpoint is of step {at[1]}, not {at[0]}")
        found += [
            f"{name} checkpoint: {k}"
            for k in a.keys() & b.keys()
            if not same_bits(a[k], b[k])
        ]
    texts = [
        (w / file).read_bytes()
        for file in ("metrics.jsonl", "results.json")
        for w in (whole, broken)
    ]
    found += [
        f
        for f, same in (
            ("metrics.jsonl", texts[0] == texts[1]),
            ("results.json", texts[2] == texts[3]),
        )
        if not same
    ]
    return found


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Same type, shape and bytes."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Trial:
    """The kills of one config: how many hit each phase, and what was lost."""

    def __init__(
        self, name: str, flags: Iterable[str], home: pathlib.Path, folder: pathlib.Path
    ):
        self.name, self.flags, self.home, self.folder = name, tuple(flags), home, folder
        self.kills, self.losses = collections.Counter(), []
        self.ends, self.grace_s = 0, 0.0

    def run(self, quota: dict[str, int], rng: random.Random) -> "Trial":
        """Kill until every phase of `quota` has been hit so often, or thrice as many kills did not do."""
        whole = self.folder / "whole"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        victim = Victim(self.home, whole, self.flags)
        if victim.end() != 0:
            raise RuntimeError(
                f"{self.name}: the undisturbed run failed: {victim.said}"
            )
        self._reference, self._whole, self._startup_s = lines(whole), whole, None
        while wanted := self._wanted(quota):
            self._chain(quota, rng)
            if self._wanted(quota) == wanted and self.kills.total() > 3 * sum(
                quota.values()
            ):
                break
        return self

    def _wanted(self, quota: dict[str, int]) -> list[str]:
        return [phase for phase, n in quota.items() if self.kills[phase] < n]

    def _chain(self, quota: dict[str, int], rng: random.Random) -> None:
        """One run from its start to its end, killed while kills are wanted."""
        broken = self.folder / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        while True:
            wanted = (
                self._wanted(quota)
                if self.kills.total() <= 3 * sum(quota.values())
                else []
            )
            phase = rng.choice(wanted) if wanted else None
            kept, began = steps(broken), time.monotonic()
            cold = self._without_cache() if phase == "compile" else None
            victim = Victim(self.home, broken, self.flags)
            if (
                self._startup_s is None
            ):  # the first start, which also finds out how long one takes
                victim.wait(victim.announced)
                self._startup_s = time.monotonic() - began
            hit = victim.aim(phase, rng, self._startup_s) if phase else False
            if hit and phase == "SIGTERM":
                self._terminate(victim)
            elif hit:
                victim.end(signal.SIGKILL)
                phase = victim.phase()
                self.kills[phase] += 1
            code = victim.end()
            if cold:
                self._put_back(cold)
            self._check(victim, phase, kept)
            if code == 0:
                break
            if code not in (
                -signal.SIGKILL,
                128 + signal.SIGTERM,
            ) and not self._was_done(victim, code):
                self._lost(
                    phase, f"the resumed run failed with {code}: {victim.said[-300:]}"
                )
                return
        self.ends += 1
        for what in differences(self._whole, broken):
            self._lost("end", what)

    def _terminate(self, victim: Victim) -> None:
        at, began = len(lines(victim.workdir)), time.monotonic()
        code = victim.end(signal.SIGTERM)
        if code == 0 or self._was_done(victim, code):  # it came behind the last step
            return
        self.kills["SIGTERM"] += 1
        self.grace_s = max(self.grace_s, time.monotonic() - began)
        stopped = re.fullmatch(
            r"stopped by SIGTERM at step (\d+); saved, the same command resumes\n",
            victim.said,
        )
        seen = json.loads(self._reference[at - 1])["step"]
        if code != 143 or not stopped:
            self._lost("SIGTERM", f"exit code {code}: {victim.said[-300:]}")
        elif steps(victim.workdir)[-1] != int(stopped[1]) or int(stopped[1]) < seen:
            self._lost(
                "SIGTERM",
                f"{stopped[0]}, but the checkpoints are {steps(victim.workdir)}",
            )

    def _was_done(self, victim: Victim, code: int) -> bool:
        """SIGTERM ended the process, not the run: all was written and nothing listened any more. The next start says 0."""
        return code == -signal.SIGTERM and lines(victim.workdir) == self._reference

    def _check(self, victim: Victim, phase: str | None, kept: list[int]) -> None:
        """What must hold after every kill."""
        found = lines(victim.workdir)
        if found != self._reference[: len(found)]:
            self._lost(phase, "metrics.jsonl is not the undisturbed run's beginning")
        if kept and max(steps(victim.workdir), default=0) < kept[-1]:
            self._lost(phase, f"checkpoint {kept[-1]} is gone")
        if "cannot be read" in victim.said or "Traceback" in victim.said:
            self._lost(phase, victim.said[-300:])

    def _lost(self, phase: str | None, what: str) -> None:
        self.losses.append((phase or "end", what))
        print(f"LOSS {self.name} ({phase}): {what}", flush=True)

    def _without_cache(self) -> pathlib.Path:
        """Move the compiled steps aside, so that the next start compiles them."""
        aside = self.home / "compiled"
        aside.mkdir()
        for path in (self.home / "lnrepro" / "xla").glob("jit__lambda*"):
            path.rename(aside / path.name)
        return aside

    def _put_back(self, aside: pathlib.Path) -> None:
        """And back, but for those that the killed process left, whole or torn."""
        for path in aside.iterdir():
            if not (there := self.home / "lnrepro" / "xla" / path.name).exists():
                path.rename(there)
        shutil.rmtree(aside)


def table(trials: list[Trial]) -> str:
    """Experiment x phase: kills / losses, as Markdown."""
    rows = [
        "| experiment | "
        + " | ".join(PHASES)
        + " | runs ended the same | longest grace |"
    ]
    rows.append("|---" * (len(PHASES) + 3) + "|")
    total, losses = collections.Counter(), collections.Counter()
    for t in trials:
        lost = collections.Counter(phase for phase, _ in t.losses)
        total, losses = total + t.kills, losses + lost
        cells = [f"{t.kills[p]} / {lost[p]}" for p in PHASES]
        rows.append(
            f"| {t.name} | {' | '.join(cells)} | {t.ends - (lost['end'] > 0)} of {t.ends} | {t.grace_s:.1f} s |"
        )
    rows.append(
        "| all | " + " | ".join(f"{total[p]} / {losses[p]}" for p in PHASES) + " | | |"
    )
    return "\n".join([*rows, "", f"{total.total()} kills, {losses.total()} losses."])


def main(args: argparse.Namespace) -> int:
    """Kill, compare, write OUT/kills.md; 1 if anything was lost or a phase was not hit often enough."""
    share = -(-args.kills // (len(args.experiments) * len(PHASES)))
    quota = dict.fromkeys(PHASES, share)
    out, trials, began = args.out.absolute(), [], time.monotonic()
    for name in args.experiments:
        flags = (f"--config=configs/{name}.py:smoke", *LONGER)
        trial = Trial(name, flags, out / "home", out / name).run(
            quota, random.Random(f"{args.seed} {name}")
        )
        trials.append(trial)
        print(
            f"{name}: {dict(trial.kills)}, {len(trial.losses)} lost, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        text = table(trials)
        (out / "kills.md").write_text(text + "\n")
    print(text)
    short = [f"{t.name}: {p}" for t in trials for p in PHASES if t.kills[p] < share]
    if short:
        print(f"not hit {share} times: {', '.join(short)}", file=sys.stderr)
    return int(bool(short) or any(t.losses for t in trials))
