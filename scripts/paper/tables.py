"""The paper's tables with its rows and ours.

Table 1 is computed. Tables 2 and 3 come from runs.
"""

from collections.abc import Iterable
from typing import NamedTuple

from experiments import paper_results as paper
from experiments.order_embeddings.evaluate import table_2_rows
from scripts import markdown as md
from scripts.paper.records import RecordedRun
from scripts.theory import NORMALISERS, TOLERANCE, table_1

NOT_COMPARABLE = "not to be compared with the paper's rows"


class Table(NamedTuple):
    """A table as text.

    Attributes:
      number: its number in the paper.
      name: its title.
      head: the names of the columns.
      rows: the rows, each beginning with its name.
      note: the text below.
      runs: the runs of our rows.
      command: what makes our rows.
    """

    number: int
    name: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    runs: tuple[RecordedRun, ...] = ()
    command: str = ""

    def markdown(self) -> str:
        """Return the table in Markdown, with its note below."""
        rows = [self.head, ("---",) * len(self.head), *self.rows]
        return "\n".join([*map(md.row, rows), "", self.note, ""])


def invariances(runs: Iterable[RecordedRun] = ()) -> Table:
    """Return Table 1: what leaves the output of a normalised layer unchanged.

    A transformation counts as invariant where the largest relative change of a random
    layer's output is small. Runs are not used.
    """
    # {norm: {column: relative change of the output}}.
    changes = table_1(seed=0)
    names = {"batch": "Batch norm", "weight": "Weight norm", "layer": "Layer norm"}
    rows = []
    for norm in NORMALISERS:
        values = changes[norm].values()
        words = ["Invariant" if value < TOLERANCE else "No" for value in values]
        rows.append((names[norm], *words))
    return Table(
        number=1,
        name="Invariance properties",
        head=("", *changes[NORMALISERS[0]]),
        rows=tuple(rows),
        note="Computed in float64 with eps = 0: a relative change of the output below "
        "1e-5 counts as invariant.",
    )


def order_embeddings(runs: Iterable[RecordedRun]) -> Table:
    """Return Table 2: caption and image retrieval."""
    used, described, rules = [], [], set()
    for run in runs:
        if run.config.experiment != "experiments.order_embeddings":
            continue
        # A run that is not finished has no final scores and no row.
        scores = _final_scores(run, paper.TABLE_2_COLUMNS)
        if not scores:
            continue
        used.append(run)
        folds = "{folds} x {fold} images".format(**run.config.evaluation)
        data = f"{_data(run)}, {folds}, {run.step:,} steps"
        # Runs from before there was a choice count ties against the model.
        rule = run.config.evaluation.get("ties", "last")
        rules.add(rule)
        if rule == "sorted":
            data += ", ties in the order of the data"
        described.append((run.config, f"seed {run.config.seed}", data, scores))
    head, rows = table_2_rows(described)
    note = (
        "The paper: mean over 5 folds of 1,000 images. Rows with other data are "
        f"{NOT_COMPARABLE}."
    )
    if rules == {"last"}:
        note += " Ties count against the model."
    elif "last" in rules:
        note += " Ties count against the model unless a row says otherwise."
    return Table(
        number=2,
        name="Caption and image retrieval",
        head=tuple(head),
        rows=tuple(map(tuple, rows)),
        note=note,
        runs=tuple(used),
        command=_command("order_embeddings"),
    )


def skip_thoughts(runs: Iterable[RecordedRun]) -> Table:
    """Return Table 3: the transfer tasks, or generated ones.

    A run's row is its last record with all scores.
    """
    rows = []
    for name, scores in paper.TABLE_3.items():
        rows.append((name, paper.TABLE_3_DATA, *_task_scores(scores)))
    used = []
    for run in runs:
        if run.config.experiment != "experiments.skip_thoughts":
            continue
        # Runs on generated stories have the tasks story_sick, story_mr and so on.
        tasks = [run.name_of(task) for task in paper.TABLE_3_COLUMNS]
        records = [r for r in run.records if all(task in r for task in tasks)]
        if not records:
            continue
        used.append(run)
        last = records[-1]
        corpus = _data(run)
        if tasks != list(paper.TABLE_3_COLUMNS):
            corpus += " and generated tasks"
        corpus += f"; {run.config.model.units}-d, {last['step']:,} steps"
        scores = _task_scores([last[task] for task in tasks])
        norm = " + LN" if run.config.norm == "layer" else ""
        name = f"skip-thoughts{norm} (seed {run.config.seed})"
        rows.append((name, corpus, *scores))
    return Table(
        number=3,
        name="Skip-thoughts",
        head=("method", "corpus", *paper.TABLE_3_COLUMNS.values()),
        rows=tuple(rows),
        note="Rows with another corpus, other tasks, width or number of steps are "
        f"{NOT_COMPARABLE}.",
        runs=tuple(used),
        command=_command("skip_thoughts"),
    )


# The function of each table: runs -> Table.
TABLES = {1: invariances, 2: order_embeddings, 3: skip_thoughts}


def _command(name):
    return f"python -m lnrepro.main --config=configs/{name}.py:paper"


def _data(run):
    return paper.COMPARABLE_DATA.get(run.data, run.data)


def _final_scores(run, columns):
    """Return the scores of --evaluate, or else those at the end of training."""
    names = [f"final/{column}" for column in columns]
    # The last record with all scores counts.
    for record in (run.evaluation, *reversed(run.records)):
        if all(name in record for name in names):
            return {column: record[f"final/{column}"] for column in columns}
    return None


def _task_scores(row) -> list[str]:
    # Pearson, Spearman and MSE have three digits, accuracies in percent have one.
    return [f"{value:.3f}" for value in row[:3]] + [f"{value:.1f}" for value in row[3:]]
