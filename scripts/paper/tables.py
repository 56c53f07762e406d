"""Tables in Markdown: the paper's Tables 2 and 3, the answers and the claims.

`scripts/theory.py` computes Table 1.
"""

import collections
import importlib
import math
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from experiments import paper_results as paper
from lnrepro.config import PROTOCOLS, SAME_RATE
from scripts import markdown as md
from scripts.paper import ends, protocols, verdicts
from scripts.paper.claims import CLAIMS, METRICS, PILOT, PLAN, SEEDS
from scripts.paper.records import Record, RecordedRun
from scripts.paper.verdicts import Answer, Verdict

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_COMPARABLE = "not to be compared with the paper's rows"
PROTOCOL_NAMES = [protocol.replace("_", " ") for protocol in PROTOCOLS]


def order_embeddings(runs: Sequence[RecordedRun]) -> str:
    """Return Table 2: caption and image retrieval."""
    head = ["model", "data"]
    for way in ("caption", "image"):
        head += [f"{way} {name}" for name in ("R@1", "R@5", "R@10", "mean r")]
    rows = []
    for name, scores in paper.TABLE_2.items():
        rows.append((name, paper.TABLE_2_DATA, *map(_one_decimal, scores)))
    names = [f"final/{name}" for name in paper.TABLE_2_COLUMNS]
    for run, _, scores in _scored(runs, "order_embeddings", names):
        folds = "{folds} x {fold} images".format(**run.config.evaluation)
        data = paper.COMPARABLE_DATA.get(run.data, run.data)
        data += f", {folds}, {run.step:,} steps"
        # The names of Table 2.
        model = {"order": "OE", "cosine": "Sym"}[run.config.model.similarity]
        rows.append((_name_of(model, run), data, *map(_one_decimal, scores)))
    note = (
        "The paper: mean over 5 folds of 1,000 images. Rows with other data are "
        f"{NOT_COMPARABLE}. Ties count against the model."
    )
    return f"{md.table(head, rows)}\n\n{note}\n"


def _scored(
    runs, experiment, metrics
) -> Iterator[tuple[RecordedRun, Record, list[float]]]:
    """Yield runs of an experiment with their last record that has all these metrics.

    What --evaluate wrote comes first.
    """
    for run in runs:
        names = [run.name_of(metric) for metric in metrics]
        records = run.files.get("evaluation.json", {}), *reversed(run.records)
        complete = (record for record in records if record.keys() >= set(names))
        last = next(complete, None)
        if run.experiment == experiment and last:
            yield run, last, [last[name] for name in names]


def _name_of(model, run):
    norm = " + LN" if run.config.norm == "layer" else ""
    return f"{model}{norm} (seed {run.config.seed})"


def _one_decimal(value):
    return "-" if value is None else f"{value:.1f}"


def skip_thoughts(runs: Sequence[RecordedRun]) -> str:
    """Return Table 3: the transfer tasks, or generated ones.

    A run's row is its last record with all scores.
    """
    rows = []
    for name, scores in paper.TABLE_3.items():
        rows.append((name, paper.TABLE_3_DATA, *_task_scores(scores)))
    for run, last, scores in _scored(runs, "skip_thoughts", paper.TABLE_3_COLUMNS):
        corpus = paper.COMPARABLE_DATA.get(run.data, run.data)
        # Runs on generated stories have the tasks story_sick, story_mr and so on.
        if run.name_of("sick/pearson") != "sick/pearson":
            corpus += " and generated tasks"
        corpus += f"; {run.config.model.units}-d, {last['step']:,} steps"
        rows.append((_name_of("skip-thoughts", run), corpus, *_task_scores(scores)))
    note = (
        "Rows with another corpus, other tasks, width or number of steps are "
        f"{NOT_COMPARABLE}."
    )
    head = ("method", "corpus", *paper.TABLE_3_COLUMNS.values())
    return f"{md.table(head, rows)}\n\n{note}\n"


def _task_scores(row) -> list[str]:
    # Pearson, Spearman and MSE have three digits, accuracies in percent have one.
    return [f"{value:.3f}" for value in row[:3]] + [f"{value:.1f}" for value in row[3:]]


# {number of a figure: the name of the table that belongs to it, and the function}.
TABLES = {1: ("table2", order_embeddings), 3: ("table3", skip_thoughts)}


class Answered(NamedTuple):
    """The answer to a question of the plan, as text.

    Attributes:
      section: of the paper.
      question: what is compared.
      word: the answer, tuned.
      number: its number with an interval; empty before the last pair.
      seeds: how many pairs ended.
      p: the p-value after Holm's correction; empty before the last pair.
      pilot: the number in the pilot.
      same_rate: the answer where all norms have one learning rate.
      same_p: its p-value.
      end: how far apart the norms end, tuned.
    """

    section: str
    question: str
    word: str
    number: str
    seeds: str
    p: str
    pilot: str
    same_rate: str
    same_p: str
    end: str


def answered(
    runs: Sequence[RecordedRun], found: Mapping[str, Sequence[Answer]]
) -> list[Answered]:
    """Return the answers to the questions of the plan, with the pilot's estimates.

    Args:
      runs: those of the plan and of the pilot.
      found: `verdicts.answers` of them.
    """
    pilot = [run for run in runs if run.config.seed in PILOT]
    fresh = [run for run in runs if run.config.seed in SEEDS]
    of_pilot = _tuned(pilot, [question.claim for question in PLAN])
    ends = _tuned(fresh, [question.claim._replace(kind="end") for question in PLAN])
    rows = []
    for tuned, same in zip(*(found[name] for name in PROTOCOLS), strict=True):
        claim = tuned.question.claim
        row = Answered(
            tuned.question.section,
            claim.question,
            _word(tuned),
            *_answered(tuned),
            of_pilot.get(claim, ""),
            _word(same),
            _answered(same)[2],
            ends.get(claim._replace(kind="end"), ""),
        )
        rows.append(row)
    return rows


def _tuned(runs, claims):
    """Return {claim: its number under the protocol `tuned`}."""
    found = {}
    for row in verdicts.of_runs(runs, claims):
        if verdict := row.verdicts.get(protocols.TUNED):
            found[row.claim] = number(verdict, row.claim.kind)
    return found


def answers(found: Iterable[Answered]) -> str:
    """Return the answers to the questions of the plan."""
    head = ("", "question", "answer", "number", "n", "p", "pilot", "same rate", "p")
    note = (
        "Number: the share of the second norm's steps after which the first is as "
        "good; in 6.3, by how many standard deviations five tasks end apart. In "
        "brackets: 95 % interval over seeds. p: after Holm's correction for "
        f"{len(PLAN)} questions."
    )
    # The end has no column: the pages of the experiments tell it.
    return f"{md.table(head, [row[:-1] for row in found])}\n\n{note}\n"


def groups(answers: Iterable[Answer]) -> str:
    """Return the questions of the plan by their answers, with the numbers."""
    found = {"reproduced": [], "contradicted": [], "open": [], "not run": []}
    for answer in answers:
        claim = answer.question.claim
        page = claim.experiment.replace("_", "-")
        section, _, name = answer.question.name.partition(" ")
        text = f"[{section}](docs/experiments/{page}.md) {name}"
        if answer.p is None:
            found["not run"].append(text)
            continue
        if claim.kind == "speed":
            text += f": {_number(answer.verdict.value, 'speed')} %"
        text += " (made data)" if answer.is_proxy else ""
        found[answer.word].append(text)
    names = {"reproduced": "Yes", "contradicted": "No", "open": "Undecided"}
    lines = []
    for word, texts in found.items():
        if texts:
            lines.append(f"- **{names.get(word, 'Not run')}.** {'; '.join(texts)}")
    return "\n".join(lines)


def _answered(answer) -> tuple[str, str, str]:
    """Return number, n and p of an answer, as text; nothing before the last pair."""
    verdict = answer.verdict
    if answer.p is None:
        return "", str(verdict.seeds), ""
    own = number(verdict, answer.question.claim.kind)
    return own, _seeds(verdict), f"{answer.p:.2g}"


def _word(answer):
    seeds = answer.verdict.seeds
    so_far = "1 seed" if seeds == 1 else f"{seeds} seeds"
    word = f"open, {so_far}" if answer.p is None else answer.word
    return f"{word}, on proxy data" if seeds and answer.is_proxy else word


def _seeds(verdict):
    note = f", {verdict.diverged} diverged" if verdict.diverged else ""
    return f"{verdict.seeds}{note}"


def number(verdict: Verdict, kind: str) -> str:
    """Return a verdict's number with its interval, as text.

    Args:
      verdict: the verdict.
      kind: that of its claim.
    """
    if not verdict.seeds:
        return "no seed in common"
    if math.isnan(verdict.value):
        return "no evaluation in common"
    text = _number(verdict.value, kind)
    if kind == "speed":
        text += " %"
    if verdict.seeds >= verdicts.FEWEST_SEEDS:
        text += f" ({_number(verdict.low, kind)} to {_number(verdict.high, kind)})"
    return text


def _number(value, kind):
    return f"{100 * value:.0f}" if kind == "speed" else f"{value:+.2g}"


def claims(runs: Sequence[RecordedRun]) -> str:
    """Return all claims in numbers, without tests: they are exploratory.

    It has a row for the claims that compare the same norms in the same metric.
    """
    comparisons = collections.defaultdict(list)
    for row in verdicts.of_runs(runs, CLAIMS):
        comparisons[row.claim.comparison, row.data].append(row)
    note = (
        "First line: the share of the second norm's steps after which the first is as "
        "good. Above 100 %: the first is slower. Second line: the end of the first "
        "minus that of the second. In brackets: 95 % interval over seeds. lr: the "
        f"learning rates of both norms, where they are not {SAME_RATE:g}."
    )
    head = ("claim", "the paper", *PROTOCOL_NAMES, "seeds", "data")
    return f"{md.table(head, map(_cells, comparisons.values()))}\n\n{note}\n"


def _cells(rows):
    """Return the cells of the claims of one comparison."""
    # Most often all of them have the same seeds.
    seeds = dict.fromkeys(_seeds(v) for row in rows for v in row.verdicts.values())
    results = [_cell(rows, protocol) for protocol in PROTOCOLS]
    papers = "<br>".join(dict.fromkeys(row.claim.paper for row in rows))
    comparison = rows[0].claim.comparison
    return comparison, papers, *results, "; ".join(seeds), rows[0].data


def _cell(rows, protocol):
    """Return the verdicts of one comparison under a protocol, a line for each."""
    rates = []
    lines = []
    for row in rows:
        verdict = row.verdicts.get(protocol)
        if verdict:
            lines.append(number(verdict, row.claim.kind))
            rates = [f"{rate:g}" for rate in dict.fromkeys(verdict.rates) if rate]
    if not lines:
        return "not run"
    # Most rates are the common one.
    if rates and rates != [f"{SAME_RATE:g}"]:
        lines.append(f"lr {' and '.join(rates)}")
    return "<br>".join(lines)


def ends_of(metric: str, runs: Iterable[RecordedRun], sign: int) -> str:
    """Return the end of each norm, beside that of `BASELINE` at the same settings.

    An end is the mean and the standard deviation over seeds of the last tenth of the
    evaluations.

    Args:
      metric: name of the metric.
      runs: the runs that have recorded it.
      sign: 1 if small values are better, -1 otherwise.
    """
    rows = []
    for settings, end, verdicts_of in ends.of_metric(metric, runs, sign):
        against = [number(verdict, kind) for kind, verdict in verdicts_of.items()]
        about = settings, end.norm, end.seeds, end.text
        rows.append((*about, *(against or ("", ""))))
    baseline = ends.BASELINE
    against = f"steps to {baseline}'s best", f"end minus {baseline}'s"
    head = ("settings", "norm", "seeds", "end", *against)
    return md.table(head, rows) + "\n"


def rates(runs: Iterable[RecordedRun]) -> str:
    """Return the learning rates of each norm, the best first, with where they end.

    Runs of the same length are compared, in the metric of the plan's question.

    Args:
      runs: the runs, such as those of a sweep over rates.
    """
    rows = []
    for (claim, data, length, norm), found in ends.by_rate(runs).items():
        texts = [f"{end.rate:g} ({end.text})" for end in found]
        about = claim.experiment, data, f"{length:,}", norm, claim.quantity
        rows.append((*about, "; ".join(texts)))
    head = ("experiment", "data", "steps", "norm", "metric", "rates, the best first")
    return md.table(head, sorted(rows)) + "\n"


def plan() -> str:
    """Return the primary questions, with learning rates and the effect in the pilot."""
    rows = []
    for place, question in enumerate(PLAN, 1):
        claim = question.claim
        own = protocols.stated_rates(claim.experiment, question.variant)
        rates = f"{own[claim.better]:g} and {own[claim.baseline]:g}"
        about = place, question.section, claim.question, claim.kind
        rows.append((*about, rates, f"{question.pilot:+g}"))
    head = ("", "section", "question", "number", "learning rates", "pilot")
    return md.table(head, rows)


def defaults() -> str:
    """Return what `EXPECTED` of each config file says, the fastest first."""
    found = []
    for path in (ROOT / "configs").glob("*.py"):
        module = importlib.import_module(f"configs.{path.stem}")
        found.append((module.EXPECTED.seconds, path.name, module.EXPECTED))
    rows = []
    for seconds, name, of in sorted(found):
        measured = "{:g} to {:g}".format(*of.measured) if of.measured else ""
        controls = ["" if x is None else f"{x:g}" for x in (of.shuffled, of.quarter)]
        mode = METRICS[of.metric.rpartition("/")[2]].mode
        limit = f"`{of.metric}` {of.words(mode)}"
        rows.append((f"`configs/{name}`", f"{seconds} s", limit, measured, *controls))
    head = ("config", "time", "expected", "measured", "shuffled", "quarter")
    return md.table(head, rows)
