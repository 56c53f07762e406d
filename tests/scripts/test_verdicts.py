"""scripts/paper/verdicts.py: what is compared, and words from runs."""

import pathlib

import numpy as np
import pytest

from lnrepro.config import base
from lnrepro.engine import config_file
from scripts.paper import claims, protocols, verdicts
from scripts.paper.claims import Claim
from scripts.paper.records import RecordedRun
from tests.refused import refused

STEPS = np.arange(1, 11) * 100
CLAIM = Claim(
    *("Figure 4", "toy", "valid/loss", "loss", "layer", "none", "speed", "fast")
)
# Both fall below 1.1. The first takes half of the steps.
FAST = np.maximum(0.5, 11.0 - STEPS / 50)
SLOW = 11.0 - STEPS / 100
# The rates that the config of the toy states for runs of 1000 steps.
OWN = {"layer": 0.01, "none": 0.001}


@pytest.fixture(autouse=True)
def _rates_of_the_toy(monkeypatch):
    def tuned_rates(experiment, batch_size, length):
        return OWN if length == 1000 else {}

    monkeypatch.setattr(protocols, "_tuned_rates", tuned_rates)


def run(norm, seed, curve, rate=0.001, steps=1000, metric="valid/loss", **fields):
    """A run whose curve begins with the values of `curve`, at STEPS."""
    config = base("experiments.toy")
    config.update(norm=norm, seed=seed, steps=steps)
    config.model = {"units": fields.pop("units", 8)}
    config.optimizer.update(learning_rate=rate, decay=fields.pop("decay", None))
    values = zip(STEPS.tolist(), curve.tolist(), strict=False)
    files = {
        "config.json": {"config": config.to_dict()},
        "metrics.jsonl": [{"step": step, metric: y} for step, y in values],
    }
    return RecordedRun(pathlib.Path(norm), files | fields, config, "toy")


def runs(layer, none, n=3, layer_rate=0.001, **fields):
    found = [run("layer", s, layer + 0.01 * s, layer_rate, **fields) for s in range(n)]
    return found + [run("none", s, none + 0.01 * s, **fields) for s in range(n)]


def of_norm(norm, found):
    return [r for r in found if r.config.norm == norm]


def judge(found, claim=CLAIM, protocol="same_rate"):
    """The verdict about a claim under one protocol."""
    (row,) = verdicts.of_runs(found, [claim])
    return row.verdicts[protocol]


def cells(found, *claims):
    """The cells of the only row, by the head of their column."""
    rows = verdicts.of_runs(found, [CLAIM, *claims])
    line = verdicts.markdown(rows).splitlines()[2]
    return dict(zip(verdicts.HEAD, line.strip("| ").split(" | "), strict=True))


@pytest.mark.parametrize(
    ("kind", "sign", "layer", "none", "expected"),
    [
        ("speed", 1, FAST, SLOW, "supported"),
        ("speed", 1, SLOW, FAST, "contradicted"),
        ("speed", 1, SLOW, SLOW, "open"),
        ("speed", -1, -FAST, -SLOW, "supported"),
        ("end", 1, SLOW - 1, SLOW, "supported"),
        ("end", 1, SLOW + 1, SLOW, "contradicted"),
        ("end", -1, SLOW + 1, SLOW, "supported"),
        ("end", -1, SLOW - 1, SLOW, "contradicted"),
        ("end", 1, SLOW, SLOW, "open"),
    ],
)
def test_words(kind, sign, layer, none, expected):
    metric = "valid/loss" if sign == 1 else "valid/accuracy"
    claim = CLAIM._replace(kind=kind, metric=metric)
    verdict = judge(runs(layer, none, metric=metric), claim)
    assert (verdict.word, verdict.seeds) == (expected, 3)


def test_a_row_has_the_claim_and_both_protocols():
    tuned = runs(FAST, SLOW, layer_rate=OWN["layer"])
    assert cells(tuned) == {
        "claim": "Figure 4, loss: layer norm against no norm",
        "the paper": "fast",
        "tuned": "supported *: 50 % (50 to 50)<br>lr 0.01 and 0.001",
        "same rate": "not run",
        "seeds": "3",
        "data": "toy",
    }
    assert cells(runs(FAST, SLOW, n=2))["same rate"] == "open: 50 %"


def test_both_claims_of_a_comparison_are_one_row():
    end = CLAIM._replace(kind="end", paper="low")
    row = cells(runs(SLOW, FAST, n=2), end)
    assert row["the paper"] == "fast<br>low"
    assert row["same rate"] == "open: never<br>open: +0.5"


def test_an_interval_is_left_out_where_no_seed_reaches_the_best():
    assert cells(runs(SLOW, FAST))["same rate"].endswith(": never")


def test_norms_are_compared_in_the_seeds_that_both_have():
    found = runs(FAST, SLOW)
    # A seed that only one norm has, and that would decide the mean.
    assert judge([*found, run("none", 9, SLOW - 100)]) == judge(found)
    apart = of_norm("layer", found) + [run("none", 9 + i, SLOW) for i in range(3)]
    assert judge(apart).seeds == 0
    assert cells(apart)["same rate"] == "open: no seed in common"


def test_unfinished_runs_do_not_count_and_diverged_ones_are_shown():
    found = runs(FAST, SLOW, n=5)
    found[0].config.steps = 2000
    found[-1] = run("none", 4, SLOW, diverged=True)
    # Seed 0 of layer is not finished, seed 4 of none diverged.
    assert (judge(found).seeds, judge(found).diverged) == (3, 1)
    assert cells(found)["seeds"] == "3, 1 diverged"
    # One of them diverged before its first record.
    lost = [run("none", s, SLOW[: 2 * s], diverged=True) for s in range(4)]
    row = cells(of_norm("layer", runs(FAST, SLOW)) + lost)
    assert row["same rate"] == "open: all runs of none diverged"
    assert row["seeds"] == "0, 4 diverged"


def test_the_recorded_rates_decide_about_the_protocol():
    """Runs of both lie in one folder; none is in the verdict of the other."""
    tuned, same = runs(FAST, SLOW, layer_rate=OWN["layer"]), runs(SLOW, SLOW)
    (row,) = verdicts.of_runs([*of_norm("layer", same), *tuned], [CLAIM])
    found = {name: (v.value, v.rates) for name, v in row.verdicts.items()}
    assert found == {"tuned": (0.5, (0.01, 0.001)), "same_rate": (1.0, (0.001, 0.001))}


def test_what_both_protocols_share_is_one_comparison(monkeypatch):
    monkeypatch.setitem(OWN, "layer", 0.001)
    rows = verdicts.of_runs(runs(FAST, SLOW), [CLAIM])
    assert len(rows[0].verdicts) == 2
    assert len(verdicts.compared(rows)) == 1


def test_the_star_marks_what_is_significant_after_holms_correction():
    noise = np.random.default_rng(0).normal(0, 0.8, 5)
    found = [run("layer", s, SLOW - 1 + noise[s]) for s in range(5)]
    found += [run("none", s, SLOW) for s in range(5)]
    claim = CLAIM._replace(kind="end")
    rows = verdicts.of_runs(found, [claim])
    verdict = rows[0].verdicts["same_rate"]
    assert 0.0001 < verdict.p < 0.05
    assert verdict.significant
    assert "| supported *: -0.9" in verdicts.markdown(rows)
    # The same claim about so many other metrics.
    n = int(0.05 / verdict.p) + 1
    rows = verdicts.of_runs(found, [claim._replace(part=str(i)) for i in range(n)])
    text = verdicts.markdown(rows)
    assert text.count("| weakly supported: -0.9") == n
    assert f"correction for {n} comparisons" in text
    assert not any(row.verdicts["same_rate"].significant for row in rows)


def test_of_several_comparisons_one_counts():
    """Constant rates, then the most seeds, then the longest runs."""
    found = runs(FAST, SLOW)
    decayed = runs(FAST, FAST, n=5, decay="cosine")
    short = runs(SLOW[:9], FAST[:9], steps=900)
    # These try learning rates: of seed 100, with fewer steps.
    tries = [run(n, 100, FAST[:3] - 5, rate, 300) for n in OWN for rate in (0.01, 1.0)]
    assert judge([*decayed, *short, *tries, *found]) == judge(found)
    assert judge(decayed).seeds == 5
    more = runs(SLOW[:9], FAST[:9], n=4, steps=900)
    assert judge([*more, *found]) == judge(more)


def test_no_seed_is_left_out_without_a_word():
    """Such as runs of an earlier version, which had a field that has gone."""
    found = runs(FAST, SLOW)
    for norm in OWN:
        other = run(norm, 9, FAST, units=9)
        with refused("are not alike (units 9); give the runs of one of them"):
            judge([*found, other])


def test_only_runs_of_the_same_size_rate_steps_and_data_are_compared():
    found = of_norm("none", runs(FAST, SLOW))
    others = [
        runs(FAST, SLOW, n=4, units=9),
        runs(FAST, SLOW, decay="cosine"),
        runs(FAST, SLOW, layer_rate=0.3),
        runs(FAST, SLOW, steps=900),
        [r._replace(data="other") for r in runs(FAST, SLOW)],
    ]
    for other in others:
        assert verdicts.of_runs([*of_norm("layer", other), *found], [CLAIM]) == []
    # Other lengths have no rates of their own: any one rate is the same rate.
    short = [run(n, s, FAST[:9], 0.3, 900) for n in OWN for s in range(3)]
    assert judge(short).rates == (0.3, 0.3)


def test_every_claim_names_norms_that_a_sweep_of_its_config_trains():
    for claim in claims.CLAIMS:
        sweeps = config_file.load_module(f"configs/{claim.experiment}.py").SWEEPS
        norms = {fields.get("norm") for of in sweeps.values() for fields in of}
        assert {claim.better, claim.baseline} <= norms


def test_the_plan_has_eight_questions_of_fresh_seeds_and_tuned_rates():
    assert len(set(claims.PLAN)) == 8
    assert set(claims.SEEDS).isdisjoint(claims.PILOT)
    assert len(claims.SEEDS) == 10
    for question in claims.PLAN:
        variant = config_file.load_module(f"configs/{question.claim.experiment}.py")
        config = variant.get_config(question.variant)
        assert question.claim.batch_size in (None, config.batch_size)
        assert all(0 < rate < 0.1 for rate in question.rates)
