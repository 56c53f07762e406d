"""The two protocols of `lnrepro.config`, told apart by the recorded learning rates.

The sweeps "small" of configs/NAME.py state a rate for each norm. Runs of their batch
size and length belong to "tuned" with this rate, and to "same_rate" with `SAME_RATE`.
Runs of other sizes have no rate of their own, and only norms with one rate are
compared: they belong to "same_rate".
"""

import functools
import importlib
from collections.abc import Mapping, Sequence

from lnrepro.config import PROTOCOLS, SAME_RATE
from lnrepro.engine.experiment import total_steps
from scripts.paper.records import RecordedRun

TUNED, SAME = PROTOCOLS


def rate(run: RecordedRun) -> float | None:
    """Return the learning rate of a run, None if its config has none."""
    return run.config.get("optimizer", {}).get("learning_rate")


def is_constant(run: RecordedRun) -> bool:
    """Whether a run has kept its learning rate to the end."""
    return run.config.get("optimizer", {}).get("decay") is None


def tuned_rates(run: RecordedRun) -> Mapping[str, float]:
    """Return {norm: the rate that the configs state} for runs of a run's size."""
    config = run.config
    return _tuned_rates(config.experiment, config.get("batch_size"), run.length)


@functools.cache
def _tuned_rates(experiment: str, batch_size: int, length: int) -> Mapping[str, float]:
    """Return {norm: its rate} for the runs of this batch size and length."""
    parent, _, name = experiment.rpartition(".")
    if parent != "experiments":
        return {}
    try:
        module = importlib.import_module(f"configs.{name}")
    except ModuleNotFoundError:
        return {}
    # Runs of the variant "smoke" only check that everything works.
    sweeps = {"small": "small", "small_bz4": "small_bz4", "smoke": "small"}
    # Only the configs of the paper's figures need these tables.
    stated = getattr(module, "SWEEPS", {})
    there = getattr(module, "VARIANTS", {})
    for variant, sweep in sweeps.items():
        if sweep not in stated or variant not in there:
            continue
        config = module.get_config(variant)
        if (config.batch_size, total_steps(config)) == (batch_size, length):
            return {
                run["norm"]: run["optimizer.learning_rate"] for run in stated[sweep]
            }
    return {}


def belongs(run: RecordedRun, protocol: str) -> bool:
    """Whether a run may be compared with others under a protocol.

    Args:
      run: the run.
      protocol: one of `PROTOCOLS`.
    """
    own = tuned_rates(run)
    if protocol == TUNED:
        return run.config.norm in own and rate(run) == own[run.config.norm]
    return not own or rate(run) == SAME_RATE


def by_protocol(runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """Return the runs of each protocol, or {"": runs} where they are not of both.

    Runs are of both where some norm was trained with its own rate and with `SAME_RATE`,
    which differ.

    Args:
      runs: the runs of a figure.
    """
    of_both = {p: [run for run in runs if belongs(run, p)] for p in PROTOCOLS}
    only_tuned = {run.config.norm for run in of_both[TUNED] if not belongs(run, SAME)}
    only_same = {run.config.norm for run in of_both[SAME] if not belongs(run, TUNED)}
    return of_both if only_tuned & only_same else {"": list(runs)}
