"""The two protocols of `lnrepro.sweeps`, by the recorded learning rates.

The sweeps "small" of configs/NAME.py state a rate for each norm. Runs of their batch
size and length belong to "tuned" with this rate, and to "same_rate" with `SAME_RATE`.
Runs of other sizes have no rate of their own, and only norms with one rate are
compared: they belong to "same_rate".
"""

import functools
import importlib
from collections.abc import Mapping, Sequence

from lnrepro.engine.experiment import total_steps
from lnrepro.sweeps import PROTOCOLS, SAME_RATE
from scripts.paper.records import RecordedRun

TUNED, SAME = PROTOCOLS


# {variant of a config: the sweep that states its rates}. Runs of "smoke" only check
# that everything works.
_SWEEPS = {"small": "small", "small_bz4": "small_bz4", "smoke": "small"}


def stated_rates(experiment: str, sweep: str) -> dict[str, float]:
    """Return {norm: the rate that a sweep of the config states}; {} without a sweep."""
    module = importlib.import_module(f"configs.{experiment}")
    # Only the configs of the paper's figures need this table.
    runs = getattr(module, "SWEEPS", {}).get(sweep, ())
    return {run["norm"]: run["optimizer.learning_rate"] for run in runs}


@functools.cache
def _tuned_rates(experiment: str, batch_size: int, length: int) -> Mapping[str, float]:
    """Return {norm: the rate that the configs state} for runs of this size."""
    try:
        module = importlib.import_module(f"configs.{experiment}")
    except ModuleNotFoundError:
        return {}
    for variant, sweep in _SWEEPS.items():
        rates = stated_rates(experiment, sweep)
        if rates and variant in module.VARIANTS:
            config = module.get_config(variant)
            if (config.batch_size, total_steps(config)) == (batch_size, length):
                return rates
    return {}


def belongs(run: RecordedRun, protocol: str) -> bool:
    """Whether a run may be compared with others under one of the `PROTOCOLS`."""
    own = _tuned_rates(run.experiment, run.batch_size, run.length)
    if protocol == TUNED:
        return run.norm in own and run.rate == own[run.norm]
    return not own or run.rate == SAME_RATE


def by_protocol(runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """Return the runs of each protocol, or {"": runs} where they are not of both.

    Runs of a figure are of both where some norm was trained with its own rate and with
    `SAME_RATE`, which differ.
    """
    of_both = {p: [run for run in runs if belongs(run, p)] for p in PROTOCOLS}
    only_tuned = {run.norm for run in of_both[TUNED] if not belongs(run, SAME)}
    only_same = {run.norm for run in of_both[SAME] if not belongs(run, TUNED)}
    return of_both if only_tuned & only_same else {"": list(runs)}
