"""The paper's tables, its rows and ours: Table 1 computed, Tables 2 and 3 from runs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from experiments.order_embeddings import table as retrieval
from scripts.paper.runs import Run
from scripts.theory import NORMALISERS, TOLERANCE, table_1

NOT_COMPARABLE = "not to be compared with the paper's rows"


class Table(NamedTuple):
    """A table as text: `rows` begin with their name."""

    number: int
    name: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    runs: tuple[Run, ...] = ()
    missing: str = ""  # the command that would make our rows, where there are none

    def markdown(self) -> str:
        """The table in Markdown, its note below."""
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        return "\n".join(
            [*(f"| {' | '.join(line)} |" for line in lines), "", self.note, ""]
        )


def invariances() -> Table:
    """Table 1: what leaves a normalised layer's output unchanged, by the largest relative change over a random layer."""
    found = table_1(seed=0)
    columns = tuple(found[NORMALISERS[0]])
    names = {"batch": "Batch norm", "weight": "Weight norm", "layer": "Layer norm"}
    rows = [
        (
            names[norm],
            *(
                "Invariant" if change < TOLERANCE else "No"
                for change in found[norm].values()
            ),
        )
        for norm in NORMALISERS
    ]
    note = "Computed in float64 with eps = 0: a relative change of the output below 1e-5 counts as invariant."
    return Table(1, "Invariance properties", ("", *columns), tuple(rows), note)


def order_embeddings(runs: Iterable[Run]) -> Table:
    """Table 2: caption and image retrieval."""
    head = (
        "model",
        "data",
        *(
            f"{way} {name}"
            for way in ("caption", "image")
            for name in ("R@1", "R@5", "R@10", "mean r")
        ),
    )
    rows = [
        (name, retrieval.PAPER_DATA, *map(_one_decimal, row))
        for name, row in retrieval.PAPER.items()
    ]
    used = []
    for run in runs:
        if run.config["experiment"] != "experiments.order_embeddings":
            continue
        scores = _last(run, "final", retrieval.COLUMNS)
        if not scores:
            continue
        used.append(run)
        kind = {"order": "OE", "cosine": "Sym"}[run.config["model"]["similarity"]]
        kind += " + LN" if run.config["norm"] == "layer" else ""
        folds = "{folds} x {fold} images".format(**run.config["evaluation"])
        where = f"{_data(run, retrieval.NAMES)}, {folds}, {run.step:,} steps"
        rows.append(
            (f"{kind} (seed {run.config['seed']})", where, *map(_one_decimal, scores))
        )
    note = f"The paper: mean over 5 folds of 1,000 images. Rows with other data are {NOT_COMPARABLE}. Ties count against the model."
    return Table(
        2,
        "Caption and image retrieval",
        head,
        tuple(rows),
        note,
        tuple(used),
        _command("order_embeddings"),
    )


PAPER_TABLE_3 = {
    "original (Kiros et al. 2015)": (0.848, 0.778, 0.287, 75.5, 79.3, 92.1, 86.9),
    "the paper's": (0.842, 0.767, 0.298, 77.3, 81.8, 92.6, 87.9),
    "the paper's + LN": (0.854, 0.785, 0.277, 79.5, 82.6, 93.4, 89.0),
    "the paper's + LN, 1.7M": (0.858, 0.788, 0.270, 79.4, 83.1, 93.7, 89.3),
}
TASKS = (
    "sick/pearson",
    "sick/spearman",
    "sick/mse",
    "mr/accuracy",
    "cr/accuracy",
    "subj/accuracy",
    "mpqa/accuracy",
)


def skip_thoughts(runs: Iterable[Run]) -> Table:
    """Table 3: the transfer tasks, at the last checkpoint of each run that was scored on them, or on generated ones."""
    head = (
        "method",
        "corpus",
        "SICK r",
        "SICK rho",
        "SICK MSE",
        "MR",
        "CR",
        "SUBJ",
        "MPQA",
    )
    rows = [
        (name, "BookCorpus, 2400-d, 1M steps", *_scores(row))
        for name, row in PAPER_TABLE_3.items()
    ]
    used = []
    for run in runs:
        if run.config["experiment"] != "experiments.skip_thoughts":
            continue
        tasks = [run.name_of(task) for task in TASKS]
        records = [r for r in run.records if all(task in r for task in tasks)]
        if not records:
            continue
        used.append(run)
        name = "skip-thoughts" + (" + LN" if run.config["norm"] == "layer" else "")
        generated = " and generated tasks" if tasks[0] != TASKS[0] else ""
        corpus = f"{_data(run, {'bookcorpus': 'BookCorpus'})}{generated}; {run.config['model']['units']}-d, {records[-1]['step']:,} steps"
        rows.append(
            (
                f"{name} (seed {run.config['seed']})",
                corpus,
                *_scores([records[-1][task] for task in tasks]),
            )
        )
    note = f"Rows with another corpus, other tasks, width or number of steps are {NOT_COMPARABLE}."
    return Table(
        3,
        "Skip-thoughts",
        head,
        tuple(rows),
        note,
        tuple(used),
        _command("skip_thoughts"),
    )


def _command(name: str) -> str:
    return f"python -m lnrepro.main --config=configs/{name}.py:paper"


def _data(run: Run, names: Mapping[str, str]) -> str:
    name = run.config["data"]["name"]
    return names.get(name, name)


def _last(run: Run, split: str, columns: Sequence[str]) -> list[float] | None:
    """The scores of `--evaluate` (the best checkpoint), else those at the end of training; None if there are neither."""
    file = run.folder / "evaluation.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for record in (found, *reversed(run.records)):
        if all(f"{split}/{column}" in record for column in columns):
            return [record[f"{split}/{column}"] for column in columns]
    return None


def _one_decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _scores(row: Sequence[float]) -> list[str]:
    return [f"{v:.3f}" for v in row[:3]] + [f"{v:.1f}" for v in row[3:]]
