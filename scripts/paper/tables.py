"""Tables in Markdown: the paper's Tables 2 and 3, the answers and the claims.

`scripts/theory.py` computes Table 1.
"""

import collections
import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from experiments import paper_results as paper
from lnrepro.sweeps import PROTOCOLS, SAME_RATE
from scripts import markdown as md
from scripts.paper import ROOT, protocols, verdicts
from scripts.paper.axes import FIGURES
from scripts.paper.claims import PILOT, PLAN, mode
from scripts.paper.records import RecordedRun
from scripts.paper.verdicts import Answer, Row, Verdict

NOT_COMPARABLE = "not to be compared with the paper's rows"


class PaperTable(NamedTuple):
    """A table of the paper, beside which runs are shown.

    Attributes:
      name: of its file.
      head: what its models and their data are called.
      columns: {metric: title} of the scores.
      scores: those of the paper, {model: scores}.
      data: what they are measured on.
      note: what stands below the table.
      about: (run, record) -> name of the run's model, and what follows its data.
    """

    name: str
    head: tuple[str, str]
    columns: Mapping[str, str]
    scores: Mapping[str, Sequence[float | None]]
    data: str
    note: str
    about: Callable[..., tuple[str, str]]


def _order_embeddings(run, record):
    # The names of Table 2.
    model = {"order": "OE", "cosine": "Sym"}[run.config.model.similarity]
    folds = "{folds} x {fold} images".format(**run.config.evaluation)
    return model, f", {folds}, {record['step']:,} steps"


def _skip_thoughts(run, record):
    # Runs on generated stories have the tasks story_sick, story_mr and so on.
    is_story = run.name_of("sick/pearson") != "sick/pearson"
    tasks = " and generated tasks" if is_story else ""
    width = run.config.model.units
    return "skip-thoughts", f"{tasks}; {width}-d, {record['step']:,} steps"


# {number of the figure that it belongs to: table}.
TABLES = {
    1: PaperTable(
        name="table2",
        head=("model", "data"),
        columns=paper.TABLE_2_COLUMNS,
        scores=paper.TABLE_2,
        data=paper.TABLE_2_DATA,
        note="The paper: mean over 5 folds of 1,000 images. Rows with other data are "
        f"{NOT_COMPARABLE}. Ties count against the model.",
        about=_order_embeddings,
    ),
    3: PaperTable(
        name="table3",
        head=("method", "corpus"),
        columns=paper.TABLE_3_COLUMNS,
        scores=paper.TABLE_3,
        data=paper.TABLE_3_DATA,
        note="Rows with another corpus, other tasks, width or number of steps are "
        f"{NOT_COMPARABLE}.",
        about=_skip_thoughts,
    ),
}


def beside_the_paper(number: int, runs: Iterable[RecordedRun]) -> str:
    """Return a table of the paper, with rows for each run that has all the metrics.

    They are what --evaluate wrote and the last record, unless both are of one step.

    Args:
      number: that of the figure, a key of `TABLES`.
      runs: the runs, also those of other experiments.
    """
    table = TABLES[number]
    rows = [(model, table.data, scores) for model, scores in table.scores.items()]
    for run in runs:
        if run.experiment != FIGURES[number].experiment:
            continue
        names = [run.name_of(metric) for metric in table.columns]
        # {step: record}.
        shown = {}
        for records in ([run.files.get("evaluation.json", {})], run.records):
            complete = [record for record in records if record.keys() >= set(names)]
            shown |= {record["step"]: record for record in complete[-1:]}
        for record in shown.values():
            model, of_run = table.about(run, record)
            norm = " + LN" if run.norm == "layer" else ""
            data = paper.COMPARABLE_DATA.get(run.data, run.data) + of_run
            scores = [record[name] for name in names]
            rows.append((f"{model}{norm} (seed {run.seed})", data, scores))
    lines = [(*about, *_rounded(table, scores)) for *about, scores in rows]
    return md.table((*table.head, *table.columns.values()), lines, table.note)


def _rounded(table, scores) -> list[str]:
    cells = []
    for metric, value in zip(table.columns, scores, strict=True):
        # The others are recalls and accuracies in percent, and ranks.
        digits = 3 if metric.startswith("sick") else 1
        cells.append("-" if value is None else f"{value:.{digits}f}")
    return cells


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
      have one learning rate; how far apart the norms end, tuned; and answer and number
      at one rate. Number and p are empty before the last pair.
    """
    pilot = [run for run in runs if run.seed in PILOT]
    found_in_pilot = verdicts.of_runs(pilot, [question.claim for question in PLAN])
    of_pilot = {row.claim: row.verdicts.get(protocols.TUNED) for row in found_in_pilot}
    rows = []
    for tuned, same in zip(*(found[name] for name in PROTOCOLS), strict=True):
        question, verdict = tuned.question, tuned.verdict
        rows.append(
            {
                "section": question.section,
                "question": question.claim.question,
                "word": tuned.word + tuned.data_note,
                "number": number(verdict, question.number) if tuned.number else "",
                "seeds": _seeds(verdict) if tuned.number else str(verdict.seeds),
                "p": _p(tuned),
                "pilot": number(of_pilot.get(question.claim), question.number),
                "same_rate": same.word + same.data_note,
                "same_p": _p(same),
                "end": number(verdict, "end") if verdict.seeds else "",
                "at one rate": f"{same.word}, {number(same.verdict, question.number)}",
            }
        )
    return rows


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
    return md.table(head, [list(row.values())[: len(head)] for row in found], note)


def groups(answers: Iterable[Answer]) -> str:
    """Return the questions of the plan by their answers, with the numbers."""
    found = collections.defaultdict(list)
    for answer in answers:
        page = answer.question.claim.experiment.replace("_", "-")
        section, _, text = answer.question.name.partition(" ")
        if answer.number:
            value, _, _ = answer.number.text(answer.question.number).partition(" (")
            text += f": {value}"
        text = f"[{section}](docs/experiments/{page}.md) {text}{answer.data_note}"
        found[answer.word].append(text)
    lines = []
    for word, texts in found.items():
        lines.append(f"- **{word.capitalize()}.** {'; '.join(texts)}")
    return "\n".join(lines)


def _p(answer):
    return f"{answer.p:.2g}" if answer.number else ""


def _seeds(verdict):
    note = f", {verdict.diverged} diverged" if verdict.diverged else ""
    return f"{verdict.seeds}{note}"


def number(verdict: Verdict | None, name: str) -> str:
    """Return a number of a verdict with its interval, as text; "" without a verdict.

    Args:
      verdict: the verdict.
      name: one of `verdicts.NUMBERS`.
    """
    if verdict is None:
        return ""
    if not verdict.seeds:
        return "no seed in common"
    found = verdict.numbers[name]
    if math.isnan(found.value):
        return "no evaluation in common"
    return found.text(name)


def claims(rows: Iterable[Row]) -> str:
    """Return claims in numbers, without tests: they are exploratory."""
    lines = []
    for row in rows:
        papers = "<br>".join(dict.fromkeys(row.claim.paper))
        results = [_cell(row.verdicts.get(protocol)) for protocol in PROTOCOLS]
        # Most often both have the same seeds.
        seeds = dict.fromkeys(map(_seeds, row.verdicts.values()))
        about = row.claim.comparison, papers
        lines.append((*about, *results, "; ".join(seeds), row.data))
    note = (
        "First line: the share of the second norm's steps after which the first is as "
        "good. Above 100 %: the first is slower. Second line: the end of the first "
        "minus that of the second. In brackets: 95 % interval over seeds. lr: the "
        f"learning rates of both norms, where they are not {SAME_RATE:g}."
    )
    names = [protocol.replace("_", " ") for protocol in PROTOCOLS]
    return md.table(("claim", "the paper", *names, "seeds", "data"), lines, note)


def _cell(verdict):
    """Return a verdict, a line for each number."""
    if verdict is None:
        return "not run"
    lines = [number(verdict, name) for name in verdicts.NUMBERS]
    # Most rates are the common one.
    words = [f"{rate:g}" for rate in dict.fromkeys(verdict.rates) if rate]
    if words and words != [f"{SAME_RATE:g}"]:
        lines.append(f"lr {' and '.join(words)}")
    return "<br>".join(lines)


def plan() -> str:
    """Return the primary questions, with learning rates and the effect in the pilot."""
    rows = []
    for place, question in enumerate(PLAN, 1):
        claim = question.claim
        own = protocols.stated_rates(claim.experiment, claim.variant)
        rates = f"{own[claim.better]:g} and {own[claim.baseline]:g}"
        about = place, question.section, claim.question, question.number
        rows.append((*about, rates, f"{question.pilot:+g}"))
    head = ("", "section", "question", "number", "learning rates", "pilot")
    return md.table(head, rows)


def defaults() -> str:
    """Return what `EXPECTED` of the config files says, the fastest first."""
    rows = []
    for path in (ROOT / "configs").glob("*.py"):
        module = importlib.import_module(f"configs.{path.stem}")
        of = getattr(module, "EXPECTED", None)
        # Configs of other experiments need not have it.
        if of is None:
            continue
        limit = f"`{of.metric}` {of.words(mode(of.metric))}"
        measured = "{:g} to {:g}".format(*of.measured) if of.measured else ""
        controls = ["" if x is None else f"{x:g}" for x in (of.shuffled, of.quarter)]
        rows.append((of.seconds, f"`configs/{path.name}`", limit, measured, *controls))
    lines = [(name, f"{time} s", *cells) for time, name, *cells in sorted(rows)]
    head = ("config", "time", "expected", "measured", "shuffled", "quarter")
    return md.table(head, lines)
