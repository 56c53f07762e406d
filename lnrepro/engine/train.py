"""Training of a config in its run directory, told in the order of execution.

`train` does what happens once in a run:

1. Check the config, the data and the devices (`Run`, `Placement`).
2. Lock the run directory, and see whether it has a run of this config.
3. Start: save the state of step 0 and read it back, or restore the newest checkpoint
   (`Store`, `Checkpoint`, `Notes`).
4. Train to the last step (`Trainer`), and run the evaluations at the end.
5. Write the results (`Output`).

`Trainer` does what happens again and again. After each call of the compiled step it
logs (`Meter`), saves and evaluates, in this order, and stops where a signal has arrived
(`Signals`). What can fail comes after the save, with what is due noted. So a run that
is interrupted and resumed ends with the same bits as one that is not.
"""

import contextlib
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.data.stream import Stream
from lnrepro.engine import json_files, kernels, peers, provenance, run_config, workdir
from lnrepro.engine.artifacts import title
from lnrepro.engine.checkpoint import Checkpoint, Notes, restore
from lnrepro.engine.metrics import Meter, check_finite
from lnrepro.engine.output import Output
from lnrepro.engine.run import Run, numbers_of
from lnrepro.engine.signals import Signals
from lnrepro.engine.store import Store
from lnrepro.errors import Diverged, Stopped, UserError, say
from lnrepro.functional.fast.kernels import watched

# Calls of the compiled step that are dispatched ahead of the devices. With more of
# them, the answer to a signal takes longer. With fewer, the devices wait for the host.
AHEAD = 4


def train(config: ConfigDict, folder: pathlib.Path) -> dict[str, float]:
    """Train to the last step, from the newest checkpoint if there is one.

    Args:
      config: the config.
      folder: the run directory.

    Returns:
      The last value of every number; {} where the run was finished before, and in
      processes other than the first.

    Raises:
      UserError: something that the user can correct.
      RunError: the run failed.
      Stopped: a signal arrived; the state is saved.
    """
    run = Run(config, folder)
    run.check()
    with contextlib.ExitStack() as stack:
        # Process 0 alone locks the run directory and writes to it.
        writes = jax.process_index() == 0

        def open_folder():
            stack.enter_context(workdir.lock(folder))
            if workdir.check_run(folder, run.identity):
                return workdir.ended(folder) or "stopped"
            return None

        # How the run there has ended; None where there is none.
        ended = peers.from_first("folder", open_folder)
        if ended == "finished":
            if writes:
                say(
                    f"{folder} is finished ({run.total_steps} steps); --evaluate shows "
                    "its numbers again"
                )
            return {}
        store = Store(folder / "checkpoints")
        stack.callback(store.close)
        if ended is None:
            notes = Notes(**run.identity)
            state = store.begin(run.initial(), notes._asdict())
            start = Checkpoint(0, state, notes)
            if writes:
                workdir.describe(folder, run.identity, run.data.facts)
        else:
            start = _restore(run, store)
        output = Output(run, writes, start)
        begins = f"resuming at step {start.step} of" if start.step else "training"
        output.say(
            f"{title(config)}, seed {config.seed}: {begins} {run.total_steps} steps on "
            f"{jax.device_count()} x {jax.devices()[0].platform}, in {folder}"
        )
        if writes and ended:
            # What stopped the run before may be mended.
            (folder / workdir.DIVERGED).unlink(missing_ok=True)
            output.say(*provenance.record_resume(folder, run.identity, start.step))
        # Both write config.json. What this one writes is based on what it reads here.
        stack.enter_context(kernels.kept(folder, writes=writes))
        try:
            best = Trainer(run, store, start, output).train()
        except Diverged as e:
            if writes:
                where = {"metric": e.metric, "step": e.step}
                json_files.write(folder / workdir.DIVERGED, where)
            raise
        # The lock is held until results.json is written.
        numbers = output.finish(best)
        store.follow(best)
        return numbers


def _restore(run: Run, store: Store) -> Checkpoint:
    """Return the newest checkpoint of a run.

    Args:
      run: the run.
      store: its checkpoints.

    Raises:
      UserError: it does not go with this run.
    """
    last = store.folder / "last"
    saved = restore(last, run.shapes(), resumes=True)
    peers.agree("checkpoint", {"the step of the checkpoint": saved and saved.step})
    if saved is None:
        # It would start at step 0 and remove its records.
        raise UserError(
            f"{run.folder} holds a run, but {last} has no checkpoint: "
            f"put it back, or remove {run.folder} to start again"
        )
    path = last / str(saved.step)
    run_config.check_checkpoint(path, saved.notes, run.identity)
    # Earlier commits noted more.
    noted = Notes(*map(saved.notes.get, Notes._fields))._replace(**run.identity)
    is_there = store.follow(noted.best)
    if noted.best and not is_there:
        best = store.folder / "best" / str(noted.best["step"])
        say(
            f"{best}, which {path} names, is gone; the best checkpoint is that of the "
            "evaluations from here on",
            sys.stderr,
        )
        noted = noted._replace(best=None)
    return saved._replace(notes=noted)


class Trainer:
    """Trains a run to its last step."""

    def __init__(self, run: Run, store: Store, start: Checkpoint, output: Output):
        """Start where a checkpoint says.

        Args:
          run: the run.
          store: its checkpoints.
          start: where it starts.
          output: where its numbers go.
        """
        self._run, self._store, self._output = run, store, output
        self._placement = run.placement
        self._signals = Signals()
        self._step, self._notes = start.step, start.notes
        self._state = run.placement.place(start.state)
        self._best = start.notes.best
        self._meter = Meter(run.placement.read, start.notes.meter)
        self._log_every = run.config.log_every or run.steps_per_epoch
        self._save_every = run.config.save_every or run.steps_per_epoch

    def train(self) -> dict[str, Any] | None:
        """Take all steps and run all evaluations.

        Returns:
          The best evaluation, see `Notes`.

        Raises:
          Diverged: a number is not finite.
          Stopped: a signal arrived; the state is saved.
        """
        with self._signals:
            # What was interrupted after the checkpoint.
            self._evaluate_due(self._notes.due)
            with self._run.batches(self._step) as batches:
                self._take_steps(batches)
            self._store.wait()
            if self._signals.caught:
                raise Stopped(self._signals.caught, self._step)

        # All is saved, so that a signal may end the evaluations anywhere. Their record
        # comes last, so that the last record of a finished run has them.
        at_end = self._run.evals.at_end
        if at_end:
            names = ", ".join(at_end)
            self._output.say(f"trained and saved; evaluations at the end: {names}")
        self._evaluate(at_end)
        return self._best

    def _take_steps(self, batches: Stream) -> None:
        """Train to the last step."""
        run, total = self._run, self._run.total_steps
        compiled = self._placement.compile(run.step())
        # Calls of the compiled step never cross a point where something is due. They
        # start on the grid of steps_per_call, so that a resumed run makes the same
        # calls.
        intervals = {run.config.steps_per_call, self._log_every, self._save_every}
        intervals |= set(run.evals.every.values())
        while self._step < total:
            # Steps, up to the next point where something is due.
            n = min(every - self._step % every for every in intervals)
            n = min(n, total - self._step)
            batch = self._placement.batch(batches.take(n))
            # The first call is traced here, and says what its recurrences run as.
            with watched() as seen:
                self._state, metrics = compiled(self._state, batch)
            self._step += n
            self._output.compiled(self._step, seen)

            # Log. This waits for the call before the newest AHEAD.
            self._meter.add(self._step, metrics, self._is_due(self._log_every))
            self._log(keep=AHEAD)
            signum = self._signals.agreed()

            every = run.evals.every
            names = [name for name in every if self._is_due(every[name])]
            if signum or self._is_due(self._save_every):
                self._save("last", names)
            if signum:
                self._store.wait()
                raise Stopped(signum, self._step)
            self._evaluate_due(names)

    def _is_due(self, every: int) -> bool:
        return self._step % every == 0 or self._step == self._run.total_steps

    def _log(self, keep: int = 0) -> None:
        """Record the training metrics of all calls but the newest `keep`."""
        for step, means in self._meter.drain(keep):
            values = {f"train/{name}": mean for name, mean in means.items()}
            self._output.record(step, values, important=False)

    def _evaluate(self, names: Sequence[str]) -> dict[str, float]:
        """Run evaluations and record them. Raise Diverged if they are not finite."""
        vars = self._placement.vars(self._state).vars
        evaluations = self._run.evaluate(vars, names)
        found = numbers_of(evaluations)
        if found:
            self._output.record(self._step, found, important=True)
        check_finite(found, self._step)
        self._output.evaluated(evaluations.values())
        return found

    def _evaluate_due(self, names: Sequence[str]) -> None:
        """Do the evaluations that are due at this step, and save the best state."""
        if not names:
            return
        # Records stay in the order of the steps.
        self._log()
        found = self._evaluate(names)
        metric = self._run.config.best.metric
        if metric in found and self._is_best(found[metric]):
            value = found[metric]
            self._best = {"metric": metric, "value": value, "step": self._step}
            self._save("best", ())

    def _is_best(self, value: float) -> bool:
        """Whether a value of `best.metric` is the best one so far."""
        if self._best is None:
            return True
        before = self._best["value"]
        return value < before if self._run.config.best.mode == "min" else value > before

    def _save(self, name: str, due: Sequence[str]) -> None:
        """Save the state.

        Args:
          name: as the "best" or as the "last" checkpoint.
          due: names of the evaluations that are left to do at this step.
        """
        self._log()
        # The loss of the step that made them infinite may have been finite.
        if not _all_finite(self._state):
            what = "the state (parameters and moments)"
            raise Diverged(what, "not finite", self._step)
        notes = self._notes._replace(
            best=self._best,
            due=due,
            meter=self._meter.state(),
            records=self._output.flush(),
        )
        on_host = self._placement.read(self._state)
        self._store.save(name, self._step, on_host, notes._asdict())


@jax.jit
def _all_finite(state) -> jax.Array:
    return jnp.array([jnp.isfinite(x).all() for x in jax.tree.leaves(state)]).all()
