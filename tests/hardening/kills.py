"""Runs that are killed at random moments and resumed.

Every experiment's :smoke config is made long enough to be killed often. One run is
undisturbed. Another is killed and resumed until it ends, and again from the start until
every phase has had its share of kills. A kill waits for the sign of a phase, then for a
random moment, and counts for the phase in which it hit.

After each kill, the whole lines of metrics.jsonl must be the first ones of the
undisturbed run, no complete checkpoint may be gone, and the next start must be able to
read all that it finds. At its end the run must have the same bits as the undisturbed
one: parameters, optimiser, records, best checkpoint, results. SIGTERM must also save at
the current step and exit with 143. Whatever fails is called a loss.
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
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from lnrepro.engine import config_file
from scripts import markdown as md
from tests.runs import EXPERIMENTS, ROOT, environment, newest_state

TOTAL, EVAL_EVERY = 60, 6
# EVAL_EVERY is no multiple of SAVE_EVERY, so that the best and the last checkpoint are
# sometimes saved at one step and sometimes at different ones.
SAVE_EVERY = 4
PHASES = ("start-up", "compile", "step", "evaluation", "checkpoint", "SIGTERM")
# A kill that aims at a phase comes at most this many seconds after the phase's sign.
LONGEST_DELAY = {
    "compile": 1.0,
    "step": 0.03,
    "evaluation": 0.1,
    "checkpoint": 0.03,
    "SIGTERM": 0.5,
}
# A shared machine may be very slow.
PATIENCE_SECONDS = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `kills`."""
    parser.add_argument(
        "--kills",
        type=int,
        default=126,
        help="smallest number of kills, SIGTERMs among them",
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


def longer(config: str) -> tuple[str, ...]:
    """Return the flags that make a config long enough to be killed often.

    Args:
      config: FILE[:VARIANT].
    """
    flags = [f"--config={config}", f"--config.steps={TOTAL}", "--config.log_every=2"]
    flags.append(f"--config.save_every={SAVE_EVERY}")
    for name, schedule in config_file.read(f"{ROOT}/{config}").evals.items():
        if schedule.isdigit() or schedule == "epoch":
            flags.append(f"--config.evals.{name}={EVAL_EVERY}")
    return tuple(flags)


class Trainer:
    """A training process that is watched from outside."""

    def __init__(
        self,
        home: pathlib.Path,
        workdir: pathlib.Path,
        flags: Iterable[str],
        output: pathlib.Path | None = None,
    ):
        """Start it.

        Args:
          home: folder of its caches and data.
          workdir: the run directory.
          flags: its flags.
          output: path of its output files without their suffixes; beside the run
            directory by default. JAX then also reports its compilations.
        """
        self.workdir = workdir
        self._unfinished_before = _unfinished(workdir)
        stem = output or workdir
        self._out = stem.with_name(f"{stem.name}.stdout")
        self._err = stem.with_name(f"{stem.name}.stderr")
        env = environment(home) | {"JAX_LOG_COMPILES": "0" if output else "1"}
        command = [sys.executable, "-m", "lnrepro.main", *flags, f"--workdir={workdir}"]
        with open(self._out, "w") as out, open(self._err, "w") as err:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=out, stderr=err
            )
        self._began = time.monotonic()

    def wait(self, sign: Callable[[], bool], every_seconds: float = 0.02) -> bool:
        """Wait until `sign()` is true.

        Args:
          sign: the condition.
          every_seconds: how often it is checked.

        Returns:
          False if the process ended before.

        Raises:
          TimeoutError: it took too long; the process is killed.
        """
        while not sign():
            if self.process.poll() is not None:
                return False
            if time.monotonic() - self._began > PATIENCE_SECONDS:
                self.process.kill()
                raise TimeoutError(
                    f"{self.workdir} showed no sign of {sign.__name__} in "
                    f"{PATIENCE_SECONDS:.0f} s"
                )
            time.sleep(every_seconds)
        return True

    @property
    def stderr(self) -> str:
        """What it wrote to stderr, without JAX's log of compilations."""
        noise = ("WARNING:jax._src", "Finished ", "Compiling ", "Persistent ")
        written = self._err.read_text().splitlines(True)
        return "".join(line for line in written if not line.startswith(noise))

    def announced(self) -> bool:
        """Whether it has printed what it is going to train."""
        return " steps on " in self._out.read_text()

    def stepping(self) -> bool:
        """Whether it has written a record."""
        return "\nstep " in self._out.read_text()

    def compiling(self) -> bool:
        """Whether it has announced itself and waits for XLA."""
        text = self._err.read_text()
        begun = text.count("Compiling jit(")
        ended = text.count("Finished XLA compilation of jit(")
        return self.announced() and begun > ended

    def evaluating(self) -> bool:
        """Whether its last record is that of the steps before an evaluation."""
        records = lines(self.workdir)
        if not records or not self.stepping():
            return False
        last = json.loads(records[-1])
        if last["step"] == TOTAL:
            return True
        is_train = any(name.startswith("train/") for name in last)
        return is_train and last["step"] % EVAL_EVERY == 0

    def saving(self) -> bool:
        """Whether a checkpoint that it began is unfinished."""
        return bool(_unfinished(self.workdir) - self._unfinished_before)

    def between(self) -> bool:
        """Whether it takes steps, and neither evaluates nor saves."""
        return self.stepping() and not self.evaluating() and not self.saving()

    def phase(self) -> str:
        """Return what it is doing, or what it was doing when it died."""
        if not self.announced():
            return "start-up"
        if self.saving():
            return "checkpoint"
        if self.evaluating():
            return "evaluation"
        return "compile" if self.compiling() else "step"

    def aim(self, phase: str, rng: random.Random, startup_seconds: float) -> bool:
        """Wait for a random moment of a phase.

        Args:
          phase: one of PHASES.
          rng: chooses the moment.
          startup_seconds: how long a start takes.

        Returns:
          False if the process ended before.
        """
        if phase == "start-up":
            time.sleep(rng.uniform(0, startup_seconds))
            return self.process.poll() is None
        if phase != "compile":
            if not self.wait(self.stepping):
                return False
            time.sleep(rng.uniform(0, 1))
        signs = {
            "compile": self.compiling,
            "step": self.between,
            "evaluation": self.evaluating,
            "checkpoint": self.saving,
            "SIGTERM": self.stepping,
        }
        every_seconds = 0.003 if phase in ("checkpoint", "step") else 0.02
        found = self.wait(signs[phase], every_seconds)
        time.sleep(rng.uniform(0, LONGEST_DELAY[phase]))
        return found and self.process.poll() is None

    def end(self, signum: int | None = None) -> int:
        """Send a signal if there is one, wait for the end, and return the exit code."""
        if signum:
            self.process.send_signal(signum)
        try:
            return self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()


def lines(workdir: pathlib.Path) -> list[str]:
    """Return the whole lines of a run's metrics.jsonl."""
    path = workdir / "metrics.jsonl"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def steps(workdir: pathlib.Path, name: str = "last") -> list[int]:
    """Return the steps of the complete checkpoints, sorted.

    Args:
      workdir: the run directory.
      name: "last" or "best".
    """
    folders = (workdir / "checkpoints" / name).glob("*")
    return sorted(int(path.name) for path in folders if path.name.isdigit())


def _unfinished(workdir):
    """Return the checkpoints that are begun and not complete."""
    found = set()
    for kind in ("last", "best"):
        # The folder may not exist yet, or may be removed at this moment.
        with contextlib.suppress(OSError):
            for name in os.listdir(workdir / "checkpoints" / kind):
                if not name.isdigit():
                    found.add((kind, name))
    return found


def differences(expected: pathlib.Path, actual: pathlib.Path) -> list[str]:
    """Return in what two finished runs differ; [] if they have the same bits.

    Args:
      expected: the run directory of the undisturbed run.
      actual: that of the other run.
    """
    found = []
    for name in ("last", "best"):
        expected_step, actual_step = (steps(w, name)[-1:] for w in (expected, actual))
        # A config without config.best.metric keeps no best checkpoint.
        if not expected_step and not actual_step:
            continue
        a, b = newest_state(expected, name), newest_state(actual, name)
        if expected_step != actual_step or a.keys() != b.keys():
            found.append(
                f"the {name} checkpoint is of step {actual_step}, not {expected_step}"
            )
        for leaf in a.keys() & b.keys():
            if not same_bits(a[leaf], b[leaf]):
                found.append(f"{name} checkpoint: {leaf}")
    for file in ("metrics.jsonl", "results.json"):
        if (expected / file).read_bytes() != (actual / file).read_bytes():
            found.append(file)
    return found


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have the same type, shape and bytes."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Trial:
    """The kills of one config.

    Attributes:
      name: the experiment.
      kills: the number of kills that hit each phase.
      losses: (phase, what was lost).
      ends: the number of killed runs that were resumed to their end.
      grace_seconds: the longest time from SIGTERM to the end of the process.
    """

    def __init__(
        self, name: str, flags: Iterable[str], home: pathlib.Path, folder: pathlib.Path
    ):
        """Prepare a trial.

        Args:
          name: the experiment.
          flags: the flags of its runs.
          home: folder of caches and data.
          folder: folder of the runs.
        """
        self.name, self.flags, self.home, self.folder = name, tuple(flags), home, folder
        self.kills, self.losses = collections.Counter(), []
        self.ends, self.grace_seconds = 0, 0.0
        self._expected = folder / "whole"
        self._expected_lines: list[str] = []
        self._startup_seconds: float | None = None

    def run(self, quota: Mapping[str, int], rng: random.Random) -> "Trial":
        """Kill runs until every phase has been hit often enough.

        It gives up after three times as many kills as were asked for, and at least 60:
        on a slow disk, most moments belong to a checkpoint.

        Args:
          quota: {phase: number of kills}.
          rng: chooses phases and moments.

        Raises:
          RuntimeError: the undisturbed run failed.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        trainer = Trainer(self.home, self._expected, self.flags)
        if trainer.end() != 0:
            raise RuntimeError(
                f"{self.name}: the undisturbed run failed: {trainer.stderr}"
            )
        self._expected_lines = lines(self._expected)
        max_kills = max(60, 3 * sum(quota.values()))
        wanted = self._wanted(quota)
        while wanted:
            self._run_once(quota, max_kills, rng)
            before, wanted = wanted, self._wanted(quota)
            if wanted == before and self.kills.total() > max_kills:
                break
        return self

    def _wanted(self, quota):
        return [phase for phase, n in quota.items() if self.kills[phase] < n]

    def _run_once(self, quota, max_kills, rng):
        """Run from the start to the end, with kills while kills are wanted."""
        workdir = self.folder / "broken"
        shutil.rmtree(workdir, ignore_errors=True)
        code = None
        while code != 0:
            # Without a wanted phase the run goes on to its end.
            wanted = self._wanted(quota) if self.kills.total() <= max_kills else []
            phase = rng.choice(wanted) if wanted else None
            # What was complete before the kill must still be there afterwards.
            checkpoints = steps(workdir)
            with self._cold_cache(phase == "compile"):
                trainer = Trainer(self.home, workdir, self.flags)
                code, phase = self._kill(trainer, phase, rng)
            self._check(trainer, phase, checkpoints)
            killed = code in (-signal.SIGKILL, 128 + signal.SIGTERM)
            if code != 0 and not killed and not self._was_done(trainer, code):
                self._lose(
                    phase,
                    f"the resumed run failed with {code}: {trainer.stderr[-300:]}",
                )
                return
        self.ends += 1
        for what in differences(self._expected, workdir):
            self._lose("end", what)

    def _kill(self, trainer, phase, rng):
        """Kill a trainer in a phase, if there is one, and wait for its end.

        Returns:
          The exit code, and the phase in which it was killed.
        """
        if self._startup_seconds is None:
            # The first start also measures how long one takes.
            began = time.monotonic()
            trainer.wait(trainer.announced)
            self._startup_seconds = time.monotonic() - began
        if phase and trainer.aim(phase, rng, self._startup_seconds):
            if phase == "SIGTERM":
                self._terminate(trainer)
            else:
                trainer.end(signal.SIGKILL)
                # The kill counts for the phase that it hit, which may not be the one
                # aimed at.
                phase = trainer.phase()
                self.kills[phase] += 1
        return trainer.end(), phase

    def _terminate(self, trainer):
        """Send SIGTERM, and check that the run saves at the current step."""
        n_lines, began = len(lines(trainer.workdir)), time.monotonic()
        code = trainer.end(signal.SIGTERM)
        # The signal may have come after the last step.
        if code == 0 or self._was_done(trainer, code):
            return
        self.kills["SIGTERM"] += 1
        self.grace_seconds = max(self.grace_seconds, time.monotonic() - began)
        stopped = re.fullmatch(
            r"stopped by SIGTERM at step (\d+); saved, the same command resumes\n",
            trainer.stderr,
        )
        if code != 143 or not stopped:
            self._lose("SIGTERM", f"exit code {code}: {trainer.stderr[-300:]}")
            return
        step, checkpoints = int(stopped[1]), steps(trainer.workdir)
        # The run had written this record before the signal, so it must not stop at an
        # earlier step.
        recorded = json.loads(self._expected_lines[n_lines - 1])["step"]
        if checkpoints[-1] != step or step < recorded:
            self._lose(
                "SIGTERM", f"{stopped[0]}, but the checkpoints are {checkpoints}"
            )

    def _was_done(self, trainer, code):
        """Whether SIGTERM ended the process after the run had written everything."""
        done = lines(trainer.workdir) == self._expected_lines
        return code == -signal.SIGTERM and done

    def _check(self, trainer, phase, checkpoints):
        """Check what must hold after every kill."""
        found = lines(trainer.workdir)
        if found != self._expected_lines[: len(found)]:
            self._lose(phase, "metrics.jsonl is not the undisturbed run's beginning")
        if checkpoints and max(steps(trainer.workdir), default=0) < checkpoints[-1]:
            self._lose(phase, f"checkpoint {checkpoints[-1]} is gone")
        if "cannot be read" in trainer.stderr or "Traceback" in trainer.stderr:
            self._lose(phase, trainer.stderr[-300:])

    def _lose(self, phase, what):
        self.losses.append((phase or "end", what))
        print(f"LOSS {self.name} ({phase}): {what}", flush=True)

    @contextlib.contextmanager
    def _cold_cache(self, cold):
        """Move the compiled steps away meanwhile, so that they are compiled again."""
        if not cold:
            yield
            return
        cache, away = self.home / "lnrepro" / "xla", self.home / "compiled"
        away.mkdir()
        # The compiled training step is a lambda of `lnrepro.engine.distribute`.
        for path in cache.glob("jit__lambda*"):
            path.rename(away / path.name)
        try:
            yield
        finally:
            for path in away.iterdir():
                # What the killed process has written, complete or not, stays there.
                if not (cache / path.name).exists():
                    path.rename(cache / path.name)
            shutil.rmtree(away)


def table(trials: Iterable[Trial]) -> str:
    """Return kills / losses by experiment and phase, in Markdown."""
    head = ["experiment", *PHASES, "runs ended the same", "longest grace"]
    rows = []
    total, total_lost = collections.Counter(), collections.Counter()
    for t in trials:
        lost = collections.Counter(phase for phase, _ in t.losses)
        total += t.kills
        total_lost += lost
        same = f"{t.ends - (lost['end'] > 0)} of {t.ends}"
        cells = [f"{t.kills[phase]} / {lost[phase]}" for phase in PHASES]
        rows.append([t.name, *cells, same, f"{t.grace_seconds:.1f} s"])
    cells = [f"{total[phase]} / {total_lost[phase]}" for phase in PHASES]
    rows.append(["all", *cells, "", ""])
    summary = f"{total.total()} kills, {total_lost.total()} losses."
    return f"{md.table(head, rows)}\n\n{summary}"


def main(args: argparse.Namespace) -> int:
    """Kill and compare, and write OUT/kills.md.

    Returns:
      1 if anything was lost, or a phase was not hit often enough, otherwise 0.
    """
    share = -(-args.kills // (len(args.experiments) * len(PHASES)))
    quota = dict.fromkeys(PHASES, share)
    out, trials, began = args.out.absolute(), [], time.monotonic()
    for name in args.experiments:
        flags = longer(f"configs/{name}.py:smoke")
        trial = Trial(name, flags, out / "home", out / name)
        trials.append(trial.run(quota, random.Random(f"{args.seed} {name}")))
        seconds = time.monotonic() - began
        print(
            f"{name}: {dict(trial.kills)}, {len(trial.losses)} lost, {seconds:.0f} s",
            flush=True,
        )
        text = table(trials)
        (out / "kills.md").write_text(text + "\n")
    print(text)
    too_few = [f"{t.name}: {p}" for t in trials for p in PHASES if t.kills[p] < share]
    if too_few:
        print(f"not hit {share} times: {', '.join(too_few)}", file=sys.stderr)
    return int(bool(too_few) or any(t.losses for t in trials))
