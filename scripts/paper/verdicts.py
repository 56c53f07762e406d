"""Whether runs support what the paper claims, with intervals over seeds.

Every claim compares two norms in one number: how soon the first reaches the second's
best value, or how far apart they end. Both come with a 95 % bootstrap interval: seeds
are drawn with replacement, for each norm by itself, and the number is computed again. A
claim is supported where the whole interval agrees with it, contradicted where the whole
interval is against it, and open otherwise.
"""

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from lnrepro.config import add_defaults
from lnrepro.engine.experiment import total_steps
from scripts.paper.runs import Run

RESAMPLES = 4000
# With fewer seeds an interval says nothing.
FEWEST_SEEDS = 3
# The end of a run is the mean over this fraction of its evaluations.
END = 0.1
SUPPORTED, CONTRADICTED, OPEN = "supported", "contradicted", "open"


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
      n_better: number of finished runs with the better norm.
      n_baseline: number of those with the baseline.
      diverged: number of runs of both that ended in values that are not finite.
      value: the number; infinite where the baseline's best is never reached.
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
    runs: Iterable[Run], claims: Sequence[Claim], diverged: Mapping[str, int]
) -> list[Verdict]:
    """Return the verdicts about all claims that the runs have both norms for.

    Args:
      runs: the runs. Those that are not finished are left out.
      claims: the claims.
      diverged: {`group` of a run: number of such runs that diverged}.
    """
    groups = collections.defaultdict(list)
    for run in runs:
        if _is_finished(run):
            groups[run.config.experiment, run.config.norm, run.data].append(run)
    found = []
    for claim in claims:
        for data in sorted({data for experiment, _, data in groups}):
            verdict = _verdict(claim, data, groups, diverged)
            if verdict:
                found.append(verdict)
    return found


def group(config: ConfigDict) -> str:
    """Return the name under which diverged runs of a config are counted."""
    return f"{config.experiment} {config.norm} {config.batch_size}"


def _is_finished(run):
    config = ConfigDict(run.config)
    add_defaults(config)
    # In records of version 0.1, 0 means that steps are not set.
    config.steps = config.steps or None
    if config.steps is None and config.epochs is None:
        return False
    return run.step >= total_steps(config)


def _verdict(claim, data, groups, diverged):
    curves, n_diverged = [], 0
    for norm in (claim.better, claim.baseline):
        chosen = groups[claim.experiment, norm, data]
        chosen = [run for run in chosen if claim.where(run.config)]
        found = []
        for run in chosen:
            found += _curves(run, claim.metric)
        curves.append(found)
        if chosen:
            n_diverged += diverged.get(group(chosen[0].config), 0)
    if not all(curves):
        return None
    steps, better, baseline = _aligned(*curves)
    quantity, equal = QUANTITIES[claim.kind]
    sign = 1 if claim.best == "min" else -1
    arguments = (steps, better, baseline, sign)
    value = quantity(*arguments)
    low, high = interval(quantity, *arguments)
    # A smaller share of the steps is always better.
    direction = 1 if claim.kind == "speed" else sign
    word = OPEN
    if min(len(better), len(baseline)) >= FEWEST_SEEDS:
        if max(direction * low, direction * high) < direction * equal:
            word = SUPPORTED
        elif min(direction * low, direction * high) > direction * equal:
            word = CONTRADICTED
    return Verdict(
        claim,
        data,
        len(better),
        len(baseline),
        n_diverged,
        value,
        low,
        high,
        word,
    )


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
    if min(verdict.n_better, verdict.n_baseline) >= FEWEST_SEEDS:
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
