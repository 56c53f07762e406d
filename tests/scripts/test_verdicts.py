"""scripts/paper/verdicts.py: what is compared, and words from runs."""

import pathlib

import numpy as np
import pytest

from lnrepro.config import base
from scripts.paper import claims, protocols, verdicts
from scripts.paper.claims import Claim
from scripts.paper.records import RecordedRun

STEPS = np.arange(1, 11) * 100
CLAIM = Claim(
    "Figure 4", "experiments.toy", "layer", "none", "valid/loss", "min", "speed", "fast"
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


def run(norm, seed, curve, steps=1000, rate=0.001, units=8, decay=None) -> RecordedRun:
    """A run whose curve begins with the values of `curve`, at STEPS."""
    config = base("experiments.toy")
    config.update(norm=norm, seed=seed, steps=steps)
    config.model = {"units": units}
    config.optimizer.learning_rate = rate
    config.optimizer.decay = decay
    records = [
        {"step": int(step), "valid/loss": float(y)}
        for step, y in zip(STEPS, curve, strict=False)
    ]
    folder = pathlib.Path(f"{norm}-{seed}-{steps}-{rate}-{units}-{decay}")
    return RecordedRun(folder, {"config": config.to_dict()}, config, records, "toy")


def runs(layer, none, n=3, layer_rate=0.001):
    found = []
    for norm, curve, rate in (("layer", layer, layer_rate), ("none", none, 0.001)):
        found += [run(norm, seed, curve + 0.01 * seed, rate=rate) for seed in range(n)]
    return found


def judge(found, claim=CLAIM, protocol="same_rate"):
    """The verdict about a claim under one protocol."""
    (row,) = verdicts.of_runs(found, [claim])
    return row.verdicts[protocol]


def cells(found):
    """The cells of the only row, by the head of their column."""
    (row,) = verdicts.cells(verdicts.of_runs(found, [CLAIM]))
    return dict(zip(verdicts.HEAD, row, strict=True))


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
    verdict = judge(runs(layer, none), claim)
    assert (verdict.word, verdict.seeds) == (expected, 3)


def test_two_seeds_leave_a_claim_open():
    found = runs(FAST, SLOW, n=2)
    assert judge(found).word == "open"
    assert cells(found)["same_rate: steps to the other's best"] == "open: 50 %"


def test_norms_are_compared_in_the_seeds_that_both_have():
    found = runs(FAST, SLOW)
    # A seed that only one norm has, and that would decide the mean.
    assert judge([*found, run("none", 9, SLOW - 100)]) == judge(found)
    apart = [r for r in found if r.config.norm == "layer" or r.config.seed == 9]
    apart += [run("none", 9 + i, SLOW) for i in range(3)]
    assert judge(apart).seeds == 0
    assert cells(apart)["same_rate: steps to the other's best"].endswith(
        ": no seed in common"
    )


def test_unfinished_runs_do_not_count_and_diverged_ones_are_shown():
    found = runs(FAST, SLOW, n=5)
    found[0].config.steps = 2000
    found[-1] = found[-1]._replace(diverged=True)
    verdict = judge(found)
    # Seed 0 of layer is not finished, seed 4 of none diverged.
    assert (verdict.seeds, verdict.diverged) == (3, 1)
    assert cells(found)["seeds"] == "3, 1 diverged"


def test_a_norm_whose_runs_all_diverged_keeps_its_row():
    found = runs(FAST, SLOW, n=4)
    found = [r._replace(diverged=r.config.norm == "none") for r in found]
    # One of them diverged before its first record.
    found[-1] = found[-1]._replace(records=[])
    assert judge(found).word == "open"
    row = cells(found)
    assert (
        row["same_rate: steps to the other's best"] == "open: all runs of none diverged"
    )
    assert row["seeds"] == "0, 4 diverged"


def test_protocols_are_told_apart_by_the_recorded_rates():
    """Runs of both lie in one folder; none is in the verdict of the other."""
    tuned = runs(FAST, SLOW, layer_rate=OWN["layer"])
    same = runs(SLOW, SLOW)
    of_layer = [r for r in same if r.config.norm == "layer"]
    (row,) = verdicts.of_runs([*of_layer, *tuned], [CLAIM])
    assert row.verdicts["tuned"] == judge(tuned, protocol="tuned")
    assert row.verdicts["tuned"].rates == (0.01, 0.001)
    assert row.verdicts["tuned"].value == 0.5
    assert row.verdicts["same_rate"] == judge(same)
    assert row.verdicts["same_rate"].rates == (0.001, 0.001)
    assert row.verdicts["same_rate"].value == 1.0
    (text,) = verdicts.disagreements([row])
    assert "supported under tuned, open under same_rate" in text
    assert "layer ends at 0.51 with 0.01 and at 1.01 with 0.001." in text
    assert "none ends" not in text


def test_a_protocol_without_runs_was_not_run():
    tuned = runs(FAST, SLOW, layer_rate=OWN["layer"])
    row = cells(tuned)
    assert row["same_rate: steps to the other's best"] == "not run"
    assert row["tuned: rates"] == "0.01, 0.001"
    (row,) = verdicts.of_runs(tuned, [CLAIM])
    assert verdicts.disagreements([row]) == []


def test_what_both_protocols_share_is_one_comparison():
    found = runs(FAST, SLOW, layer_rate=OWN["layer"])
    shared = [r for r in runs(FAST, SLOW) if r.config.norm == "layer"]
    claim = CLAIM._replace(better="none", baseline="none")
    rows = verdicts.of_runs([*found, *shared], [claim])
    assert len(rows[0].verdicts) == 2
    assert len(verdicts.corrected(rows)) == 1
    rows = verdicts.of_runs([*found, *shared], [CLAIM, claim])
    assert len(verdicts.corrected(rows)) == 3


def test_verdicts_that_holms_correction_makes_uncertain_are_marked():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.8, 5)
    found = [run("layer", s, SLOW - 1 + noise[s]) for s in range(5)]
    found += [run("none", s, SLOW) for s in range(5)]
    alone = [CLAIM._replace(kind="end")]
    rows = verdicts.of_runs(found, alone)
    p = rows[0].verdicts["same_rate"].p
    assert 0.0001 < p < 0.05
    assert verdicts.cells(rows)[0][9].startswith("supported: -0.9")
    # The same claim about so many other metrics.
    many = [alone[0]._replace(part=str(i)) for i in range(int(0.05 / p) + 1)]
    rows = verdicts.of_runs(found, many)
    assert {row[9][:13] for row in verdicts.cells(rows)} == {"supported *: "}
    assert f"{len(many)} comparisons" in verdicts.markdown(rows)


def test_runs_with_decaying_rates_are_compared_where_there_are_no_others():
    decayed = [run(n, s, FAST, decay="cosine") for n in OWN for s in range(5)]
    assert judge(decayed).seeds == 5
    found = runs(FAST, SLOW)
    assert judge([*decayed, *found]) == judge(found)
    # They are never compared with constant ones.
    constant = [r for r in found if r.config.norm == "none"]
    of_layer = [r for r in decayed if r.config.norm == "layer"]
    assert verdicts.of_runs([*constant, *of_layer], [CLAIM]) == []


def test_other_lengths_have_no_rates_of_their_own():
    """Their norms are compared where they have one rate, whichever it is."""
    kwargs = {"steps": 900, "rate": 0.3}
    found = [run("layer", s, FAST[:9], **kwargs) for s in range(3)]
    found += [run("none", s, SLOW[:9], **kwargs) for s in range(3)]
    verdict = judge(found)
    assert (verdict.rates, verdict.seeds) == ((0.3, 0.3), 3)
    other = [run("none", s, SLOW[:9], steps=900, rate=0.1) for s in range(3)]
    assert verdicts.of_runs([*found[:3], *other], [CLAIM]) == []


def test_tries_of_learning_rates_are_no_seeds():
    """They are of seed 100, with fewer steps, and lie beside the runs."""
    found, tries = [], []
    for norm, curve in (("layer", FAST), ("none", SLOW)):
        found += [run(norm, seed, curve, rate=OWN[norm]) for seed in range(3)]
        for rate in (0.001, 0.01, 1.0):
            tries.append(run(norm, 100, curve[:3] - 5, steps=300, rate=rate))
    expected = judge(found, protocol="tuned")
    assert (expected.seeds, expected.value) == (3, 0.5)
    assert judge([*tries, *found], protocol="tuned") == expected
    # Runs of one norm are not compared with tries of the other.
    more = [
        run("none", 101 + i, SLOW[:3], steps=300, rate=rate)
        for rate in (0.001, 0.01, 1.0)
        for i in range(3)
    ]
    of_layer = [r for r in found if r.config.norm == "layer"]
    assert verdicts.of_runs([*of_layer, *more], [CLAIM]) == []


def test_of_as_many_seeds_the_longest_runs_count():
    short = [
        run(norm, seed, curve[:9], steps=900)
        for norm, curve in (("layer", SLOW), ("none", FAST))
        for seed in range(3)
    ]
    found = runs(FAST, SLOW)
    assert judge([*short, *found]) == judge(found)


def test_only_runs_of_the_same_size_are_compared():
    small, large = runs(FAST, SLOW), [run("layer", s, FAST, units=9) for s in range(4)]
    assert judge([*large, *small]).seeds == 3
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


def test_markdown_has_a_row_for_each_claim_and_data_set():
    text = verdicts.markdown(verdicts.of_runs(runs(FAST, SLOW), [CLAIM]))
    head, _, row, _, note = text.splitlines()
    assert head.count("|") == row.count("|")
    assert "50 % (50 % to 50 %)" in row
    assert "1 comparisons" in note


def test_both_kinds_of_claims_stand_in_one_row():
    both = [CLAIM, CLAIM._replace(kind="end", paper="lower")]
    rows = verdicts.of_runs(runs(FAST, SLOW), both)
    (row,) = verdicts.cells(rows)
    assert row[3] == "fast; lower"
    assert row[8:10] == (
        "supported: 50 % (50 % to 50 %)",
        "supported: -0.5 (-0.5 to -0.5)",
    )


def test_sentences_have_the_numbers_of_the_table():
    found = runs(FAST, SLOW)
    rows = verdicts.of_runs(found, [CLAIM])
    (sentence,) = verdicts.sentences(rows)
    assert "50 % (50 % to 50 %)" in sentence
    assert "(same_rate, toy, 3 seeds)" in sentence


@pytest.mark.parametrize("claim", claims.CLAIMS)
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
        noisy = curve + np.random.default_rng(len(norm)).normal(0, 0.1, (3, 1))
        apart += [run(norm, seed, noisy[seed]) for seed in range(3)]
        whole = run(norm, 0, noisy.mean(0))
        whole.config.seeds = 3
        for i, record in enumerate(whole.records):
            for seed in range(3):
                record[f"valid/loss/seed{seed}"] = float(noisy[seed, i])
        together.append(whole)
    assert judge(together) == judge(apart)
