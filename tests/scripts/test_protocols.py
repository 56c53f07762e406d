"""scripts/paper/protocols.py: the planned runs of a protocol are found as its runs."""

import pathlib

from lnrepro.engine import config_file
from lnrepro.sweeps import PROTOCOLS, SAME_RATE
from scripts.paper import protocols
from scripts.paper.records import of_files
from scripts.reproduce import PARTS, SCALES


def belongs(config) -> list[str]:
    """The protocols of a run of a config."""
    about = {"config": config.to_dict(), "data": {"fingerprint": ""}}
    files = {"config.json": about, "metrics.jsonl": []}
    run = of_files(pathlib.Path("run"), files)
    return [name for name in PROTOCOLS if protocols.belongs(run, name)]


def test_runs_of_a_sweep_belong_to_its_protocol_and_both_have_the_same_norms():
    for name in PARTS:
        module = config_file.load_module(f"configs/{name}.py")
        norms = {}
        for variant, protocol, sweep in SCALES["small"] + SCALES["smoke"]:
            if name != "mnist" and variant.endswith("_bz4"):
                continue
            runs = module.SWEEPS[sweep]
            assert {fields["seed"] for fields in runs} == set(range(5))
            rates = protocols.stated_rates(name, sweep)
            assert norms.setdefault(variant, rates.keys()) == rates.keys()
            for norm, rate in rates.items():
                config = module.get_config(variant)
                config.norm, config.optimizer.learning_rate = norm, rate
                assert protocol in belongs(config)
                assert protocol == "tuned" or rate == SAME_RATE
                # A rate that no sweep has belongs to no protocol.
                config.optimizer.learning_rate = 1.7e-3
                assert belongs(config) == []


def test_an_experiment_of_somebody_else_has_no_rates_of_its_own():
    config = config_file.load_module("configs/draw.py").get_config("small")
    config.experiment = "mine.draw"
    assert belongs(config) == ["same_rate"]
