"""Draw the paper's figures and tables from runs.

    python scripts/figures.py RUN_OR_FOLDER ... --out DIR [--figure N]
    python scripts/figures.py RUN_OR_FOLDER ... --out DIR --metric NAME

    python scripts/figures.py runs --out figures
    python scripts/figures.py runs/draw --out figures --figure 4
    python scripts/figures.py my_runs --out figures --metric valid/perplexity

It writes these files, and index.md, which shows those of this call. For a figure
without runs, it names the command that trains them.
answers.png and .svg: the questions of the plan, from their seeds.
forest.png and .svg: for each claim, how many of the other norm's steps a norm needs.
verdicts.md: the answers to the questions of the plan, and all claims in numbers.
figureN.png, .svg and .csv: figure 7 is the remark of section 6.7. Curves are medians
over seeds, bands are their range. Seeds of the pilot are not drawn beside those of the
plan. The paper's own numbers are drawn only beside runs on the paper's data.
table2.md belongs to figure 1, and table3.md to figure 3; `scripts/theory.py` computes
Table 1.

--rates writes rates.md: which learning rate is best for each norm, in the metric of the
plan's question, among runs of the same settings.

--metric draws a metric of metrics.jsonl from the runs of any experiment. METRIC.md is a
table of where each norm ends, and of how soon it has the best of "none" at the same
settings, with intervals.
"""

import pathlib
import re
from collections.abc import Collection, Iterable, Sequence

from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, run_script
from scripts.paper.axes import FIGURES


def main(argv: list[str]) -> None:
    """Draw figures and tables.

    Raises:
      UserError: a wrong flag, a folder without runs, or a metric that no run has.
    """
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("runs", nargs="+", type=pathlib.Path, help="run directories, *.runs.jsonl, ...")
    add("--out", required=True, type=pathlib.Path, metavar="DIR")
    many = {"action": "append", "default": []}
    add("--figure", type=int, choices=FIGURES, **many, help="only this figure")
    add("--metric", **many, metavar="NAME", help="only this metric: valid/error")
    help_best = "which way --metric is better; by its name if this is not given"
    add("--best", choices=("min", "max"), help=help_best)
    add("--rates", action="store_true", help="only the table of learning rates")
    args = parser.parse_args(argv)
    # Imported late: --help and wrong flags need none of it.
    from scripts.paper.records import find

    runs = find(args.runs)
    if not (args.figure or args.metric or args.rates):
        draw_all(runs, args.out)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    written = []
    for number in args.figure:
        written += draw_figure(number, runs, args.out)
    for metric in args.metric:
        written += draw_metric(metric, runs, args.out, args.best)
    if args.rates:
        from scripts.paper import ends

        written.append(_write(args.out / "rates.md", ends.rates(runs)))
    write_index(args.out, written)


def draw_all(
    runs: Sequence, out: pathlib.Path, experiments: Collection[str] | None = None
) -> None:
    """Draw the claims, and all figures and tables, or those of some experiments."""
    from scripts.paper import forest, tables, verdicts
    from scripts.paper.claims import CLAIMS, SEEDS
    from scripts.paper.protocols import TUNED

    out.mkdir(parents=True, exist_ok=True)
    # The seeds of the plan are not pooled with others.
    others = [run for run in runs if run.seed not in SEEDS]
    rows = verdicts.of_runs(others, CLAIMS)
    parts, written = [], []
    if rows:
        written.append(forest.draw(rows, out / "forest"))
    if len(others) < len(runs):
        found = verdicts.answers(runs)
        parts.append(tables.answers(tables.answered(runs, found)))
        written.append(forest.draw_answers(found[TUNED], out / "answers"))
    if rows or not parts:
        parts.append(tables.claims(rows))
    written.append(_write(out / "verdicts.md", "\n\n".join(parts)))
    for number, figure in FIGURES.items():
        if experiments is None or figure.experiment in experiments:
            written += draw_figure(number, runs, out)
    write_index(out, written)


def draw_figure(number: int, runs: Sequence, out: pathlib.Path) -> list[pathlib.Path]:
    """Draw a figure of the paper and its table, or name the command for its runs.

    Returns:
      The picture and the table, as far as they are written.
    """
    from scripts.paper import curves
    from scripts.paper.claims import PILOT, SEEDS
    from scripts.paper.tables import TABLES, beside_the_paper

    figure = FIGURES[number]
    shown = [(figure.experiment, norm) for norm in figure.norms]
    own = [run for run in runs if (run.experiment, run.norm) in shown]
    what = "runs"
    # The pilot is never pooled with the seeds of the plan.
    if any(run.seed in SEEDS for run in own):
        what = "runs without those of the pilot"
        own = [run for run in own if run.seed not in PILOT]
    sweep = f"python scripts/sweep.py configs/{figure.experiment}.py:paper"
    print(f"figure {number}, {what}: {len(own) or f'none; {sweep}  trains them'}")
    written = curves.draw(figure, own, out / f"figure{number}")
    if number in TABLES:
        table = beside_the_paper(number, runs)
        written.append(_write(out / f"{TABLES[number].name}.md", table))
    return written


def draw_metric(
    metric: str, runs: Sequence, out: pathlib.Path, best: str | None
) -> list[pathlib.Path]:
    """Draw a metric, and write the table of where the norms end in it.

    Returns:
      The table, and the picture if there is one.

    Raises:
      UserError: no run has recorded it.
    """
    from scripts.paper import claims, curves, ends

    own = [run for run in runs if any(metric in record for record in run.records)]
    if not own:
        raise UserError(f"no run has recorded the metric {metric!r}")
    # valid_error for valid/error.
    name = re.sub(r"\W+", "_", metric)
    sign = {"min": 1, "max": -1, None: claims.sign(metric)}[best]
    table = _write(out / f"{name}.md", ends.of_metric(metric, own, sign))
    return [table, *curves.draw(curves.of_metric(metric, own), own, out / name)]


def _write(path, table):
    path.write_text(f"{table}\n", encoding="utf-8")
    return path


def write_index(out: pathlib.Path, written: Iterable[pathlib.Path]) -> None:
    """Write index.md, which shows the given pictures and tables of a folder."""
    index = out / "index.md"
    parts = ["<!-- written by scripts/figures.py -->\n"]
    for path in sorted(written):
        shown = f"![]({path.name})\n"
        if path.suffix == ".md":
            shown = path.read_text(encoding="utf-8")
        parts.append(f"## {path.stem}\n\n{shown}")
    index.write_text("\n".join(parts), encoding="utf-8")
    print(f"look at {index}")


if __name__ == "__main__":
    run_script(main, "drawing figures")
