"""The modules of all experiments keep their contract; pyright compares the plans."""

import importlib

from experiments.skip_thoughts.triples import EqualLengths
from lnrepro.data.plan import BatchPlan, Plan
from lnrepro.engine.loaded_run import LoadedRun
from tests.runs import EXPERIMENTS

PLANS: tuple[BatchPlan, ...] = (
    Plan(7, 2, seed=3),
    EqualLengths([4, 3], 2, seed=3, buckets=(2, 3)),
)


def test_every_experiment_keeps_the_contract():
    for name in EXPERIMENTS:
        module = importlib.import_module(f"experiments.{name}")
        assert callable(module.make)
        assert callable(module.sizes)
        use = importlib.import_module(f"experiments.{name}.use")
        assert issubclass(use.Model, LoadedRun)
