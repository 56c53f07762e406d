"""The paper's Tables 2 and 3 with its rows and ours, and tables of means over seeds.

`scripts/theory.py` computes Table 1.
"""

import collections
from collections.abc import Iterable, Iterator, Sequence

from experiments import paper_results as paper
from scripts import markdown as md
from scripts.paper import compare, protocols, verdicts
from scripts.paper.claims import CLAIMS, NORMS, PLAN
from scripts.paper.records import Record, RecordedRun, difference

NOT_COMPARABLE = "not to be compared with the paper's rows"
# The norm that the others are compared with.
BASELINE = "none"
AGAINST = f"steps to {BASELINE}'s best", f"end minus {BASELINE}'s"


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


def ends(metric: str, runs: Iterable[RecordedRun], best: str) -> str:
    """Return the end of each norm, beside that of `BASELINE` at the same settings.

    Only finished runs count. An end is the mean and the standard deviation over seeds
    of the last tenth of the evaluations.

    Args:
      metric: name of the metric.
      runs: the runs that have recorded it.
      best: whether the "min" or the "max" of it is better.
    """
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        if run.finished:
            data = "data", run.data
            groups[data, *run.settings()][run.config.norm].append(run)
    rows = []
    for own, of_norm in groups.items():
        settings = difference(own, groups)
        curves = {n: compare.by_seed(of, metric) for n, of in of_norm.items()}
        baseline = curves.get(BASELINE, {})
        for norm in sorted(curves, key=lambda norm: (norm != BASELINE, norm)):
            against = ["", ""]
            if norm != BASELINE and curves[norm].keys() & baseline.keys():
                sign = 1 if best == "min" else -1
                pairs = compare.paired(curves[norm], baseline, sign)
                if len(pairs.steps):
                    against = [_number(kind, pairs) for kind in verdicts.QUANTITIES]
            n_seeds = str(len(curves[norm]))
            rows.append((settings, norm, n_seeds, _end(curves[norm])[1], *against))
    head = ("settings", "norm", "seeds", "end", *AGAINST)
    return md.table(head, sorted(rows, key=lambda row: row[0])) + "\n"


def _end(curves) -> tuple[float, str]:
    """Return the mean end of the seeds, and it as text."""
    ends = compare.of_seeds(compare.paired(curves, curves, 1).better)
    spread = f" +- {ends.std(ddof=1):.3g}" if len(ends) > 1 else ""
    return ends.mean(), f"{ends.mean():.4g}{spread}"


def _number(kind, pairs):
    return verdicts.number(verdicts.judged(kind, pairs), kind)


def tuned(runs: Sequence[RecordedRun]) -> str:
    """Return the end of each norm at its own best rate, for the metric of each claim.

    Args:
      runs: the runs.
    """
    rows = {}
    for claim in CLAIMS:
        of_norm = collections.defaultdict(list)
        for run in runs:
            is_tuned = run.finished and protocols.belongs(run, protocols.TUNED)
            if is_tuned and claim.is_about(run):
                of_norm[run.config.norm, run.rate].append(run)
        ends = []
        for (norm, rate), of in of_norm.items():
            mean, text = _end(compare.by_seed(of, claim.metric))
            ends.append((claim.sign * mean, f"{norm} ({rate:g}) {text}"))
        texts = "; ".join(text for _, text in sorted(ends))
        better = "lower" if claim.sign == 1 else "higher"
        rows[claim.part, claim.quantity] = better, texts
    head = ("", "metric", "better", "end, the best first")
    return md.table(head, [(*names, *cells) for names, cells in rows.items()])


def plan() -> str:
    """Return the primary questions, with learning rates and the effect in the pilot."""
    rows = []
    for number, question in enumerate(PLAN, 1):
        claim = question.claim
        names = f"{NORMS[claim.better]} against {NORMS[claim.baseline]}"
        of_batch = f", batch size {claim.batch_size}" if claim.batch_size else ""
        rates = " and ".join(f"{rate:g}" for rate in question.rates)
        about = (
            f"{question.section}{of_batch}",
            f"{claim.quantity}: {names}",
            claim.kind,
        )
        rows.append((str(number), *about, rates, f"{question.pilot:+g}"))
    head = ("", "section", "question", "number", "learning rates", "pilot")
    return md.table(head, rows)
