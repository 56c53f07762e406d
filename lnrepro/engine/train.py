"""Training and evaluation of a config in its run directory.

`train` is told in the order of execution: open, restore, steps, finish. Each call of
the compiled step is followed by what is due then: log, evaluate, save. A run that is
interrupted and resumed ends with the same bits as one that is not.
"""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from signal import SIGTERM
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.config import fields
from lnrepro.engine import (
    artifacts,
    experiment,
    json_files,
    peers,
    provenance,
    report,
    run_config,
    workdir,
)
from lnrepro.engine.artifacts import Artifacts
from lnrepro.engine.checkpoint import Checkpoint, Store
from lnrepro.engine.experiment import Evaluation
from lnrepro.engine.metrics import Log, Meter, check_finite, write_csv
from lnrepro.engine.progress import Progress, Row, table
from lnrepro.engine.run import Results, Run, numbers_of
from lnrepro.engine.run_config import as_json
from lnrepro.engine.signals import Interrupted, Signals, Stopped
from lnrepro.engine.train_step import close, take
from lnrepro.engine.workdir import Lock
from lnrepro.errors import Diverged, UserError

# Calls of the compiled step that are dispatched ahead of the devices. With more of
# them, the answer to a signal takes longer. With fewer, the devices wait for the host.
AHEAD = 4


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
    with _none_named(config):
        run = Run(config, folder)
        fingerprint, facts = _check(run)
    before = workdir.read_about(folder) or {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(workdir.storage_errors(folder))
        # Process 0 alone locks the run directory and writes to it.
        lock = None

        def open_folder():
            nonlocal lock
            lock = stack.enter_context(workdir.lock(folder))
            return workdir.open_run(folder, run.config, fingerprint, facts, run.fixed)

        opened = peers.from_first("folder", open_folder)
        if opened == "finished":
            if lock:
                if before["config"]["curves"] != as_json(run.config)["curves"]:
                    drawn = artifacts.draw_curves(folder, run.config.to_dict())
                    print("\n".join(drawn.lines()))
                print(
                    f"{folder} is finished ({run.total_steps} steps); --evaluate shows "
                    "its numbers again"
                )
            return {}
        store = Store(folder / "checkpoints")
        stack.callback(store.close)
        start = _restore(run, store, "last", fingerprint)
        progress = Progress(run.total_steps, not lock, run.config.best.metric)
        progress.say(_header(run, start.step))
        records = None
        if lock:
            written = start.notes.get("records", 0)
            records = Log(folder, run.config.data.name, start.step, written)
        if records and not start.step:
            records.events.config(run.config.to_dict())
        if lock and opened == "resumed":
            for line in provenance.record_resume(folder, start.step):
                progress.say(line)
        try:
            results = _take_steps(run, store, start, lock, records, progress)
        except Diverged as e:
            if lock:
                workdir.note_diverged(folder, e)
            raise
        store.close()
        # The lock is held until results.json is written.
        if lock:
            lock.check_held()
            _write_results(run, results)
        return results.numbers


@contextlib.contextmanager
def _none_named(config: ConfigDict) -> Iterator[None]:
    """Turn an error about None in place of a number into a UserError."""
    try:
        yield
    except TypeError as e:
        if "NoneType" not in str(e):
            raise
        empty = [name for name, value in fields(config).items() if value is None]
        raise UserError(
            f"one of these fields is None where a number is needed "
            f"({', '.join(empty)}): {' '.join(str(e).split())}"
        ) from e


def _check(run: Run) -> tuple[str, Mapping[str, Any]]:
    """Check a run and its data, before anything is written.

    Returns:
      The fingerprint and the facts of the data set.

    Raises:
      UserError: the run cannot be trained.
    """
    fingerprint, facts = _data_identity(run.config.data)
    experiment.check_data_sizes(run.config)
    experiment.check_names(run.config, run.experiment)
    if run.experiment.check:
        run.experiment.check()
    # Devices that do not fit and a model that cannot be built must not leave a
    # config.json.
    _ = run.placement, run.shapes()
    peers.agree("data", {"the data": fingerprint})
    return fingerprint, facts


def _data_identity(spec: ConfigDict) -> tuple[str, Mapping[str, Any]]:
    """Return the fingerprint and the facts of the data set of `config.data`."""
    from lnrepro import data

    prepared = data.open_set(spec.name, spec.get("dir"))
    return prepared.fingerprint, prepared.facts


def _restore(run: Run, store: Store, name: str, fingerprint: str) -> Checkpoint:
    """Return the newest checkpoint of a run, or its start, which has step 0.

    Args:
      run: the run.
      store: its checkpoints.
      name: "last" or "best".
      fingerprint: identity of the data.

    Raises:
      UserError: there is a checkpoint that does not go with this run.
    """
    start = run.initial()
    notes = run_config.identity(run.config, fingerprint)
    saved = store.restore(name, start)
    peers.agree(
        f"checkpoint {name}", {"the step of the checkpoint": saved and saved.step}
    )
    if saved is None:
        return Checkpoint(0, start, {"best": None, "numbers": {}, **notes})
    path = store.folder / name / str(saved.step)
    run_config.check_checkpoint(path, saved.notes, notes, run.fixed)
    return saved._replace(notes=saved.notes | notes)


def _header(run: Run, step: int) -> str:
    """Return the line that is printed when training starts after `step` steps."""
    start = f"resuming at step {step} of" if step else "training"
    return (
        f"{run.title} seed={run.config.seed}: {start} {run.total_steps} steps on "
        f"{jax.device_count()} x {jax.devices()[0].platform}, in {run.folder}"
    )


def _take_steps(
    run: Run,
    store: Store,
    start: Checkpoint,
    lock: Lock | None,
    records: Log | None,
    progress: Progress,
) -> Results:
    """Train to the last step, and run the evaluations at the end.

    Args:
      run: the run.
      store: its checkpoints.
      start: where it starts. What its notes say goes on: "best", the best evaluation;
        "numbers", the last value of everything that was logged; "artifacts", the paths
        that were written; "meter", the metrics since the last record; "due", the
        evaluations that are left to do.
      lock: the lock of the run directory; None in all processes but the first.
      records: the records; None in all processes but the first.
      progress: what is shown.

    Returns:
      The last value of every number, and the paths of all artifacts.
    """
    step, total, placement = start.step, run.total_steps, run.placement
    noted = False
    best, numbers = start.notes["best"], dict(start.notes["numbers"])
    written = Artifacts(list(map(pathlib.Path, start.notes.get("artifacts", ()))), {})
    meter = Meter(placement.read, start.notes.get("meter"))
    state = placement.place(start.state)
    compiled = placement.compile(run.step())
    log_every = run.config.log_every or run.steps_per_epoch
    save_every = run.config.save_every or run.steps_per_epoch
    # Calls of the compiled step never cross a point where something is due. They start
    # on the grid of steps_per_call, so that a resumed run makes the same calls.
    intervals = {run.config.steps_per_call, log_every, save_every}
    intervals |= set(run.evals.every.values())

    def is_due(every: int) -> bool:
        return step % every == 0 or step == total

    def check_lock() -> None:
        if lock:
            lock.check_held()

    def record(at: int, values: dict[str, float], important: bool) -> None:
        numbers.update(values)
        if records:
            records.write(at, at / run.steps_per_epoch, values)
        progress.metrics(at, values, important)

    def log(keep: int = 0) -> None:
        """Record the training metrics of all calls but the newest `keep`."""
        for at, means in meter.drain(keep):
            values = {f"train/{name}": mean for name, mean in means.items()}
            record(at, values, important=False)

    def evaluate(names: Sequence[str], interrupting: Any) -> dict[str, float]:
        """Run evaluations and record them. Raise Diverged if they are not finite."""
        check_lock()
        with interrupting:
            evaluations = run.evaluate(placement.vars(state).vars, names)
        found, files = numbers_of(evaluations), run.write(evaluations)
        if found:
            record(step, found, important=True)
        check_finite(found, step)
        if records:
            for path in files.paths:
                records.events.picture(path, step)
        written.add(files)
        return found

    def save(kinds: list[str], due: list[str]) -> None:
        """Save the state, as the best or as the last checkpoint or both.

        Args:
          kinds: which of them.
          due: names of the evaluations that are left to do at this step.
        """
        nonlocal noted
        check_lock()
        log()
        # The loss of the step that made them infinite may have been finite.
        if not _all_finite(state):
            what = "the parameters or the optimiser's moments are not finite"
            raise Diverged(f"{what} after step {step}", "parameters", step)
        notes = start.notes | {
            "best": best,
            "due": due,
            "meter": meter.state(),
            "numbers": dict(numbers),
            "artifacts": [str(path) for path in written.paths],
        }
        if records:
            records.flush()
            notes["records"] = records.records
        on_host = placement.read(state)
        for kind in kinds:
            store.save(kind, step, on_host, notes)
        # The first save is waited for, so that the note is right even if the run is
        # killed now.
        if "last" in kinds and not noted:
            store.wait()
            noted = True
            if lock:
                workdir.note_saved(run.folder, step)

    signals = Signals()

    def evaluate_and_save(due: list[str], signal: int) -> None:
        """Do what is due after a call, and stop for a signal.

        Args:
          due: names of the evaluations. Where a signal comes before their end, they are
            noted in the checkpoint, and are done when the run goes on.
          signal: the signal to stop for, or 0.
        """
        nonlocal best
        kinds = []
        if due and not signal:
            # Records stay in the order of the steps.
            log()
            try:
                found = evaluate(due, signals.interrupting())
            except Interrupted:
                signal = signals.caught[0] if signals.caught else SIGTERM
            else:
                if _is_best(run, best, found, due):
                    metric = run.config.best.metric
                    best = {"metric": metric, "value": found[metric], "step": step}
                    kinds.append("best")
                due = []
        if signal or is_due(save_every):
            kinds.append("last")
        if kinds:
            save(kinds, due)
        if signal:
            store.wait()
            raise Stopped(signal, step)

    with contextlib.ExitStack() as stack:
        stack.enter_context(signals)
        # What a signal has interrupted.
        if due := start.notes.get("due"):
            evaluate_and_save(due, 0)
        batches = run.experiment.batches(step)
        stack.callback(close, batches)
        calls = 0
        while step < total:
            # Steps, up to the next point where something is due.
            n = min(every - step % every for every in intervals)
            batch = placement.batch(take(batches, min(n, total - step)))
            if calls:
                state, metrics = compiled(state, batch)
            else:
                state, metrics = _first_call(
                    run, progress, bool(records), compiled, state, batch
                )
                experiment.check_train_metrics(run.config.curves, metrics)
            step, calls = min(step + n, total), calls + 1
            progress.step(step)

            # Log. This waits for the call before the newest AHEAD.
            meter.add(step, metrics, is_due(log_every))
            log(keep=AHEAD)
            signal = signals.agreed()

            # Evaluate and save.
            names = [name for name, every in run.evals.every.items() if is_due(every)]
            evaluate_and_save(names, signal)
        log()
        store.wait()
        if signals.caught:
            raise Stopped(signals.caught[0], step)

    # Finish. All is saved, so that a signal may end the evaluations anywhere. Their
    # record comes last, so that the last record of a finished run has them.
    if run.evals.at_end:
        names = ", ".join(run.evals.at_end)
        progress.say(f"trained and saved; evaluations at the end: {names}")
    evaluate(run.evals.at_end, contextlib.nullcontext())
    if records:
        records.close()
    if best:
        numbers |= {f"best {best['metric']}": best["value"], "best step": best["step"]}
    return Results(numbers, written)


def _first_call(run, progress, is_first, compiled, state, batch):
    """Call the compiled step, and say and record what its recurrences run as."""
    with provenance.watched_kernels() as seen:
        results = compiled(state, batch)
    for line in provenance.record_kernels(run.folder, seen) if is_first else ():
        progress.say(line)
    return results


def _is_best(
    run: Run, best: dict[str, Any] | None, found: dict[str, float], names: list[str]
) -> bool:
    """Return whether evaluations give the best value of `config.best.metric` so far.

    Args:
      run: the run.
      best: the best evaluation before, as a checkpoint notes it.
      found: the numbers.
      names: the evaluations that gave them.

    Raises:
      UserError: the number of this name is not measured.
    """
    metric = run.config.best.metric
    if not metric or metric.partition("/")[0] not in names:
        return False
    experiment.check_measured("config.best.metric", metric, list(found))
    if best is None:
        return True
    if run.config.best.mode == "min":
        return found[metric] < best["value"]
    return found[metric] > best["value"]


@jax.jit
def _all_finite(state) -> jax.Array:
    numbers = [
        x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)
    ]
    return jnp.array([jnp.isfinite(x).all() for x in numbers]).all()


def _write_results(run: Run, results: Results) -> None:
    """Write metrics.csv, report.html and results.json, and print the table."""
    config, folder = run.config, run.folder
    write_csv(folder)
    shown = artifacts.draw_curves(folder, config.to_dict())
    shown.add(results.artifacts)
    results = results._replace(artifacts=shown)
    rows = _rows(run, results.numbers)
    page = report.write(folder, rows, f"finished, {run.total_steps} steps")
    json_files.write(folder / "results.json", results.to_json())
    lines = [
        f"numbers    {folder / 'metrics.jsonl'} (metrics.csv)",
        f"page       {page}",
        *shown.lines(),
    ]
    table(f"{run.title}, {run.total_steps} steps", rows, lines)


def _rows(run: Run, numbers: dict[str, float]) -> list[Row]:
    """Return the rows of the table of a run's numbers, the best ones first."""
    rows = []
    for name, value in numbers.items():
        unit = "steps" if name == "best step" else run.experiment.unit(name)
        rows.append(Row(name, value, unit))
    return sorted(rows, key=lambda row: not row.name.startswith("best "))


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
    with _none_named(config):
        run = Run(config, folder)
    fingerprint, _ = _data_identity(run.config.data)
    if run.experiment.check:
        run.experiment.check()
    if not workdir.check_run(folder, run.config, fingerprint, run.fixed):
        raise UserError(
            f"--evaluate: {folder} holds no run; train it first or give its --workdir"
        )
    with contextlib.closing(Store(folder / "checkpoints", writing=False)) as store:
        saved = _restore(run, store, "best", fingerprint)
        if not saved.step:
            saved = _restore(run, store, "last", fingerprint)
    if not saved.step:
        raise UserError(
            f"--evaluate: {folder} has no checkpoint; train it, or put checkpoints/ "
            "back"
        )
    vars = run.placement.vars(run.placement.place(saved.state)).vars
    names = (*run.evals.every, *run.evals.at_end)
    evaluations = run.evaluate(vars, names)
    numbers = numbers_of(evaluations)
    if jax.process_index() == 0:
        lines = _write_evaluation(run, saved.step, evaluations)
        table(f"{folder} at step {saved.step}", _rows(run, numbers), lines)
    check_finite(numbers, saved.step)
    return numbers


def _write_evaluation(
    run: Run, step: int, evaluations: Mapping[str, Evaluation]
) -> list[str]:
    """Write the pictures and evaluation.json; return lines about them.

    The folder may be read-only, and the numbers are shown all the same.
    """
    try:
        files = run.write(evaluations)
        results = Results(numbers_of(evaluations), files)
        record = {"step": step, **results.to_json()}
        json_files.write(run.folder / "evaluation.json", record)
    except OSError as e:
        return [f"not written: {e.filename or run.folder}: {e.strerror or e}"]
    return files.lines()
