"""The training loop.

Each pass takes optimiser steps, then logs, evaluates and saves what is due, in this
order. A run that is interrupted and resumed ends with the same bits as one that is not.
"""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro import optional
from lnrepro.checks import check_ranges
from lnrepro.engine import (
    artifacts,
    distribute,
    experiment,
    json_files,
    memory,
    optim,
    peers,
    provenance,
    report,
    run_config,
    seeds,
    signals,
    workdir,
)
from lnrepro.engine.checkpoint import Checkpoint, Store
from lnrepro.engine.metrics import Log, Meter, check_finite, is_better, write_csv
from lnrepro.engine.progress import Progress, Row, table
from lnrepro.engine.train_step import Batches, State, close, make_init, make_step, take
from lnrepro.errors import Diverged, UserError


class Results(NamedTuple):
    """Numbers of a run, and the artifacts that it wrote."""

    numbers: dict[str, float]
    paths: list[pathlib.Path]


class Run:
    """A run: its config, its directory, and what is made of them."""

    def __init__(self, config: ConfigDict, folder: pathlib.Path, writing: bool = False):
        """Make the experiment, the optimiser and the placement; data is not touched.

        Args:
          config: the config.
          folder: the run directory.
          writing: whether checkpoints will be written.

        Raises:
          UserError: a config that cannot run.
        """
        check_ranges(config)
        self.config = config
        self.folder = folder
        self.total_steps = experiment.total_steps(config)
        self.steps_per_epoch = experiment.steps_per_epoch(config)
        self.evals = experiment.evals(config)
        self.seeds = range(config.seed, config.seed + config.seeds)
        self.experiments = [
            experiment.load(seeds.single(config, seed)) for seed in self.seeds
        ]
        self.placement = distribute.make(
            config.placement, config.batch_size, len(self.seeds), **config.mesh
        )
        self.optimizer = optim.make(config.optimizer, self.total_steps)
        # For each seed, the key of its parameters and the key of its training.
        keys = [jax.random.split(jax.random.key(seed)) for seed in self.seeds]
        self.init_keys, self.step_keys = zip(*keys, strict=True)
        self.store = Store(folder / "checkpoints", writing)
        self.is_main = jax.process_index() == 0

    def initial(self) -> State:
        """Return the state before the first step, as NumPy arrays.

        Raises:
          UserError: it does not fit into the memory.
        """
        init = jax.jit(make_init(self.experiments[0], self.optimizer))
        # This computes shapes alone.
        shapes = init.eval_shape(self.init_keys[0])
        memory.check(len(self.seeds) * memory.size(shapes), self.config.mesh.model)
        # One seed after the other, with one compiled program.
        states = [jax.tree.map(np.array, init(key)) for key in self.init_keys]
        return seeds.stack(states)

    def restore(self, name: str, like: State, fingerprint: str) -> Checkpoint | None:
        """Read the newest checkpoint of this run that can be read.

        Args:
          name: "last" or "best".
          like: a state of the same structure.
          fingerprint: identity of the data.

        Raises:
          UserError: it is a checkpoint of another run.
        """
        saved = self.store.restore(name, like)
        if saved:
            path = self.store.folder / name / str(saved.step)
            run_config.check_checkpoint(path, saved.notes, self.config, fingerprint)
        return saved

    def best_or_last(self, fingerprint: str) -> Checkpoint | None:
        """Return the best checkpoint, or else the last one, and close the store."""
        try:
            like = self.initial()
            best = self.restore("best", like, fingerprint)
            return best or self.restore("last", like, fingerprint)
        finally:
            self.store.close()

    def step(self) -> Callable:
        """Return `make_step` of this run."""
        key = seeds.stack(self.step_keys)
        return make_step(self.experiments[0], self.optimizer, key)

    def batches(self, start_step: int) -> Batches:
        """Return the training batches from `start_step` on, those of all seeds."""
        streams = [exp.batches(start_step) for exp in self.experiments]
        return streams[0] if len(streams) == 1 else seeds.StackedBatches(streams)

    def evaluate(self, vars: Any, names: Sequence[str]) -> Results:
        """Run evaluations and write their artifacts.

        Args:
          vars: what the experiment's functions take, of all seeds.
          names: names of `config.evals`.

        Returns:
          Results whose numbers are called EVAL/NAME. Those of several seeds are as
          `seeds.spread` returns them.
        """
        of_seeds, paths = [], []
        parts = seeds.parts(vars, len(self.seeds))
        for exp, part, seed in zip(self.experiments, parts, self.seeds, strict=True):
            folder = self.folder / "artifacts"
            if len(self.seeds) > 1:
                folder = folder / f"seed{seed}"
            numbers = {}
            for name in names:
                try:
                    evaluation = exp.evaluate(part, name)
                except ModuleNotFoundError as e:
                    # Some evaluations need a package to draw their pictures.
                    if not optional.can_do_without(e):
                        raise
                    continue
                for scalar, value in evaluation.scalars.items():
                    numbers[f"{name}/{scalar}"] = float(value)
                if self.is_main:
                    paths += artifacts.write(folder, evaluation)
            of_seeds.append(numbers)
        if len(of_seeds) == 1:
            return Results(of_seeds[0], paths)
        together = {name: [n[name] for n in of_seeds] for name in of_seeds[0]}
        return Results(seeds.spread(together, self.seeds), paths)

    def header(self, step: int) -> str:
        """Return the line that is printed when training starts after `step` steps."""
        config = self.config
        devices = f"{jax.device_count()} {jax.devices()[0].platform} device"
        if jax.device_count() > 1:
            devices += "s"
        which = f"seed={config.seed}"
        if len(self.seeds) > 1:
            which = f"seeds={self.seeds[0]}..{self.seeds[-1]}"
        start = f"resuming at step {step} of" if step else "training"
        return (
            f"{config.experiment} norm={config.norm} data={config.data.name} {which}: "
            f"{start} {self.total_steps} steps on {devices}, in {self.folder}"
        )


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
        _check_same_step(saved)
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


def _check_same_step(saved: Checkpoint | None) -> None:
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


def train(config: ConfigDict, folder: pathlib.Path) -> dict[str, float]:
    """Train to the last step, from the newest checkpoint if there is one.

    Args:
      config: the config.
      folder: the run directory.

    Returns:
      The last value of every number; {} where the run was finished before.

    Raises:
      UserError: something that the user can correct.
      RunError: the run failed.
      signals.Stopped: SIGTERM or SIGINT arrived; the state is saved.
    """
    with peers.together("data"):
        config = experiment.fill_sizes(config)
        run = Run(config, folder, writing=True)
        fingerprint, facts = _data_identity(config.data)
        experiment.check_data_sizes(config)
        experiment.check_names(
            run.experiments[0], config.evals, config.best.metric, config.curves
        )
    peers.agree("fingerprint", {"the data": fingerprint})
    # A model that cannot be built must not leave a config.json.
    jax.eval_shape(make_init(run.experiments[0], run.optimizer), run.init_keys[0])
    assert_lock_held, is_new, finished = _nothing, False, False
    with contextlib.ExitStack() as stack:
        stack.enter_context(workdir.storage_errors(folder))
        with peers.together("folder"):
            if run.is_main:
                assert_lock_held = stack.enter_context(workdir.lock(folder))
                is_new = workdir.open_run(folder, config, fingerprint, facts)
                finished = workdir.read_results(folder) is not None
        if _of_main(finished):
            if run.is_main:
                print(
                    f"{folder} is finished ({run.total_steps} steps); --evaluate shows "
                    "its numbers again"
                )
            return {}
        if run.is_main:
            # What stopped the run before may be mended.
            (folder / workdir.DIVERGED).unlink(missing_ok=True)
        stack.callback(run.store.close)
        try:
            # The lock is held until results.json is written.
            results = Loop(run, assert_lock_held, fingerprint, is_new).train()
        except Diverged as e:
            if run.is_main:
                workdir.note_diverged(folder, e)
            raise
        run.store.close()
        assert_lock_held()
        if run.is_main:
            _write_results(run, results)
        return results.numbers


def _nothing():
    """Do nothing, in place of the check of a lock that another process holds."""


def _of_main(finished):
    """Return what process 0 says; the others look at a folder that it may change."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        finished = bool(multihost_utils.broadcast_one_to_all(np.array(finished)))
    return finished


def _write_results(run, results):
    """Write metrics.csv, report.html and results.json, and print the table."""
    config, paths = run.config, results.paths
    write_csv(run.folder)
    paths = artifacts.draw_curves(run.folder, config) + paths
    rows = _rows(run, results.numbers)
    about = json.loads((run.folder / "config.json").read_text(encoding="utf-8"))
    page = report.write(run.folder, about, rows, f"finished, {run.total_steps} steps")
    json_files.write(run.folder / "results.json", results.numbers)
    shown, others = report.results_first(about["config"], rows)
    more = f" (with {report.more(others)})" if others else ""
    table(
        f"{config.experiment} norm={config.norm} on {config.data.name}, "
        f"{run.total_steps} steps",
        shown,
        [
            f"numbers    {run.folder / 'metrics.jsonl'} (metrics.csv)",
            f"page       {page}{more}",
            *(f"picture    {path}" for path in paths),
        ],
    )


def _rows(run, numbers):
    """Return the rows of the table of a run's numbers."""
    rows = []
    # Of several seeds, the mean and the deviation are shown.
    for name, value in seeds.without_single(numbers).items():
        spread = seeds.deviation(numbers, name, run.seeds)
        unit = "steps" if name == "best step" else run.experiments[0].unit(name)
        rows.append(Row(name, value, spread, unit))
    return rows


def evaluate(config: ConfigDict, folder: pathlib.Path) -> dict[str, float]:
    """Run all evaluations on the best checkpoint, or on the last one if none is kept.

    Args:
      config: the config.
      folder: the run directory.

    Returns:
      The numbers, which are also in evaluation.json.

    Raises:
      UserError: there is no run, or no checkpoint, or the run has another config.
      Diverged: a number is not finite.
    """
    if not (folder / "config.json").exists():
        raise UserError(
            f"--evaluate: {folder} holds no run; train it first or give its --workdir"
        )
    with peers.together("data"):
        config = experiment.fill_sizes(config)
        fingerprint, _ = _data_identity(config.data)
        workdir.check_run(folder, config, fingerprint)
        run = Run(config, folder)
        saved = run.best_or_last(fingerprint)
    _check_same_step(saved)
    if saved is None:
        raise UserError(f"--evaluate: {folder} has no checkpoint yet")
    vars = run.placement.vars(run.placement.place(saved.state)).vars
    with workdir.storage_errors(folder):
        names = (*run.evals.every, *run.evals.at_end)
        numbers, paths = run.evaluate(vars, names)
        if run.is_main:
            record = {"step": saved.step, **numbers}
            json_files.write(folder / "evaluation.json", record)
    if run.is_main:
        lines = [f"picture    {path}" for path in paths]
        rows = _rows(run, numbers)
        shown, others = report.results_first(config.to_dict(), rows)
        table(f"{folder} at step {saved.step}", shown + others, lines)
    check_finite(numbers, saved.step)
    return numbers


def _data_identity(spec: ConfigDict) -> tuple[str, dict[str, Any]]:
    """Return the fingerprint and the facts of the data set of `config.data`."""
    from lnrepro import data

    prepared = data.open_set(spec.name, spec.get("dir"))
    return prepared.fingerprint, prepared.facts
