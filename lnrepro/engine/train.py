"""Training and evaluation of a config in its run directory."""

import contextlib
import json
import pathlib
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from lnrepro.engine import (
    artifacts,
    experiment,
    json_files,
    peers,
    report,
    seeds,
    workdir,
)
from lnrepro.engine.loop import Loop, check_same_step
from lnrepro.engine.metrics import check_finite, write_csv
from lnrepro.engine.progress import Row, table
from lnrepro.engine.run import Run
from lnrepro.engine.train_step import make_init
from lnrepro.errors import Diverged, UserError


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
    check_same_step(saved)
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
