"""Draw the paper's figures and tables from runs.

    python scripts/figures.py RUN_OR_FOLDER ... --out DIR [--figure N] [--table N]
    python scripts/figures.py RUN_OR_FOLDER ... --out DIR --metric NAME

    python scripts/figures.py runs --out figures
    python scripts/figures.py runs/draw --out figures --figure 4
    python scripts/figures.py my_runs --out figures --metric valid/perplexity

It writes index.md, which shows everything and names the command for what is missing:
forest.png and .svg: for each claim, how many of the other norm's steps a norm needs.
verdicts.md: the table of the claims.
figureN.png, .svg and .csv: figure 7 is the remark of section 6.7. Curves are medians
over seeds, bands are their range. The paper's own numbers are drawn only beside runs on
the paper's data.
table2.md and table3.md; `scripts/theory.py` computes Table 1.
EXPERIMENT.png, .svg and .csv: for experiments of your own, a panel for each metric of
config.curves.

--metric draws a metric of metrics.jsonl from the runs of any experiment. METRIC.md is a
table of where each norm ends, and of how soon it has the best of "none" at the same
settings, with intervals.
"""

import difflib
import pathlib
import re
from collections.abc import Sequence

from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, ended

FIGURE_NUMBERS = range(1, 8)
TABLE_NUMBERS = range(2, 4)


def main(argv: list[str]) -> None:
    """Draw figures and tables.

    Raises:
      UserError: a wrong flag, or a folder without runs.
    """
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("runs", nargs="+", type=pathlib.Path, help="run directories, *.runs.jsonl, ...")
    add("--out", required=True, type=pathlib.Path, metavar="DIR")
    many = {"action": "append", "default": []}
    add("--figure", type=int, choices=FIGURE_NUMBERS, **many, help="only this figure")
    add("--table", type=int, choices=TABLE_NUMBERS, **many, help="only this table")
    add("--metric", **many, metavar="NAME", help="only this metric: valid/error")
    add("--best", choices=("min", "max"), default="min", help="of --metric")
    args = parser.parse_args(argv)
    # Imported late: --help and wrong flags need none of it.
    from scripts.paper import records

    found = records.find(args.runs)
    _check_metrics(args.metric, found)
    chosen = [sorted(set(names)) for names in (args.figure, args.table, args.metric)]
    if any(chosen):
        draw(found, args.out, *chosen, args.best)
    else:
        draw(found, args.out)
    print(f"look at {args.out / 'index.md'}")


def _check_metrics(metrics, runs):
    """Raise UserError where no run has a metric."""
    names = {name for run in runs for record in run.records for name in record}
    for metric in metrics:
        if metric not in names:
            near = difflib.get_close_matches(metric, names, 1, 0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(f"no run has recorded the metric {metric!r}{hint}")


def draw(
    runs: Sequence,
    out: pathlib.Path,
    figures: Sequence[int] | None = None,
    tables: Sequence[int] = TABLE_NUMBERS,
    metrics: Sequence[str] = (),
    best: str = "min",
) -> None:
    """Draw figures and tables, print a line about each, and write index.md.

    Args:
      runs: the runs.
      out: the folder.
      figures: numbers of figures; None: all, the claims, and experiments of one's own.
      tables: numbers of tables.
      metrics: names of metrics.
      best: whether the "min" or the "max" of the metrics is better.
    """
    out.mkdir(parents=True, exist_ok=True)
    # Each section is (its title, its text).
    sections = []
    if figures is None:
        figures = FIGURE_NUMBERS
        sections = [_claims(runs, out), *_own_experiments(runs, out)]
    sections += [_figure(number, runs, out) for number in figures]
    sections += [_table(number, runs, out) for number in tables]
    sections += [_metric(metric, best, runs, out) for metric in metrics]
    parts = ["# Layer Normalization: figures and tables, from runs"]
    for title, text in sections:
        print(title)
        parts.append(f"## {title}\n\n{text}")
    (out / "index.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _claims(runs, out):
    from scripts.paper import forest, verdicts
    from scripts.paper.claims import CLAIMS

    rows = verdicts.of_runs(runs, CLAIMS)
    text = verdicts.markdown(rows)
    (out / "verdicts.md").write_text(text, encoding="utf-8")
    if forest.draw(rows, out / "forest"):
        text = f"![share of the steps, for every claim](forest.png)\n\n{text}"
    return f"{len(rows)} verdicts", text


def _figure(number, runs, out):
    from scripts.paper.axes import FIGURES

    figure = FIGURES[number]
    runs = [run for run in runs if run.experiment == figure.experiment]
    runs = [run for run in runs if run.config.norm in figure.legends]
    text = _curves(figure, runs, out, f"figure{number}")
    trained = {run.config.norm for run in runs}
    absent = [norm for norm in figure.curves if norm not in trained]
    title = f"figure {number}: {_count(runs)}"
    if absent:
        # A sweep trains all norms of the figure.
        title += f", without {', '.join(absent)}"
        text += f"\n\n    python scripts/sweep.py {figure.config}"
    return title, text


def _curves(figure, runs, out, name):
    """Write the picture and the points of a figure; return its text."""
    from scripts.paper import curves, plot

    panels = curves.of_figure(figure, runs)
    if not any(panel.lines for panel in panels):
        return ""
    text = curves.caption(figure, runs)
    plot.draw(panels, out / name, text, figure.columns)
    curves.write_points(figure, panels, out / f"{name}.csv")
    return f"![]({name}.png)\n\n{text}"


def _count(runs):
    return f"{len(runs)} run" if len(runs) == 1 else f"{len(runs)} runs"


def _table(number, runs, out):
    from scripts.paper.tables import TABLES

    function, config = TABLES[number]
    text, used = function(runs)
    (out / f"table{number}.md").write_text(text, encoding="utf-8")
    title = f"table {number}: {_count(used)}"
    if not used:
        text += f"\n    python -m lnrepro.main --config={config}\n"
    return title, text


def _own_experiments(runs, out):
    """Draw config.curves of the experiments that have no figure of the paper."""
    from scripts.paper import curves
    from scripts.paper.axes import FIGURES

    papers = {figure.experiment for figure in FIGURES.values()}
    for experiment in sorted({run.experiment for run in runs} - papers):
        own = [run for run in runs if run.experiment == experiment]
        panels = [panel for run in own for panel in run.config.get("curves", ())]
        if panels:
            name = experiment.rpartition(".")[2]
            figure = curves.own_figure(name, own, panels)
            yield f"{name}: {_count(own)}", _curves(figure, own, out, name)


def _metric(metric, best, runs, out):
    from scripts.paper import curves, tables

    runs = [run for run in runs if any(metric in record for record in run.records)]
    # valid_error for valid/error.
    name = re.sub(r"\W+", "_", metric)
    table = tables.ends(metric, runs, best)
    (out / f"{name}.md").write_text(f"{table}\n", encoding="utf-8")
    figure = curves.own_figure(metric, runs, [(metric, [metric], "linear")])
    text = _curves(figure, runs, out, name)
    return f"{metric}: {_count(runs)}", f"{text}\n\n{table}"


if __name__ == "__main__":
    ended(main, "drawing figures")
