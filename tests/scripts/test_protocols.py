"""scripts/paper/protocols.py: the planned runs of a protocol are found as its runs."""

import pathlib

import pytest

from lnrepro.config import PROTOCOLS, SAME_RATE
from lnrepro.engine import config_file
from scripts.paper import protocols
from scripts.paper.plan import PARTS, SCALES
from scripts.paper.records import RecordedRun

SWEEPS = [
    (name, variant, protocol, sweep)
    for name in PARTS
    for scale in ("small", "smoke")
    for variant, sweeps in SCALES[scale].items()
    for protocol, sweep in sweeps.items()
    if name == "mnist" or not variant.endswith("_bz4")
]


def recorded(config) -> RecordedRun:
    """A run of a config without records."""
    about = {"config": config.to_dict()}
    return RecordedRun(pathlib.Path("run"), about, config, [], config.data.name)


@pytest.mark.parametrize(("name", "variant", "protocol", "sweep"), SWEEPS)
def test_runs_of_a_sweep_belong_to_its_protocol(name, variant, protocol, sweep):
    module = config_file.load_module(f"configs/{name}.py")
    runs = module.sweep(sweep)
    assert {fields["seed"] for fields in runs} == set(range(5))
    rates = {fields["norm"]: fields["optimizer.learning_rate"] for fields in runs}
    for norm, rate in rates.items():
        config = module.get_config(variant)
        config.norm, config.optimizer.learning_rate = norm, rate
        run = recorded(config)
        assert protocols.belongs(run, protocol)
        if protocol == "same_rate":
            assert rate == SAME_RATE
        # A rate that no sweep has belongs to no protocol.
        config.optimizer.learning_rate = 1.7e-3
        assert not any(protocols.belongs(run, other) for other in PROTOCOLS)


def test_the_sweeps_of_both_protocols_compare_the_same_norms():
    for name, variant, protocol, sweep in SWEEPS:
        if protocol == "tuned":
            module = config_file.load_module(f"configs/{name}.py")
            norms = [
                {fields["norm"] for fields in module.sweep(other)}
                for other in (sweep, f"{sweep}_same_rate")
            ]
            assert norms[0] == norms[1], (name, variant)


def test_an_experiment_of_somebody_else_has_no_rates_of_its_own():
    config = config_file.load_module("configs/draw.py").get_config("small")
    config.experiment = "mine.draw"
    run = recorded(config)
    assert not protocols.belongs(run, "tuned")
    assert protocols.belongs(run, "same_rate")
