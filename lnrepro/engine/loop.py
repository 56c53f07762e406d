"""The training loop.

Each pass takes optimiser steps, then logs, evaluates and saves what is due, in this
order. A run that is interrupted and resumed ends with the same bits as one that is not.
"""

import contextlib
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.engine import experiment, peers, provenance, run_config, seeds, signals
from lnrepro.engine.checkpoint import Checkpoint
from lnrepro.engine.metrics import Log, Meter, check_finite, is_better
from lnrepro.engine.progress import Progress
from lnrepro.engine.run import Results, Run
from lnrepro.engine.train_step import Batches, close, take
from lnrepro.errors import Diverged, UserError


class Loop:
    """The training loop of a run, from its newest checkpoint to its last step.

    Attributes:
      run: the run.
      step: number of steps taken.
      state: the state on the devices.
      best: {"metric", "value", "step"} of the best evaluation, or None.
      numbers: the last value of everything that was logged.
      paths: the artifacts that were written, as the keys of a dict.
      meter: sums of the training metrics since the last record.
    """

    def __init__(
        self,
        run: Run,
        assert_lock_held: Callable[[], None],
        fingerprint: str,
        is_new: bool,
    ):
        """Restore the newest checkpoint and compile the step.

        Args:
          run: the run.
          assert_lock_held: raises RunError where the run directory is not ours any
            more. It is called before anything is written.
          fingerprint: identity of the data.
          is_new: whether the run is started for the first time.

        Raises:
          UserError: what is there does not go with this run.
        """
        config = run.config
        self.run = run
        self.assert_lock_held = assert_lock_held
        self.fingerprint = fingerprint
        state = run.initial()
        with peers.together("restore"):
            saved = run.restore("last", state, fingerprint)
            if saved:
                _check_devices(run, saved)
        check_same_step(saved)
        notes = saved.notes if saved else {}
        self.step = saved.step if saved else 0
        self.state = run.placement.place(saved.state if saved else state)
        self.best = notes.get("best")
        self.numbers = dict(notes.get("numbers", {}))
        self.paths = dict.fromkeys(map(pathlib.Path, notes.get("artifacts", ())))
        self.meter = Meter(notes.get("meter"))
        self.log_every = config.log_every or run.steps_per_epoch
        self.save_every = config.save_every or run.steps_per_epoch
        # Calls of the compiled step never cross a point where something is due. They
        # start on the grid of steps_per_call, so that a resumed run makes the same
        # calls.
        self.intervals = {config.steps_per_call, self.log_every, self.save_every}
        self.intervals |= set(run.evals.every.values())
        self.progress = Progress(
            run.total_steps,
            self.step,
            quiet=not run.is_main,
            first=config.best.metric,
        )
        self.progress.say(run.header(self.step))
        self.log_file = None
        with peers.together("records"):
            if run.is_main:
                self.log_file = Log(
                    run.folder,
                    config.data.name,
                    self.step,
                    notes.get("records", 0),
                    notes.get("records_digest"),
                )
        if self.log_file and not self.step:
            self.log_file.describe(config.to_dict(), config.best.metric)
        if run.is_main and not is_new:
            changed = provenance.record_resume(run.folder, self.step)
            if changed:
                self.progress.say(changed)
        self.compiled = run.placement.compile(run.step(), self.state)

    def train(self) -> Results:
        """Train to the last step, then run the evaluations at the end."""
        with contextlib.ExitStack() as stack:
            caught = stack.enter_context(signals.collect())
            stack.callback(self.progress.close)
            batches = self.run.batches(self.step)
            stack.callback(close, batches)
            while self.step < self.run.total_steps:
                self.take_steps(batches)
                self.log(wait=False)
                signal = caught.agreed(self.step, self.log_every)
                is_best = self.evaluate()
                if signal or is_best or self.is_due(self.save_every):
                    is_last = bool(signal) or self.is_due(self.save_every)
                    self.save(is_best, is_last)
                if signal:
                    self.run.store.wait()
                    raise signals.Stopped(signal, self.step)
            return self.finish(caught)

    def is_due(self, every: int) -> bool:
        """Whether what is done every so many steps, and at the end, is due now."""
        return self.step % every == 0 or self.step == self.run.total_steps

    def take_steps(self, batches: Batches) -> None:
        """Take the steps up to the next point where something is due."""
        # The nearest point of all intervals.
        n = min(every - self.step % every for every in self.intervals)
        n = min(n, self.run.total_steps - self.step)
        batch = self.run.placement.batch(take(batches, n))
        self.state, metrics = self.compiled(self.state, batch)
        if not self.numbers:
            self.check_curves(metrics)
        self.meter.add(self.step, metrics)
        self.step += n
        self.progress.step(self.step)
        if self.is_due(self.log_every):
            self.meter.cut(self.step)

    def check_curves(self, metrics: Iterable[str]) -> None:
        """Check the names of training metrics in `config.curves`, at the first step."""
        measured = [f"train/{name}" for name in metrics]
        for name in experiment.metrics_of(self.run.config.curves):
            plain = name.rpartition("/seed")[0] if seeds.is_of_one_seed(name) else name
            if name.startswith("train/"):
                experiment.check_measured("config.curves", plain, measured)

    def log(self, wait: bool) -> None:
        """Record the training metrics that have arrived; with `wait`, all of them."""
        read = self.run.placement.metrics
        for step, means in self.meter.drain(read, wait):
            values = {f"train/{name}": value for name, value in means.items()}
            self.record(step, seeds.spread(values, self.run.seeds), important=False)

    def record(self, step: int, values: dict[str, float], important: bool) -> None:
        """Write one record and show it."""
        self.numbers.update(values)
        if self.log_file:
            self.log_file.write(step, step / self.run.steps_per_epoch, values)
        self.progress.metrics(step, seeds.without_single(values), important)

    def evaluate(self) -> bool:
        """Run the evaluations that are due; return whether the state is the best."""
        every = self.run.evals.every
        # An evaluation that is due at the last step runs once, whatever its interval.
        names = [name for name, steps in every.items() if self.is_due(steps)]
        if not names:
            return False
        # Records stay in the order of the steps.
        self.log(wait=True)
        self.assert_lock_held()
        numbers, paths = self.run.evaluate(self.vars(), names)
        self.record(self.step, numbers, important=True)
        check_finite(numbers, self.step)
        if self.log_file:
            self.log_file.pictures(self.step, paths)
        self.paths |= dict.fromkeys(paths)
        return self.update_best(numbers, names)

    def update_best(self, numbers: dict[str, float], names: list[str]) -> bool:
        """Note the best value of `config.best.metric`; return whether this is it."""
        metric, mode = self.run.config.best.metric, self.run.config.best.mode
        if not metric or metric.partition("/")[0] not in names:
            return False
        experiment.check_measured("config.best.metric", metric, list(numbers))
        best_value = self.best["value"] if self.best else None
        if not is_better(numbers[metric], best_value, mode):
            return False
        self.best = {"metric": metric, "value": numbers[metric], "step": self.step}
        return True

    def save(self, is_best: bool, is_last: bool) -> None:
        """Save the state, as the best or as the last checkpoint or both."""
        self.assert_lock_held()
        self.log(wait=True)
        # The loss of the step that made them infinite may have been finite.
        if not _all_finite(self.state):
            what = "the parameters or the optimiser's moments are not finite"
            raise Diverged(f"{what} after step {self.step}", "parameters", self.step)
        notes = {
            "best": self.best,
            "meter": self.meter.state(),
            "numbers": dict(self.numbers),
            "artifacts": [str(path) for path in self.paths],
            **run_config.checkpoint_notes(self.run.config, self.fingerprint),
        }
        if self.log_file:
            self.log_file.flush()
            notes["records"] = self.log_file.records
            notes["records_digest"] = self.log_file.digest
        state = self.run.placement.host(self.state)
        if is_best:
            self.run.store.save("best", self.step, state, notes)
        if is_last:
            self.run.store.save("last", self.step, state, notes)

    def finish(self, caught: signals.CaughtSignals) -> Results:
        """Wait for the checkpoints, and run the evaluations at the end."""
        self.log(wait=True)
        self.run.store.wait()
        self.assert_lock_held()
        names = self.run.evals.at_end
        if names:
            self.progress.say(
                f"trained and saved; evaluations at the end: {', '.join(names)}"
            )
        # It may take hours. All is saved, so that a signal may stop it anywhere.
        with caught.at_once(self.step):
            numbers, paths = self.run.evaluate(self.vars(), names)
        # Their record comes last, so that the last record of a finished run has them.
        self.numbers |= numbers
        if self.log_file:
            if numbers:
                epoch = self.step / self.run.steps_per_epoch
                self.log_file.write(self.step, epoch, numbers)
            check_finite(numbers, self.step)
            self.log_file.pictures(self.step, paths)
            self.log_file.close()
        if self.best:
            self.numbers[f"best {self.best['metric']}"] = self.best["value"]
            self.numbers["best step"] = self.best["step"]
        return Results(self.numbers, list(self.paths | dict.fromkeys(paths)))

    def vars(self) -> Any:
        """Return what the experiment's functions take, as single logical arrays."""
        return self.run.placement.vars(self.state).vars


def check_same_step(saved: Checkpoint | None) -> None:
    """Check that all processes have read the checkpoint of the same step.

    Raises:
      UserError: they have not.
    """
    if jax.process_count() == 1:
        return
    from jax.experimental import multihost_utils

    own = np.array(saved.step if saved else 0)
    steps = multihost_utils.process_allgather(own).tolist()
    if len(set(steps)) > 1:
        raise UserError(
            f"the processes read checkpoints of different steps, {steps}; give all of "
            "them the same --workdir, on a disk that they share"
        )


def _check_devices(run: Run, saved: Checkpoint) -> None:
    """Check that `pmap` goes on with as many devices as before.

    Each device has statistics and noise of its own, so that another number of them
    trains something else.

    Raises:
      UserError: it does not.
    """
    if run.config.placement != "pmap":
        return
    before = saved.notes.get("devices")
    if before is None:
        # Earlier versions noted the devices of the start only.
        before = len(provenance.starts(run.folder)[-1].get("devices", jax.devices()))
    if before != jax.device_count():
        raise UserError(
            f"{run.folder} was trained with config.placement = 'pmap' on {before} "
            f"devices, and there are {jax.device_count()} now: each device has "
            "statistics and noise of its own, so resume with as many devices"
        )


@jax.jit
def _all_finite(state) -> jax.Array:
    numbers = [
        x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)
    ]
    return jnp.array([jnp.isfinite(x).all() for x in numbers]).all()
