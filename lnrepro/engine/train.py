"""Training and evaluation of a config in its run directory.

`train` opens the directory, restores the newest checkpoint, takes the steps (`loop`)
and writes the results (`sink`). A run that is interrupted and resumed ends with the
same bits as one that is not.
"""

import contextlib
import pathlib
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from lnrepro.config import flat
from lnrepro.engine import (
    artifacts,
    experiment,
    json_files,
    kernels,
    peers,
    run_config,
    sink,
    workdir,
)
from lnrepro.engine.checkpoint import Checkpoint, Notes, Store
from lnrepro.engine.experiment import Evaluation
from lnrepro.engine.loaded_run import LoadedRun
from lnrepro.engine.loop import Loop
from lnrepro.engine.metrics import check_finite
from lnrepro.engine.progress import table
from lnrepro.engine.run import Results, Run, numbers_of
from lnrepro.engine.run_config import as_json
from lnrepro.errors import Diverged, UserError, say


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
      Stopped: a signal arrived; the state is saved.
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
            return workdir.open_run(folder, run.config, fingerprint, run.fixed)

        opened = peers.from_first("folder", open_folder)
        if opened == "finished":
            if lock:
                if before["config"]["curves"] != as_json(run.config)["curves"]:
                    drawn = artifacts.draw_curves(folder, run.config.to_dict())
                    say("\n".join(drawn.lines()))
                say(
                    f"{folder} is finished ({run.total_steps} steps); --evaluate shows "
                    "its numbers again"
                )
            return {}
        store = Store(folder / "checkpoints")
        stack.callback(store.close)
        if opened == "new":
            start = _begin(run, store, fingerprint)
            if lock:
                workdir.describe(folder, run.config, fingerprint, facts)
        else:
            start = _restore(run, store, fingerprint)
        shown = sink.Writer(run, lock, start) if lock else sink.Sink()
        stack.enter_context(kernels.kept(folder, writes=bool(lock)))
        shown.say(_header(run, start.step))
        shown.started(start.step, opened == "resumed")
        try:
            results = Loop(run, store, start, shown).run()
        except Diverged as e:
            shown.diverged(e)
            raise
        # The lock is held until results.json is written.
        shown.finish(results)
        store.follow(results.numbers.get("best step"))
        return results.numbers


def autotune(config: ConfigDict, folder: pathlib.Path) -> None:
    """Measure the recurrences of a config on this device; no run is made.

    Args:
      config: the config.
      folder: the run directory, to which nothing is written.

    Raises:
      UserError: something that the user can correct.
    """
    kernels.check_platform()
    with _none_named(config):
        run = Run(config, folder)
        _check(run)
    kernels.autotune(run)


@contextlib.contextmanager
def _none_named(config: ConfigDict) -> Iterator[None]:
    """Turn an error about None in place of a number into a UserError."""
    try:
        yield
    except TypeError as e:
        if "NoneType" not in str(e):
            raise
        empty = [name for name, value in flat(config).items() if value is None]
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
    experiment.with_sizes(run.config, check=True)
    experiment.check_names(run.config, run.metrics)
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


def _begin(run: Run, store: Store, fingerprint: str) -> Checkpoint:
    """Return the checkpoint of step 0, from which a new run starts.

    Args:
      run: the run.
      store: its checkpoints.
      fingerprint: identity of the data.

    Raises:
      UserError: the state cannot be saved or read. Nothing is left of it.
    """
    notes = Notes(**run_config.identity(run.config, fingerprint))
    try:
        start = store.begin(run.initial(), notes._asdict())
    except UserError:
        store.close()
        if jax.process_index() == 0:
            shutil.rmtree(store.folder, ignore_errors=True)
        raise
    return start._replace(notes=notes)


def _restore(run: Run, store: Store, fingerprint: str) -> Checkpoint:
    """Return the newest checkpoint of a run.

    Args:
      run: the run.
      store: its checkpoints.
      fingerprint: identity of the data.

    Raises:
      UserError: it does not go with this run.
    """
    notes = run_config.identity(run.config, fingerprint)
    saved = store.restore("last", run.shapes())
    peers.agree("checkpoint", {"the step of the checkpoint": saved and saved.step})
    if saved is None:
        # It would start at step 0 and remove its records.
        raise UserError(
            f"{run.folder} holds a run, but {store.folder / 'last'} has no checkpoint: "
            f"put it back, or remove {run.folder} to start again"
        )
    path = store.folder / "last" / str(saved.step)
    run_config.check_checkpoint(path, saved.notes, notes, run.fixed)
    noted = Notes(**saved.notes | notes)
    best = noted.best["step"] if noted.best else None
    if not store.follow(best) and best is not None:
        print(
            f"{store.folder / 'best' / str(best)}, which {path} names, is gone; the "
            "best checkpoint is that of the evaluations from here on",
            file=sys.stderr,
        )
        noted = noted._replace(best=None)
    return saved._replace(notes=noted)


def _header(run: Run, step: int) -> str:
    """Return the line that is printed when training starts after `step` steps."""
    start = f"resuming at step {step} of" if step else "training"
    return (
        f"{run.title} seed={run.config.seed}: {start} {run.total_steps} steps on "
        f"{jax.device_count()} x {jax.devices()[0].platform}, in {run.folder}"
    )


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
    about = workdir.check_run(folder, run.config, fingerprint, run.fixed)
    if not about:
        raise UserError(
            f"--evaluate: {folder} holds no run; train it first or give its --workdir"
        )
    weights = LoadedRun(folder, about).weights
    peers.agree("checkpoint", {"the step of the checkpoint": weights.step})
    vars = run.placement.vars(run.placement.place(weights.vars))
    names = (*run.evals.every, *run.evals.at_end)
    with kernels.kept(folder, writes=False):
        evaluations = run.evaluate(vars, names)
    numbers = numbers_of(evaluations)
    if jax.process_index() == 0:
        lines = _write_evaluation(run, weights.step, evaluations)
        table(f"{folder} at step {weights.step}", sink.rows(run, numbers), lines)
    check_finite(numbers, weights.step)
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
