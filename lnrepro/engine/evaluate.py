"""The evaluations of a run alone, as --evaluate asks for."""

import pathlib
from collections.abc import Mapping

import jax
from ml_collections import ConfigDict

from lnrepro.engine import json_files, kernels, peers, workdir
from lnrepro.engine.experiment import Evaluation
from lnrepro.engine.loaded_run import LoadedRun
from lnrepro.engine.metrics import check_finite
from lnrepro.engine.output import rows
from lnrepro.engine.progress import table
from lnrepro.engine.run import Run, numbers_of
from lnrepro.errors import UserError


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
    run = Run(config, folder)
    fingerprint, _ = run.data_identity()
    if run.experiment.check:
        run.experiment.check()
    about = workdir.check_run(folder, run.config, fingerprint)
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
        lines = _write(run, weights.step, evaluations)
        table(f"{folder} at step {weights.step}", rows(run, numbers), lines)
    check_finite(numbers, weights.step)
    return numbers


def _write(run: Run, step: int, evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Write the pictures and evaluation.json; return lines about them.

    The folder may be read-only, and the numbers are shown all the same.
    """
    try:
        results = run.write(evaluations)
        record = {"step": step, **results.to_json()}
        json_files.write(run.folder / "evaluation.json", record)
    except OSError as e:
        return [f"not written: {e.filename or run.folder}: {e.strerror or e}"]
    return results.lines()
