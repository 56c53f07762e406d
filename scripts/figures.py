"""Draw the paper's figures and tables from runs.

    python scripts/figures.py RUN_OR_FOLDER ... --out DIR [--figure N] [--table N]
    python scripts/figures.py RUN_OR_FOLDER ... --out DIR --metric NAME

    python scripts/figures.py runs --out figures
    python scripts/figures.py runs/draw --out figures --figure 4
    python scripts/figures.py my_runs --out figures --metric valid/perplexity

Figure 7 is the remark of section 6.7. It writes figureN.png, .svg and .csv, tableN.png,
.svg and .md, verdicts.md, which says what the runs show of the paper's claims, and
index.html, which shows them all with the commands, data sets and versions that they
were made from. figureN-shares.png, .svg and .csv show how many of the steps layer norm
needs to reach what another norm has, over its steps.
Runs of an experiment of your own are drawn as EXPERIMENT.png, .svg and .csv, with a
panel for each metric of its config.curves.
Curves are medians over seeds, bands are their range. The paper's own numbers are drawn
only beside runs on the paper's data. For what is missing, the page names the command
that makes it.

--metric draws a metric of metrics.jsonl from the runs of any experiment, a panel for
each experiment, without the paper's axes. METRIC.md is a table of where each norm ends,
and of how soon it has the best of "none" at the same settings, with intervals.
"""

import pathlib

from lnrepro.engine.command_line import Parser
from lnrepro.errors import ended
from scripts import markdown

# The paper has six figures with results. 7 is the remark about
# convolutional networks in section 6.7.
FIGURE_NUMBERS = range(1, 8)
TABLE_NUMBERS = range(1, 4)


def main(argv: list[str]) -> None:
    """Draw figures and tables.

    Raises:
      UserError: a wrong flag, or a folder without runs.
    """
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        type=pathlib.Path,
        help="run directories, files *.runs.jsonl, or folders that contain some",
    )
    add(
        "--out",
        required=True,
        type=pathlib.Path,
        metavar="DIR",
        help="where the pictures go",
    )
    for name, numbers in (("figure", FIGURE_NUMBERS), ("table", TABLE_NUMBERS)):
        add(
            f"--{name}",
            type=int,
            action="append",
            choices=numbers,
            help=f"only this {name}; may be repeated",
        )
    add(
        "--metric",
        action="append",
        metavar="NAME",
        help="only the curves of this metric, such as valid/error; may be repeated",
    )
    add(
        "--best",
        choices=("min", "max"),
        default="min",
        help="whether small or large values of --metric are better",
    )
    args = parser.parse_args(argv)
    metrics = sorted(set(args.metric or ()))
    figures, tables = sorted(set(args.figure or ())), sorted(set(args.table or ()))
    # Without a choice, all are drawn.
    is_all = not (figures or tables or metrics)
    if is_all:
        figures, tables = FIGURE_NUMBERS, TABLE_NUMBERS

    # Imported late: --help and wrong flags need none of it.
    from scripts.paper import own, page, records

    found = records.find(args.runs)
    args.out.mkdir(parents=True, exist_ok=True)
    parts = []
    if is_all:
        for name, runs in own.of_experiments(found).items():
            parts.append(draw_curves(name, runs, args.out))
    parts += [draw_figure(number, found, args.out) for number in figures]
    parts += [draw_table(number, found, args.out) for number in tables]
    parts += [draw_metric(metric, args.best, found, args.out) for metric in metrics]
    if len(figures) == len(FIGURE_NUMBERS):
        parts.append(write_verdicts(found, args.out))
    page.write(parts, args.out / "index.html")
    for part in parts:
        print(part.line)
    print(f"look at {args.out / 'index.html'}")


def write_verdicts(runs, out):
    """Write verdicts.md, and return the part of the page about the claims."""
    from scripts.paper import page, verdicts
    from scripts.paper.claims import CLAIMS

    rows = verdicts.of_runs(runs, CLAIMS)
    (out / "verdicts.md").write_text(verdicts.markdown(rows), encoding="utf-8")
    return page.verdicts_part(rows)


def draw_figure(number, runs, out):
    """Write the pictures and points of a figure, and return its part of the page."""
    from scripts.paper import claims, page, picture, shares, verdicts
    from scripts.paper.axes import FIGURES
    from scripts.paper.records import of_figure

    figure = FIGURES[number]
    runs = of_figure(runs, figure)
    panels = picture.curves_of(figure, runs)
    has_curves = any(panel.curves for panel in panels)
    # Without runs, the page still has a section with the commands that would make them.
    if has_curves:
        caption = page.caption(figure, runs)
        picture.draw(figure, panels, caption, out / f"figure{number}")
        picture.write_points(figure, panels, out / f"figure{number}.csv")
    rows = verdicts.of_runs(runs, claims.of_figure(figure))
    has_shares = shares.draw(figure, rows, out / f"figure{number}-shares")
    sentences = verdicts.sentences(rows)
    return page.figure_part(figure, runs, has_curves, has_shares, sentences, out)


def draw_table(number, runs, out):
    """Write a table, and return its part of the page."""
    from scripts.paper import page, picture, tables

    table = tables.TABLES[number](runs)
    picture.draw_table(table, out / f"table{number}")
    (out / f"table{number}.md").write_text(table.markdown(), encoding="utf-8")
    return page.table_part(table, out)


def draw_metric(metric, best, runs, out):
    """Write what is known of a metric, and return its part of the page."""
    from scripts.paper import own

    runs = own.with_metric(runs, metric)
    rows = own.table(metric, runs, best)
    text = markdown.table(own.HEAD, rows)
    (out / f"{own.file_name(metric)}.md").write_text(f"{text}\n", encoding="utf-8")
    return _draw_own(metric, own.figure(metric, runs), runs, out, rows)


def draw_curves(experiment, runs, out):
    """Write `config.curves` of an experiment, and return its part of the page."""
    from scripts.paper import own

    figure = own.figure_of_curves(experiment, runs)
    return _draw_own(experiment.rpartition(".")[2], figure, runs, out)


def _draw_own(name, figure, runs, out, rows=()):
    from scripts.paper import own, page, picture

    stem = out / own.file_name(name)
    panels = picture.curves_of(figure, runs)
    caption = own.caption(name, runs)
    picture.draw(figure, panels, caption, stem)
    picture.write_points(figure, panels, stem.with_suffix(".csv"))
    return page.own_part(name, stem.name, caption, runs, out, rows)


if __name__ == "__main__":
    ended(main, "drawing figures")
