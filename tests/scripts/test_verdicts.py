"""scripts/paper/verdicts.py: what is compared, and the answers to the plan."""

import pytest

from lnrepro.engine import config_file
from scripts.paper import claims, compare, ends, protocols, tables, verdicts
from scripts.paper.claims import Claim, Question
from scripts.paper.records import find
from tests.refused import refused
from tests.runs import ROOT
from tests.scripts.recorded import recorded
from tests.scripts.test_compare import FAST, SLOW, STEPS

CLAIM = Claim(
    *("Figure 4", "toy", "valid/loss", "loss", "layer", "none", ("fast", "low"))
)
# The rates that the config of the toy states for runs of 1000 steps.
OWN = {"layer": 0.01, "none": 0.001}


@pytest.fixture(autouse=True)
def _rates_of_the_toy(monkeypatch):
    def tuned_rates(experiment, batch_size, length):
        return OWN if length == 1000 else {}

    monkeypatch.setattr(protocols, "_tuned_rates", tuned_rates)


def run(norm, seed, curve, rate=0.001, steps=1000, metric="valid/loss", **fields):
    """A run whose curve begins with the values of `curve`, at STEPS."""
    curve = zip(STEPS.tolist(), curve.tolist(), strict=False)
    values = [{"step": step, metric: y} for step, y in curve]
    fields["optimizer"] = {"learning_rate": rate, "decay": fields.pop("decay", None)}
    data = fields.pop("data", "toy")
    return recorded("toy", norm, seed, values, data, steps=steps, **fields)


def lost(run):
    return run._replace(diverged=True)


def runs(layer, none, n=3, layer_rate=0.001, first=0, **fields):
    found = []
    for s in range(first, first + n):
        found.append(run("layer", s, layer + 0.01 * s, layer_rate, **fields))
        found.append(run("none", s, none + 0.01 * s, **fields))
    return found


def of_norm(norm, found):
    return [r for r in found if r.norm == norm]


def cells(found, claim=CLAIM):
    """The cells of the only row of the claims, by the head."""
    rows = verdicts.of_runs(found, [claim])
    head, _, line, *_ = tables.claims(rows).splitlines()
    names, values = (text.strip("| ").split(" | ") for text in (head, line))
    return dict(zip(names, values, strict=True))


def test_a_row_has_both_numbers_of_a_claim_under_both_protocols():
    assert cells(runs(FAST, SLOW, layer_rate=OWN["layer"])) == {
        "claim": "Figure 4, loss: layer norm against no norm",
        "the paper": "fast<br>low",
        "tuned": "50 % (50 to 50)<br>-0.5 (-0.5 to -0.5)<br>lr 0.01 and 0.001",
        "same rate": "not run",
        "seeds": "3",
        "data": "toy",
    }
    # Large accuracies are better, and an interval takes three seeds.
    claim = CLAIM._replace(metric="valid/accuracy", paper=("", ""))
    row = cells(runs(-SLOW, -FAST, n=2, metric="valid/accuracy"), claim)
    assert (row["same rate"], row["the paper"]) == ("200 %<br>-0.5", "")


def test_norms_are_compared_in_the_seeds_that_both_have():
    found = runs(FAST, SLOW)
    # A seed that only one norm has, and that would decide the mean.
    assert cells([*found, run("none", 9, SLOW - 100)]) == cells(found)
    apart = of_norm("layer", found) + [run("none", 9 + i, SLOW) for i in range(3)]
    assert cells(apart)["same rate"].startswith("no seed in common<br>")


def test_unfinished_runs_do_not_count_and_diverged_ones_are_the_worst():
    found = runs(FAST, SLOW, n=5)
    found[0] = found[0]._replace(length=2000)
    found[-1] = lost(found[-1])
    # Seed 0 of layer is not finished, seed 4 of none diverged.
    assert cells(found)["seeds"] == "4, 1 diverged"
    # One of them diverged before its first record.
    short = [lost(run("none", s, SLOW[: 2 * s])) for s in range(3)]
    row = cells(of_norm("layer", runs(FAST, SLOW)) + short)
    assert row["same rate"].startswith("10 % (10 to 10)<br>")
    assert row["seeds"] == "3, 3 diverged"


def test_of_several_comparisons_one_counts():
    """Constant rates, then the most seeds, then the longest runs."""
    found = runs(FAST, SLOW)
    decayed = runs(FAST, FAST, n=5, decay="cosine")
    short = runs(SLOW[:9], FAST[:9], steps=900)
    # Two more of one norm make no more pairs.
    short += [run("layer", seed, SLOW[:9], steps=900) for seed in (7, 8)]
    # These try learning rates: of seed 100, with fewer steps.
    tries = [run(n, 100, FAST[:3] - 5, rate, 300) for n in OWN for rate in (0.01, 1.0)]
    assert cells([*decayed, *short, *tries, *found]) == cells(found)
    assert cells(decayed)["seeds"] == "5"
    more = runs(SLOW[:9], FAST[:9], n=4, steps=900)
    assert cells([*more, *found]) == cells(more)


def test_no_seed_is_left_out_without_a_word():
    """Such as runs of an earlier version, which had a field that has gone."""
    found = runs(FAST, SLOW)
    for norm in OWN:
        other = run(norm, 9, FAST, units=9)
        with refused("are not alike (units 9); give the runs of one of them"):
            cells([*found, other])


@pytest.mark.parametrize(
    "other",
    [
        {"n": 4, "units": 9},
        {"decay": "cosine"},
        {"layer_rate": 0.3},
        {"steps": 900},
        {"data": "other"},
    ],
)
def test_only_runs_of_the_same_size_rate_steps_and_data_are_compared(other):
    none = of_norm("none", runs(FAST, SLOW))
    layer = of_norm("layer", runs(FAST, SLOW, **other))
    assert verdicts.of_runs([*layer, *none], [CLAIM]) == []


def test_runs_of_another_length_have_no_rates_of_their_own():
    """Any one rate is the same rate."""
    short = [run(n, s, FAST[:9], 0.3, 900) for n in OWN for s in range(3)]
    assert "lr 0.3" in cells(short)["same rate"]


def test_a_sum_of_metrics_is_taken_where_all_are_recorded():
    claim = CLAIM._replace(scales=(("a", 2.0), ("b", 4.0)))
    values = [{"step": 1, "a": 1.0}, {"step": 2, "a": 1.0, "b": 2.0}]
    assert claim.curve(recorded("toy", "layer", 0, values)) == {2: 1.0}


def test_every_claim_names_norms_that_a_sweep_of_its_config_trains():
    for claim in claims.CLAIMS:
        sweeps = config_file.load_module(f"configs/{claim.experiment}.py").SWEEPS
        norms = {fields.get("norm") for of in sweeps.values() for fields in of}
        assert {claim.better, claim.baseline} <= norms


@pytest.fixture
def answered(monkeypatch):
    """A function: the rows of the table of answers to a plan of two questions."""
    error = CLAIM._replace(metric="valid/error", quantity="error")
    plan = Question("6.4", CLAIM, 1.0), Question("6.6", error, 0.0, "end")
    for module in (verdicts, tables):
        monkeypatch.setattr(module, "PLAN", plan)
    monkeypatch.setattr(verdicts, "PAPER_DATA", {"toy": "real"})

    def answered(found):
        answered = tables.answered(found, verdicts.answers(found))
        rows = tables.answers(answered).splitlines()[2:4]
        return [row.strip("|").replace(" ", "").split("|") for row in rows]

    return answered


def test_a_rate_at_which_runs_diverge_is_not_the_best(monkeypatch):
    monkeypatch.setattr(ends, "CLAIMS", (CLAIM,))
    good = [run("layer", s, FAST, 0.01) for s in range(2)]
    bad = [run("layer", 0, FAST - 1, 0.1), lost(run("layer", 1, FAST, 0.1))]
    (found,) = ends.by_rate(bad + good).values()
    assert [(end.rate, end.diverged) for end in found] == [(0.01, 0), (0.1, 1)]
    line = ends.rates(bad + good).splitlines()[2]
    assert line.endswith("| layer | loss | 0.01 (0.5); 0.1 (-0.5, 1 diverged) |")
    # Runs with other settings are not pooled.
    decayed = run("layer", 0, FAST + 5, 0.01, decay="cosine")
    rows = ends.rates([*bad, *good, decayed]).splitlines()[2:]
    assert rows == [line, '| toy | toy | decay "cosine" | layer | loss | 0.01 (5.5) |']
    with refused("another run has seed 0", error=ValueError):
        compare.by_seed([*good, decayed], CLAIM.curve)


def pairs(layer, none, n=10, first=5, **fields):
    """Tuned runs of fresh seeds."""
    return runs(layer, none, n, OWN["layer"], first, **fields)


def test_answers_are_of_ten_fresh_pairs_with_an_exact_test(answered):
    def word(found):
        return answered(found)[0][2:6]

    # Holm's correction is for two questions, of which one was not run.
    expected = ["reproduced,onotherdata", "50%(50to50)", "10", "0.0039"]
    assert word(pairs(FAST, SLOW)) == expected
    assert word(pairs(SLOW, FAST))[0] == "contradicted,onotherdata"
    assert word(pairs(SLOW, SLOW))[::3] == ["open,onotherdata", "1"]
    # The other question is about the end.
    lower = answered(pairs(SLOW - 1, SLOW, metric="valid/error"))
    assert lower[1][2] == "reproduced,onotherdata"
    short = pairs(FAST, SLOW, 9)
    # The pilot is shown, and never pooled.
    both = answered(short + pairs(SLOW, SLOW, 5, 0))
    assert both[0][2:7] == ["notfinished", "", "9", "", "100%(100to100)"]
    assert both[1][2:6] == ["notfinished", "", "0", ""]
    own = [r._replace(data="real") for r in pairs(FAST, SLOW)]
    assert word(own)[0] == "reproduced"
    with refused("give the runs on toy alone"):
        answered(own + pairs(FAST, SLOW))
    # Where all of both norms diverged, the question is open, not unanswered.
    expected = ["open,onotherdata", "noevaluationincommon", "10,20diverged", "1"]
    assert word([lost(r) for r in pairs(FAST, SLOW)]) == expected


def test_tuned_rates_are_the_best_of_the_kept_runs():
    """Of those that were also trained at another rate, in the plan's metrics."""
    compared = 0
    kept = find([ROOT / "experiments/results/small"])
    for key, found in ends.by_rate(kept).items():
        claim, _, norm, _ = key
        # Chosen by the validation error; docs/reproduce.md says so.
        if len(found) < 2 or (claim.experiment, norm) == ("mnist", "batch"):
            continue
        stated = protocols.stated_rates(claim.experiment, claim.variant)
        assert found[0].rate == stated[norm], key
        compared += 1
    assert compared >= 10
