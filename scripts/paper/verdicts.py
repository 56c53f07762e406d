"""Whether runs support what the paper claims, with intervals over seeds.

Every claim compares two norms in one number: how soon the first reaches the second's
best value, or how far apart they end. Both come with a 95 % bootstrap interval: seeds
are drawn with replacement, for each norm by itself, and the number is computed again. A
claim is supported where the whole interval agrees with it, contradicted where the whole
interval is against it, and open otherwise.

Runs are seeds of one another where their settings and their number of steps are equal.
Both norms are compared at the same settings and number of steps. Only the learning rate
may differ between the norms, since each has its best one. Of several such comparisons,
a claim takes the one with the most seeds, then the longest, then the one that was found
first. The other runs, such as those that tried learning rates, are left out.
"""

import collections
import json
import pathlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from scripts.paper.records import RecordedRun, settings

RESAMPLES = 4000
# With fewer seeds an interval says nothing.
FEWEST_SEEDS = 3
# The end of a run is the mean over this fraction of its evaluations.
END = 0.1
SUPPORTED, CONTRADICTED, OPEN = "supported", "contradicted", "open"
# The only setting that may differ between two norms that are compared.
LEARNING_RATE = "optimizer.learning_rate"


def _any_run(config):
    return True


class Claim(NamedTuple):
    """A claim of the paper.

    Attributes:
      part: the figure or section.
      experiment: config.experiment of its runs.
      better: the norm that is claimed to be better.
      baseline: the norm that it is compared with.
      metric: the metric; `{data}` stands for the data set.
      best: whether the "min" or the "max" is better.
      kind: "speed" or "end", a key of `QUANTITIES`.
      paper: what the paper says.
      where: config -> whether a run belongs to this claim.
    """

    part: str
    experiment: str
    better: str
    baseline: str
    metric: str
    best: str
    kind: str
    paper: str
    where: Callable[[ConfigDict], bool] = _any_run


class Verdict(NamedTuple):
    """What runs say about a claim.

    Attributes:
      claim: the claim.
      data: the data set.
      n_better: number of seeds that finished with the better norm.
      n_baseline: number of those with the baseline.
      diverged: number of runs of both that ended in values that are not finite.
      value: the number; infinite where the baseline's best is never reached, and NaN
        where all runs of a norm diverged.
      low: lower end of its interval.
      high: upper end of its interval.
      word: supported, contradicted or open.
    """

    claim: Claim
    data: str
    n_better: int
    n_baseline: int
    diverged: int
    value: float
    low: float
    high: float
    word: str


def speed(
    steps: np.ndarray, better: np.ndarray, baseline: np.ndarray, sign: int
) -> float:
    """Return when the mean curve of `better` reaches the baseline's best mean value.

    Args:
      steps: [T].
      better: [S1, T], a row for each seed.
      baseline: [S2, T].
      sign: 1 if smaller values are better, -1 otherwise.

    Returns:
      The number of steps over that of the baseline; infinite if it is not reached.
    """
    theirs, ours = sign * baseline.mean(0), sign * better.mean(0)
    at = int(np.argmin(theirs))
    reached = np.flatnonzero(ours <= theirs[at])
    return float(steps[reached[0]] / steps[at]) if len(reached) else np.inf


def end(
    steps: np.ndarray, better: np.ndarray, baseline: np.ndarray, sign: int
) -> float:
    """Return the mean of `better` at the end minus that of `baseline`.

    Arguments are those of `speed`.
    """
    n = max(1, round(END * len(steps)))
    return float(better[:, -n:].mean() - baseline[:, -n:].mean())


# {kind: (function, its value where there is no difference)}.
QUANTITIES = {"speed": (speed, 1.0), "end": (end, 0.0)}


def interval(
    quantity: Callable[..., float],
    steps: np.ndarray,
    better: np.ndarray,
    baseline: np.ndarray,
    sign: int,
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a quantity over seeds.

    Args:
      quantity: `speed` or `end`.
      steps, better, baseline, sign: its arguments.
    """
    rng = np.random.default_rng(0)
    values = []
    for _ in range(RESAMPLES):
        rows_a = rng.integers(len(better), size=len(better))
        rows_b = rng.integers(len(baseline), size=len(baseline))
        values.append(quantity(steps, better[rows_a], baseline[rows_b], sign))
    # Values may be infinite, so none are interpolated.
    low, high = np.quantile(values, (0.025, 0.975), method="inverted_cdf")
    return float(low), float(high)


def of_runs(
    runs: Iterable[RecordedRun],
    claims: Sequence[Claim],
    diverged: Collection[pathlib.Path] = (),
) -> list[Verdict]:
    """Return the verdicts about all claims that the runs have both norms for.

    Args:
      runs: the runs. Those that have neither finished nor diverged are left out.
      claims: the claims.
      diverged: the folders of the runs that diverged.
    """
    ended = collections.defaultdict(list)
    for run in runs:
        if run.folder in diverged or run.finished:
            ended[run.config.experiment, run.config.norm, run.data].append(run)
    found = []
    for claim in claims:
        for data in sorted({data for experiment, _, data in ended}):
            better = ended[claim.experiment, claim.better, data]
            baseline = ended[claim.experiment, claim.baseline, data]
            verdict = _verdict(claim, data, better, baseline, diverged)
            if verdict:
                found.append(verdict)
    return found


def _verdict(claim, data, better, baseline, diverged):
    """Return the verdict about a claim, or None where the runs say nothing about it."""
    finished, n_diverged = [], 0
    for runs in _compared(claim, better, baseline, diverged):
        curves = []
        for run in runs:
            if run.folder in diverged:
                n_diverged += 1
            else:
                curves += _curves(run, claim.metric)
        finished.append(curves)
    if not finished:
        return None
    counts = [len(curves) for curves in finished]
    if min(counts) == 0:
        nan = float("nan")
        return Verdict(claim, data, *counts, n_diverged, nan, nan, nan, OPEN)
    steps, *values = _aligned(*finished)
    if not len(steps):
        return None
    quantity, equal = QUANTITIES[claim.kind]
    sign = 1 if claim.best == "min" else -1
    value = quantity(steps, *values, sign)
    low, high = interval(quantity, steps, *values, sign)
    # A smaller share of the steps is always better.
    direction = 1 if claim.kind == "speed" else sign
    word = OPEN
    if min(counts) >= FEWEST_SEEDS:
        if max(direction * low, direction * high) < direction * equal:
            word = SUPPORTED
        elif min(direction * low, direction * high) > direction * equal:
            word = CONTRADICTED
    return Verdict(claim, data, *counts, n_diverged, value, low, high, word)


def _compared(claim, better, baseline, diverged):
    """Return the runs of both norms that a claim compares, or () if there are none."""
    pairs = []
    for ours in _seeds(claim, better, diverged):
        for theirs in _seeds(claim, baseline, diverged):
            if _shared(ours[0]) == _shared(theirs[0]):
                pairs.append((ours, theirs))
    return max(pairs, key=_size, default=())


def _seeds(claim, runs, diverged):
    """Return the groups of runs of one norm that are seeds of one another."""
    groups = collections.defaultdict(list)
    for run in runs:
        # Runs with the same settings may have other evaluations.
        has_metric = run.folder in diverged or _curves(run, claim.metric)
        if has_metric and claim.where(run.config):
            groups[json.dumps(settings(run)), run.length].append(run)
    return groups.values()


def _shared(run):
    """Return the settings and the number of steps that both norms must share."""
    shared = settings(run)
    shared.pop(LEARNING_RATE, None)
    return shared, run.length


def _size(pair):
    """Return the number of seeds and the length of a comparison, to find the largest.

    The norm with fewer seeds counts first.
    """
    n_seeds = [sum(run.config.get("seeds", 1) for run in runs) for runs in pair]
    return min(n_seeds), sum(n_seeds), sum(runs[0].length for runs in pair)


def _curves(run, metric):
    """Return {step: value} of each seed of a run that has the metric."""
    curves = []
    for values in run.values(metric).values():
        if values:
            curves.append({record["step"]: value for record, value in values})
    return curves


def _aligned(better, baseline):
    """Return the steps that all curves have [T], and the values [S1, T] and [S2, T]."""
    curves = [*better, *baseline]
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    values = np.array([[curve[step] for step in steps] for curve in curves])
    return np.array(steps), values[: len(better)], values[len(better) :]


def markdown(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as a table in Markdown."""
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    lines += [f"| {' | '.join(row(verdict))} |" for verdict in verdicts]
    return "\n".join(lines) + "\n"


HEAD = (
    "",
    "compared",
    "quantity",
    "here (95 % interval)",
    "verdict",
    "the paper",
    "seeds",
    "data",
)


def row(verdict: Verdict) -> tuple[str, ...]:
    """Return the cells of a verdict, in the order of `HEAD`."""
    claim = verdict.claim
    metric = claim.metric.format(data=verdict.data.partition(" ")[0])
    quantity = f"end of {metric}, difference"
    if claim.kind == "speed":
        quantity = f"steps to the other's best {metric}, share"
    seeds = f"{verdict.n_better} and {verdict.n_baseline}"
    if verdict.diverged:
        seeds += f", {verdict.diverged} diverged"
    ours = _number(verdict.value, claim.kind)
    counts = {claim.better: verdict.n_better, claim.baseline: verdict.n_baseline}
    without = [norm for norm, count in counts.items() if count == 0]
    if without:
        ours = f"all runs of {' and '.join(without)} diverged"
    elif min(counts.values()) >= FEWEST_SEEDS:
        low, high = _number(verdict.low, claim.kind), _number(verdict.high, claim.kind)
        ours += f" ({low} to {high})"
    return (
        claim.part,
        f"{claim.better} against {claim.baseline}",
        quantity,
        ours,
        verdict.word,
        claim.paper,
        seeds,
        verdict.data,
    )


def _number(value, kind):
    if np.isinf(value):
        return "never"
    return f"{100 * value:.0f} %" if kind == "speed" else f"{value:+.3g}"


def _speed_and_end(part, experiment, pairs, metric, best, papers, where=_any_run):
    """Return both claims about each pair of norms."""
    found = []
    for better, baseline in pairs:
        for kind, paper in zip(("speed", "end"), papers, strict=True):
            found.append(
                Claim(
                    part,
                    f"experiments.{experiment}",
                    better,
                    baseline,
                    metric,
                    best,
                    kind,
                    paper,
                    where,
                )
            )
    return found


def _batch(size):
    return lambda config: config.batch_size == size


def _claims() -> list[Claim]:
    found = _speed_and_end(
        "Figure 1",
        "order_embeddings",
        [("layer", "none")],
        "valid/image_recall_sum",
        "max",
        ("60 % of the time", "R@1 37.8 and 38.9"),
    )
    found += _speed_and_end(
        "Figure 2",
        "attentive_reader",
        [("layer", "none"), ("layer", "batch"), ("layer", "batch_everywhere")],
        "valid/error",
        "min",
        ("faster", "lower error"),
    )
    # The paper normalises the whole network with batch norm only.
    found += _speed_and_end(
        "Figure 2",
        "attentive_reader",
        [("layer_everywhere", "layer"), ("layer_everywhere", "batch_everywhere")],
        "valid/error",
        "min",
        ("not tried", "not tried"),
    )
    tasks = ["mr", "cr", "subj", "mpqa"]
    metrics = [("sick/pearson", "max"), ("sick/mse", "min")]
    metrics += [(f"{task}/accuracy", "max") for task in tasks]
    for metric, best in metrics:
        found += _speed_and_end(
            "Figure 3",
            "skip_thoughts",
            [("layer", "none")],
            metric,
            best,
            ("faster", "better"),
        )
    found += _speed_and_end(
        "Figure 4",
        "draw",
        [("layer_cell", "none")],
        "test/bound_{data}",
        "min",
        ("almost twice as fast", "82.36 and 82.09 nats"),
    )
    found += _speed_and_end(
        "Figure 5",
        "handwriting",
        [("layer", "none")],
        "valid/nll",
        "min",
        ("much faster", "comparable"),
    )
    for size in (128, 4):
        for metric in ("train/nll", "test/error"):
            found += _speed_and_end(
                f"Figure 6, batch size {size}",
                "mnist",
                [("layer", "none"), ("layer", "batch")],
                metric,
                "min",
                ("faster", "lower"),
                _batch(size),
            )
    found += _speed_and_end(
        "Section 6.7",
        "convnet",
        [("layer", "none"), ("batch", "layer")],
        "test/error",
        "min",
        ("faster", "better"),
    )
    return found


CLAIMS = _claims()
