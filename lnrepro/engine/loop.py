"""The steps of a run, and what is due after them: log, save, evaluate."""

import contextlib
import pathlib
import signal
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.engine import experiment, provenance
from lnrepro.engine.artifacts import Artifacts
from lnrepro.engine.checkpoint import Checkpoint, Store
from lnrepro.engine.experiment import Metric
from lnrepro.engine.metrics import Meter, check_finite
from lnrepro.engine.run import Results, Run, numbers_of
from lnrepro.engine.signals import Interrupted, Signals
from lnrepro.engine.sink import Sink
from lnrepro.engine.train_step import close, take
from lnrepro.errors import Diverged, RunError, Stopped

# Calls of the compiled step that are dispatched ahead of the devices. With more of
# them, the answer to a signal takes longer. With fewer, the devices wait for the host.
AHEAD = 4


class Loop:
    """Trains a run to its last step."""

    def __init__(self, run: Run, store: Store, start: Checkpoint, sink: Sink):
        """Start where a checkpoint says.

        Args:
          run: the run.
          store: its checkpoints.
          start: where it starts.
          sink: where its numbers go.
        """
        self._run, self._store, self._sink = run, store, sink
        self._placement = run.placement
        self._signals = Signals()
        self._step, self._notes = start.step, start.notes
        self._state = run.placement.place(start.state)
        self._best, self._numbers = start.notes.best, dict(start.notes.numbers)
        self._written = Artifacts(list(map(pathlib.Path, start.notes.artifacts)), {})
        self._meter = Meter(run.placement.read, start.notes.meter)
        self._log_every = run.config.log_every or run.steps_per_epoch
        self._save_every = run.config.save_every or run.steps_per_epoch

    def run(self) -> Results:
        """Take all steps and run all evaluations.

        Returns:
          The last value of every number, and what was written.

        Raises:
          Diverged: a number is not finite.
          Stopped: a signal arrived; the state is saved.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._signals)
            # What was interrupted after the checkpoint.
            self._evaluate_and_stop(self._notes.due, 0, is_saved=True)
            batches = self._run.experiment.batches(self._step)
            stack.callback(close, batches)
            self._take_steps(batches)
            self._store.wait()
            if self._signals.caught:
                raise Stopped(self._signals.caught[0], self._step)

        # All is saved, so that a signal may end the evaluations anywhere. Their record
        # comes last, so that the last record of a finished run has them.
        at_end = self._run.evals.at_end
        if at_end:
            names = ", ".join(at_end)
            self._sink.say(f"trained and saved; evaluations at the end: {names}")
        self._evaluate(at_end, contextlib.nullcontext())
        if self._best:
            metric, value = self._best["metric"], self._best["value"]
            self._numbers[f"best {metric}"] = value
            self._numbers["best step"] = self._best["step"]
        return Results(self._numbers, self._written)

    def _take_steps(self, batches: Any) -> None:
        """Train to the last step."""
        run, total = self._run, self._run.total_steps
        compiled = self._placement.compile(run.step())
        # Calls of the compiled step never cross a point where something is due. They
        # start on the grid of steps_per_call, so that a resumed run makes the same
        # calls.
        intervals = {run.config.steps_per_call, self._log_every, self._save_every}
        intervals |= set(run.evals.every.values())
        is_first = True
        while self._step < total:
            # Steps, up to the next point where something is due.
            n = min(every - self._step % every for every in intervals)
            n = min(n, total - self._step)
            batch = self._placement.batch(take(batches, n))
            if is_first:
                # It is traced here, and says what its recurrences run as.
                with provenance.watched_kernels() as seen:
                    self._state, metrics = compiled(self._state, batch)
                self._sink.compiled(self._step + n, seen)
                measured = {f"train/{name}": Metric() for name in metrics}
                experiment.check_names(run.config, {**run.metrics, **measured})
                is_first = False
            else:
                self._state, metrics = compiled(self._state, batch)
            self._step += n

            # Log. This waits for the call before the newest AHEAD.
            self._meter.add(self._step, metrics, self._is_due(self._log_every))
            self._log(keep=AHEAD)
            signum = self._signals.agreed()

            every = run.evals.every
            names = [name for name in every if self._is_due(every[name])]
            is_saved = bool(signum) or self._is_due(self._save_every)
            if is_saved:
                self._save("last", names)
            self._evaluate_and_stop(names, signum, is_saved)

    def _is_due(self, every: int) -> bool:
        return self._step % every == 0 or self._step == self._run.total_steps

    def _record(self, step: int, values: dict[str, float], important: bool) -> None:
        self._numbers.update(values)
        self._sink.record(step, values, important)

    def _log(self, keep: int = 0) -> None:
        """Record the training metrics of all calls but the newest `keep`."""
        for step, means in self._meter.drain(keep):
            values = {f"train/{name}": mean for name, mean in means.items()}
            self._record(step, values, important=False)

    def _evaluate(self, names: Sequence[str], interrupting: Any) -> dict[str, float]:
        """Run evaluations and record them. Raise Diverged if they are not finite."""
        self._sink.check_held()
        with interrupting:
            vars = self._placement.vars(self._state).vars
            evaluations = self._run.evaluate(vars, names)
        found, files = numbers_of(evaluations), self._run.write(evaluations)
        if found:
            self._record(self._step, found, important=True)
        check_finite(found, self._step)
        self._sink.pictures(files.paths, self._step)
        self._written.add(files)
        return found

    def _evaluate_and_stop(
        self, due: Sequence[str], signum: int, is_saved: bool
    ) -> None:
        """Do the evaluations that are due after a call, and stop for a signal.

        Args:
          due: names of the evaluations. Where a signal comes before their end, they are
            done when the run goes on.
          signum: the signal to stop for, or 0.
          is_saved: whether the state is saved, with what is due.
        """
        if due and not signum:
            # Records stay in the order of the steps.
            self._log()
            try:
                found = self._evaluate(due, self._signals.interrupting())
            except Interrupted:
                caught = self._signals.caught
                signum = caught[0] if caught else signal.SIGTERM
                if not is_saved:
                    self._save("last", due)
            else:
                if self._is_best(found, due):
                    metric = self._run.config.best.metric
                    value = found[metric]
                    self._best = {"metric": metric, "value": value, "step": self._step}
                    self._save("best", ())
        if signum:
            self._store.wait()
            raise Stopped(signum, self._step)

    def _is_best(self, found: dict[str, float], names: Sequence[str]) -> bool:
        """Return whether evaluations give the best value of `best.metric` so far.

        Args:
          found: the numbers.
          names: the evaluations that gave them.

        Raises:
          UserError: the number of this name is not measured.
        """
        metric = self._run.config.best.metric
        if not metric or metric.partition("/")[0] not in names:
            return False
        experiment.check_measured("config.best.metric", metric, list(found))
        if self._best is None:
            return True
        if self._run.config.best.mode == "min":
            return found[metric] < self._best["value"]
        return found[metric] > self._best["value"]

    def _save(self, name: str, due: Sequence[str]) -> None:
        """Save the state.

        Args:
          name: as the "best" or as the "last" checkpoint.
          due: names of the evaluations that are left to do at this step.
        """
        self._sink.check_held()
        self._log()
        # The loss of the step that made them infinite may have been finite.
        if not _all_finite(self._state):
            what = "the parameters or the optimiser's moments are not finite"
            step = self._step
            raise Diverged(f"{what} after step {step}", "parameters", step)
        notes = self._notes._replace(
            best=self._best,
            due=due,
            meter=self._meter.state(),
            numbers=dict(self._numbers),
            artifacts=[str(path) for path in self._written.paths],
            records=self._sink.flush(),
        )
        on_host = self._placement.read(self._state)
        self._store.save(name, self._step, on_host, notes._asdict())
        try:
            self._sink.check_records()
        except RunError:
            self._store.wait()
            raise


@jax.jit
def _all_finite(state) -> jax.Array:
    numbers = [
        x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)
    ]
    return jnp.array([jnp.isfinite(x).all() for x in numbers]).all()
