"""The evaluations of a run alone, as --evaluate asks for."""

import pathlib

import jax
from ml_collections import ConfigDict

from lnrepro.engine import artifacts, json_files, kernels, peers, workdir
from lnrepro.engine.loaded_run import LoadedRun
from lnrepro.engine.metrics import check_finite
from lnrepro.engine.output import rows
from lnrepro.engine.progress import HEAD, table
from lnrepro.engine.run import Run, numbers_of
from lnrepro.errors import UserError, say


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
    run.check()
    about = workdir.check_run(folder, run.identity)
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
        # First, because the folder may be read-only.
        say(f"{folder} at step {weights.step}\n{table(HEAD, *rows(run, numbers))}")
        for evaluation in evaluations.values():
            artifacts.write(folder / "artifacts", evaluation)
        json_files.write(folder / "evaluation.json", {"step": weights.step, **numbers})
    check_finite(numbers, weights.step)
    return numbers
