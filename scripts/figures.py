"""Draw the paper's figures and tables from runs.

    python scripts/figures.py RUN_OR_FOLDER ... --out DIR [--figure N] [--table N]
    python scripts/figures.py RUN_OR_FOLDER ... --out DIR --metric NAME

    python scripts/figures.py runs --out figures
    python scripts/figures.py runs/draw --out figures --figure 4
    python scripts/figures.py my_runs --out figures --metric valid/perplexity

It writes these files, and index.md, which shows them. For what is missing, it names the
command that trains it.
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
    from scripts.paper.records import find

    runs = find(args.runs)
    names = {name for run in runs for record in run.records for name in record}
    for metric in args.metric:
        if metric not in names:
            near = difflib.get_close_matches(metric, names, 1, 0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(f"no run has recorded the metric {metric!r}{hint}")
    args.out.mkdir(parents=True, exist_ok=True)
    if not (args.figure or args.table or args.metric):
        draw_all(runs, args.out)
    for number in sorted(set(args.figure)):
        draw_figure(number, runs, args.out)
    for number in sorted(set(args.table)):
        draw_table(number, runs, args.out)
    for metric in sorted(set(args.metric)):
        draw_metric(metric, runs, args.out, args.best)
    write_index(args.out)


def draw_all(runs: Sequence, out: pathlib.Path) -> None:
    """Draw the claims, all figures and tables, and experiments of one's own."""
    from scripts.paper import curves, forest, verdicts
    from scripts.paper.axes import FIGURES
    from scripts.paper.claims import CLAIMS

    out.mkdir(parents=True, exist_ok=True)
    rows = verdicts.of_runs(runs, CLAIMS)
    forest.draw(rows, out / "forest")
    (out / "verdicts.md").write_text(verdicts.markdown(rows), encoding="utf-8")
    print(f"{len(rows)} verdicts")
    papers = {figure.experiment for figure in FIGURES.values()}
    for experiment in sorted({run.experiment for run in runs} - papers):
        own = [run for run in runs if run.experiment == experiment]
        panels = [panel for run in own for panel in run.config.get("curves", ())]
        name = experiment.rpartition(".")[2]
        if panels:
            print(f"{name}: {count(own)}")
            curves.draw(curves.own_figure(name, panels, own), own, out / name)
    for number in FIGURE_NUMBERS:
        draw_figure(number, runs, out)
    for number in TABLE_NUMBERS:
        draw_table(number, runs, out)


def draw_figure(number: int, runs: Sequence, out: pathlib.Path) -> None:
    """Draw a figure of the paper, and name the command for what is missing."""
    from scripts.paper import curves
    from scripts.paper.axes import FIGURES

    figure = FIGURES[number]
    own = [run for run in runs if run.experiment == figure.experiment]
    own = [run for run in own if run.config.norm in figure.legends]
    curves.draw(figure, own, out / f"figure{number}")
    trained = {run.config.norm for run in own}
    line = f"figure {number}: {count(own)}"
    if absent := [norm for norm in figure.curves if norm not in trained]:
        line += f", without {', '.join(absent)}; "
        # A sweep trains all norms of the figure.
        line += f"python scripts/sweep.py configs/{figure.experiment}.py:paper"
    print(line)


def draw_table(number: int, runs: Sequence, out: pathlib.Path) -> None:
    """Write Table 2 or 3 of the paper, with its rows and ours."""
    from scripts.paper.tables import TABLES

    text = TABLES[number](runs)
    (out / f"table{number}.md").write_text(text, encoding="utf-8")
    print(f"table {number}")


def draw_metric(metric: str, runs: Sequence, out: pathlib.Path, best: str) -> None:
    """Draw a metric, and write the table of where the norms end in it."""
    from scripts.paper import curves, tables

    own = [run for run in runs if any(metric in record for record in run.records)]
    # valid_error for valid/error.
    name = re.sub(r"\W+", "_", metric)
    (out / f"{name}.md").write_text(tables.ends(metric, own, best), encoding="utf-8")
    panels = [(metric, [metric], "linear")]
    curves.draw(curves.own_figure(metric, panels, own), own, out / name)
    print(f"{metric}: {count(own)}")


def count(runs: Sequence) -> str:
    """Return such as "3 runs"."""
    return f"{len(runs)} run" if len(runs) == 1 else f"{len(runs)} runs"


def write_index(out: pathlib.Path) -> None:
    """Write index.md, which shows all pictures and tables of a folder."""
    parts = []
    for path in sorted(out.glob("*.png")):
        parts.append(f"## {path.stem}\n\n![]({path.name})\n")
    for path in sorted(out.glob("*.md")):
        if path.name != "index.md":
            parts.append(f"## {path.stem}\n\n{path.read_text(encoding='utf-8')}")
    (out / "index.md").write_text("\n".join(parts), encoding="utf-8")
    print(f"look at {out / 'index.md'}")


if __name__ == "__main__":
    ended(main, "drawing figures")
