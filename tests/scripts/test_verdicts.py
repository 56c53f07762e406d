"""scripts/paper/verdicts.py: quantities, intervals and words from runs."""

import pathlib

import numpy as np
import pytest

from lnrepro.config import base
from scripts.paper import verdicts
from scripts.paper.records import RecordedRun
from scripts.paper.verdicts import Claim

STEPS = np.arange(1, 11) * 100
CLAIM = Claim(
    "Figure 4", "experiments.toy", "layer", "none", "valid/loss", "min", "speed", "fast"
)
# Both fall below 1.1. The first takes half of the steps.
FAST = np.maximum(0.5, 11.0 - STEPS / 50)
SLOW = 11.0 - STEPS / 100


def seeds(curve, n, spread=0.0):
    noise = np.random.default_rng(1).normal(0, spread, (n, 1))
    return curve + noise


def test_speed_is_the_share_of_the_steps_to_the_baselines_best_mean():
    assert verdicts.speed(STEPS, seeds(FAST, 2), seeds(SLOW, 3), 1) == 0.5
    # The other way round, the baseline's best is 1 after 500 steps.
    fast = np.maximum(FAST, 1.0)
    assert verdicts.speed(STEPS, seeds(SLOW, 3), seeds(fast, 2), 1) == 2.0


def test_speed_is_infinite_where_the_best_is_not_reached():
    assert verdicts.speed(STEPS, seeds(FAST + 3, 2), seeds(SLOW, 3), 1) == np.inf


def test_speed_of_what_grows_is_that_of_what_falls():
    a, b = seeds(FAST, 3, 0.1), seeds(SLOW, 3, 0.1)
    expected = verdicts.speed(STEPS, a, b, 1)
    assert verdicts.speed(STEPS, -a, -b, -1) == expected


def test_end_is_the_difference_of_the_means_over_the_last_tenth():
    a, b = np.zeros((2, 20)), np.zeros((3, 20))
    a[:, -2:] = [[1.0, 3.0], [5.0, 7.0]]
    b[:, -1] = 2.0
    assert verdicts.end(np.arange(20), a, b, 1) == 4.0 - 1.0


def test_interval_is_a_point_without_spread_and_holds_the_mean_with_it():
    point = verdicts.interval(verdicts.end, STEPS, seeds(FAST, 5), seeds(SLOW, 5), 1)
    assert point == (-0.5, -0.5)
    low, high = verdicts.interval(
        verdicts.end, STEPS, seeds(FAST, 5, 0.5), seeds(SLOW, 5), 1
    )
    difference = seeds(FAST, 5, 0.5)[:, -1].mean() - 1.0
    assert low < difference < high


def test_interval_covers_the_true_difference_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(40):
        a, b = rng.normal(1.0, 1.0, (12, 1)), rng.normal(0.0, 1.0, (12, 1))
        low, high = verdicts.interval(verdicts.end, STEPS[:1], a, b, 1)
        covered += low <= 1.0 <= high
    assert covered >= 33


def run(norm, seed, curve, steps=1000, rate=0.1, units=8) -> RecordedRun:
    """A run whose curve begins with the values of `curve`, at STEPS."""
    config = base("experiments.toy")
    config.update(norm=norm, seed=seed, steps=steps)
    config.model = {"units": units}
    config.optimizer.learning_rate = rate
    records = [
        {"step": int(step), "valid/loss": float(y)}
        for step, y in zip(STEPS, curve, strict=False)
    ]
    folder = pathlib.Path(f"{norm}-{seed}-{steps}-{rate}-{units}")
    return RecordedRun(folder, {"config": config.to_dict()}, config, records, "toy")


def runs(layer, none, n=3):
    found = [run("layer", seed, layer + 0.01 * seed) for seed in range(n)]
    return found + [run("none", seed, none + 0.01 * seed) for seed in range(n)]


@pytest.mark.parametrize(
    ("kind", "best", "layer", "none", "expected"),
    [
        ("speed", "min", FAST, SLOW, "supported"),
        ("speed", "min", SLOW, FAST, "contradicted"),
        ("speed", "min", SLOW, SLOW, "open"),
        ("speed", "max", -FAST, -SLOW, "supported"),
        ("end", "min", SLOW - 1, SLOW, "supported"),
        ("end", "min", SLOW + 1, SLOW, "contradicted"),
        ("end", "max", SLOW + 1, SLOW, "supported"),
        ("end", "max", SLOW - 1, SLOW, "contradicted"),
        ("end", "min", SLOW, SLOW, "open"),
    ],
)
def test_words(kind, best, layer, none, expected):
    claim = CLAIM._replace(kind=kind, best=best)
    (verdict,) = verdicts.of_runs(runs(layer, none), [claim])
    assert verdict.word == expected
    assert (verdict.n_better, verdict.n_baseline) == (3, 3)


def test_two_seeds_leave_a_claim_open():
    (verdict,) = verdicts.of_runs(runs(FAST, SLOW, n=2), [CLAIM])
    assert verdict.word == "open"
    assert verdicts.row(verdict)[3] == "50 %"


def test_unfinished_runs_do_not_count_and_diverged_ones_are_shown():
    found = runs(FAST, SLOW, n=4)
    found[0].config.steps = 2000
    (verdict,) = verdicts.of_runs(found, [CLAIM], {found[-1].folder})
    assert (verdict.n_better, verdict.n_baseline, verdict.diverged) == (3, 3, 1)
    assert verdicts.row(verdict)[6] == "3 and 3, 1 diverged"


def test_a_norm_whose_runs_all_diverged_keeps_its_row():
    found = runs(FAST, SLOW, n=4)
    diverged = {r.folder for r in found if r.config.norm == "none"}
    # One of them diverged before its first record.
    found[-1] = found[-1]._replace(records=[])
    (verdict,) = verdicts.of_runs(found, [CLAIM], diverged)
    assert verdict.word == "open"
    cells = verdicts.row(verdict)
    assert cells[3] == "all runs of none diverged"
    assert cells[6] == "4 and 0, 4 diverged"


def test_tries_of_learning_rates_are_no_seeds():
    """They are of seed 100, with fewer steps, and lie beside the runs."""
    rates = {"layer": 0.1, "none": 0.3}
    found, tries = [], []
    for norm, curve in (("layer", FAST), ("none", SLOW)):
        found += [run(norm, seed, curve, rate=rates[norm]) for seed in range(3)]
        for rate in (0.1, 0.3, 1.0):
            tries.append(run(norm, 100, curve[:3] - 5, steps=300, rate=rate))
    (expected,) = verdicts.of_runs(found, [CLAIM])
    assert (expected.n_better, expected.value) == (3, 0.5)
    assert verdicts.of_runs([*tries, *found], [CLAIM]) == [expected]
    # Runs of one norm are not compared with tries of the other.
    more = [
        run("none", 101 + i, SLOW[:3], steps=300, rate=rate)
        for rate in (0.1, 0.3, 1.0)
        for i in range(3)
    ]
    of_layer = [r for r in found if r.config.norm == "layer"]
    assert verdicts.of_runs([*of_layer, *more], [CLAIM]) == []


def test_of_as_many_seeds_the_longest_runs_count():
    short = [run("none", 3 + seed, FAST[:9], steps=900) for seed in range(3)]
    found = runs(FAST, SLOW)
    assert verdicts.of_runs([*short, *found], [CLAIM]) == verdicts.of_runs(
        found, [CLAIM]
    )


def test_only_runs_of_the_same_size_are_compared():
    small, large = runs(FAST, SLOW), [run("layer", s, FAST, units=9) for s in range(4)]
    (verdict,) = verdicts.of_runs([*large, *small], [CLAIM])
    assert verdict.n_better == 3
    assert verdicts.of_runs([*large, *small[3:]], [CLAIM]) == []


def test_curves_without_a_common_step_have_no_verdict():
    found = runs(FAST, SLOW)
    for r in found[:3]:
        for record in r.records:
            record["step"] += 1
    assert verdicts.of_runs(found, [CLAIM]) == []


def test_a_claim_needs_both_norms_on_the_same_data():
    found = runs(FAST, SLOW)
    found = [r._replace(data=r.config.norm) for r in found]
    assert verdicts.of_runs(found, [CLAIM]) == []


def test_markdown_has_a_row_for_each_verdict():
    text = verdicts.markdown(verdicts.of_runs(runs(FAST, SLOW), [CLAIM]))
    head, _, row = text.splitlines()
    assert head.count("|") == row.count("|")
    assert "50 % (50 % to 60 %)" in row


@pytest.mark.parametrize("claim", verdicts.CLAIMS)
def test_every_claim_names_norms_that_a_sweep_of_its_config_trains(claim):
    from lnrepro.engine import config_file

    name = claim.experiment.rpartition(".")[2]
    sweeps = config_file.load_module(f"configs/{name}.py").SWEEPS
    norms = {fields.get("norm") for runs in sweeps.values() for fields in runs}
    assert {claim.better, claim.baseline} <= norms


def test_the_seeds_that_one_run_trained_together_count_each():
    curves = {"layer": FAST, "none": SLOW}
    apart, together = [], []
    for norm, curve in curves.items():
        noisy = seeds(curve, 3, 0.1)
        apart += [run(norm, seed, noisy[seed]) for seed in range(3)]
        whole = run(norm, 0, noisy.mean(0))
        whole.config.seeds = 3
        for i, record in enumerate(whole.records):
            for seed in range(3):
                record[f"valid/loss/seed{seed}"] = float(noisy[seed, i])
        together.append(whole)
    (expected,) = verdicts.of_runs(apart, [CLAIM])
    assert verdicts.of_runs(together, [CLAIM]) == [expected]
