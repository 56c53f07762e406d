"""Tables in Markdown: the paper's Tables 2 and 3, the answers and the claims.

`scripts/theory.py` computes Table 1.
"""

import collections
import importlib
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from experiments import paper_results as paper
from lnrepro.config import PROTOCOLS, SAME_RATE
from scripts import markdown as md
from scripts.paper import ends, protocols, verdicts
from scripts.paper.claims import CLAIMS, METRICS, PILOT, PLAN, SEEDS
from scripts.paper.records import RecordedRun
from scripts.paper.verdicts import Answer, Verdict

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_COMPARABLE = "not to be compared with the paper's rows"
PROTOCOL_NAMES = [protocol.replace("_", " ") for protocol in PROTOCOLS]


def order_embeddings(runs: Sequence[RecordedRun]) -> str:
    """Return Table 2: caption and image retrieval."""
    head = ["model", "data"]
    for way in ("caption", "image"):
        head += [f"{way} {name}" for name in ("R@1", "R@5", "R@10", "mean r")]

    def about(run, last):
        # The names of Table 2.
        model = {"order": "OE", "cosine": "Sym"}[run.config.model.similarity]
        folds = "{folds} x {fold} images".format(**run.config.evaluation)
        return model, f", {folds}, {run.step:,} steps"

    names = [f"final/{name}" for name in paper.TABLE_2_COLUMNS]
    of_paper = paper.TABLE_2, paper.TABLE_2_DATA
    note = (
        "The paper: mean over 5 folds of 1,000 images. Rows with other data are "
        f"{NOT_COMPARABLE}. Ties count against the model."
    )
    digits = [1] * len(names)
    own = [run for run in runs if run.experiment == "order_embeddings"]
    return _beside_the_paper(head, of_paper, own, names, digits, about, note)


def skip_thoughts(runs: Sequence[RecordedRun]) -> str:
    """Return Table 3: the transfer tasks, or generated ones."""

    def about(run, last):
        # Runs on generated stories have the tasks story_sick, story_mr and so on.
        is_story = run.name_of("sick/pearson") != "sick/pearson"
        tasks = " and generated tasks" if is_story else ""
        width = run.config.model.units
        return "skip-thoughts", f"{tasks}; {width}-d, {last['step']:,} steps"

    of_paper = paper.TABLE_3, paper.TABLE_3_DATA
    names, digits = list(paper.TABLE_3_COLUMNS), []
    for name in names:
        # Accuracies are in percent.
        digits.append(1 if name.endswith("accuracy") else 3)
    note = (
        "Rows with another corpus, other tasks, width or number of steps are "
        f"{NOT_COMPARABLE}."
    )
    head = ("method", "corpus", *paper.TABLE_3_COLUMNS.values())
    own = [run for run in runs if run.experiment == "skip_thoughts"]
    return _beside_the_paper(head, of_paper, own, names, digits, about, note)


def _beside_the_paper(head, of_paper, runs, metrics, digits, about, note) -> str:
    """Return a table of the paper, with a row for each run that has all the metrics.

    A run's row is its last record with all of them. What --evaluate wrote comes first.

    Args:
      head: of the table.
      of_paper: {name: scores}, and the data that they are of.
      runs: the runs.
      metrics: their names, in the order of the scores.
      digits: of each score.
      about: (run, record) -> name of the model, and what follows the data.
      note: what stands below the table.
    """
    rows, (of_names, data) = [], of_paper
    for name, scores in of_names.items():
        rows.append((name, data, *_rounded(scores, digits)))
    for run in runs:
        names = [run.name_of(metric) for metric in metrics]
        records = run.files.get("evaluation.json", {}), *reversed(run.records)
        complete = (record for record in records if record.keys() >= set(names))
        if last := next(complete, None):
            model, of_run = about(run, last)
            norm = " + LN" if run.config.norm == "layer" else ""
            data = paper.COMPARABLE_DATA.get(run.data, run.data) + of_run
            scores = _rounded([last[name] for name in names], digits)
            rows.append((f"{model}{norm} (seed {run.config.seed})", data, *scores))
    return f"{md.table(head, rows)}\n\n{note}\n"


def _rounded(scores, digits) -> list[str]:
    pairs = zip(scores, digits, strict=True)
    return ["-" if value is None else f"{value:.{n}f}" for value, n in pairs]


# {number of a figure: the name of the table that belongs to it, and the function}.
TABLES = {1: ("table2", order_embeddings), 3: ("table3", skip_thoughts)}


def answered(
    runs: Sequence[RecordedRun], found: Mapping[str, Sequence[Answer]]
) -> list[dict[str, str]]:
    """Return the answers to the questions of the plan, with the pilot's estimates.

    Args:
      runs: those of the plan and of the pilot.
      found: `verdicts.answers` of them.

    Returns:
      Of each question, as text: its section and what is compared; the answer ("word"),
      its number with an interval, how many pairs ended ("seeds") and the p-value after
      Holm's correction, tuned; the number in the pilot; answer and p where all norms
      have one learning rate; and how far apart the norms end, tuned. Number and p are
      empty before the last pair.
    """
    pilot = [run for run in runs if run.config.seed in PILOT]
    fresh = [run for run in runs if run.config.seed in SEEDS]
    of_pilot = _tuned(pilot, [question.claim for question in PLAN])
    of_ends = _tuned(fresh, [question.claim._replace(kind="end") for question in PLAN])
    rows = []
    for tuned, same in zip(*(found[name] for name in PROTOCOLS), strict=True):
        claim, verdict = tuned.question.claim, tuned.verdict
        is_answered = tuned.p is not None
        row = {
            "section": tuned.question.section,
            "question": claim.question,
            "word": _word(tuned),
            "number": number(verdict, claim.kind) if is_answered else "",
            "seeds": _seeds(verdict) if is_answered else str(verdict.seeds),
            "p": _p(tuned),
            "pilot": of_pilot.get(claim, ""),
            "same_rate": _word(same),
            "same_p": _p(same),
            "end": of_ends.get(claim._replace(kind="end"), ""),
        }
        rows.append(row)
    return rows


def _tuned(runs, claims):
    """Return {claim: its number under the protocol `tuned`}."""
    found = {}
    for row in verdicts.of_runs(runs, claims):
        if verdict := row.verdicts.get(protocols.TUNED):
            found[row.claim] = number(verdict, row.claim.kind)
    return found


def answers(found: Iterable[Mapping[str, str]]) -> str:
    """Return the table of what `answered` returns."""
    head = ("", "question", "answer", "number", "n", "p", "pilot", "same rate", "p")
    note = (
        "Number: the share of the second norm's steps after which the first is as "
        "good; in 6.3, by how many standard deviations five tasks end apart. In "
        "brackets: 95 % interval over seeds. p: after Holm's correction for "
        f"{len(PLAN)} questions."
    )
    # The end has no column: the pages of the experiments tell it.
    rows = [list(row.values())[: len(head)] for row in found]
    return f"{md.table(head, rows)}\n\n{note}\n"


def groups(answers: Iterable[Answer]) -> str:
    """Return the questions of the plan by their answers, with the numbers."""
    found = collections.defaultdict(list)
    for answer in answers:
        claim = answer.question.claim
        page = claim.experiment.replace("_", "-")
        section, _, text = answer.question.name.partition(" ")
        word = "not run"
        if answer.p is not None:
            word = answer.word
            if claim.kind == "speed":
                text += f": {_number(answer.verdict.value, 'speed')} %"
            text += " (made data)" if answer.is_proxy else ""
        found[word].append(f"[{section}](docs/experiments/{page}.md) {text}")
    names = {
        "reproduced": "Yes",
        "contradicted": "No",
        "open": "Undecided",
        "not run": "Not run",
    }
    lines = []
    for word, name in names.items():
        if word in found:
            lines.append(f"- **{name}.** {'; '.join(found[word])}")
    return "\n".join(lines)


def _p(answer):
    return "" if answer.p is None else f"{answer.p:.2g}"


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
    rows = []
    for (comparison, data), of in comparisons.items():
        papers = "<br>".join(dict.fromkeys(row.claim.paper for row in of))
        results = [_cell(of, protocol) for protocol in PROTOCOLS]
        # Most often all of them have the same seeds.
        seeds = dict.fromkeys(_seeds(v) for row in of for v in row.verdicts.values())
        rows.append((comparison, papers, *results, "; ".join(seeds), data))
    note = (
        "First line: the share of the second norm's steps after which the first is as "
        "good. Above 100 %: the first is slower. Second line: the end of the first "
        "minus that of the second. In brackets: 95 % interval over seeds. lr: the "
        f"learning rates of both norms, where they are not {SAME_RATE:g}."
    )
    head = ("claim", "the paper", *PROTOCOL_NAMES, "seeds", "data")
    return f"{md.table(head, rows)}\n\n{note}\n"


def _cell(rows, protocol):
    """Return the verdicts of one comparison under a protocol, a line for each."""
    found = [row for row in rows if protocol in row.verdicts]
    if not found:
        return "not run"
    lines = [number(row.verdicts[protocol], row.claim.kind) for row in found]
    # All of them are of the same runs. Most rates are the common one.
    rates = dict.fromkeys(found[0].verdicts[protocol].rates)
    words = [f"{rate:g}" for rate in rates if rate]
    if words and words != [f"{SAME_RATE:g}"]:
        lines.append(f"lr {' and '.join(words)}")
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
    for settings, end, against in ends.of_metric(metric, runs, sign):
        numbers = [number(verdict, kind) for kind, verdict in against.items()]
        rows.append((settings, end.norm, end.seeds, end.text, *(numbers or ("", ""))))
    baseline = ends.BASELINE
    against = f"steps to {baseline}'s best", f"end minus {baseline}'s"
    return md.table(("settings", "norm", "seeds", "end", *against), rows) + "\n"


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
    rows = []
    for path in (ROOT / "configs").glob("*.py"):
        of = importlib.import_module(f"configs.{path.stem}").EXPECTED
        mode = METRICS[of.metric.rpartition("/")[2]].mode
        limit = f"`{of.metric}` {of.words(mode)}"
        measured = "{:g} to {:g}".format(*of.measured) if of.measured else ""
        controls = ["" if x is None else f"{x:g}" for x in (of.shuffled, of.quarter)]
        rows.append((of.seconds, f"`configs/{path.name}`", limit, measured, *controls))
    lines = [(name, f"{time} s", *cells) for time, name, *cells in sorted(rows)]
    head = ("config", "time", "expected", "measured", "shuffled", "quarter")
    return md.table(head, lines)
