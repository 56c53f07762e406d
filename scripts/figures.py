"""The paper's figures and tables from runs: python scripts/figures.py RUN_OR_FOLDER ... --out DIR [--figure N] [--table N]

    python scripts/figures.py runs --out figures          everything that the runs below runs/ can show
    python scripts/figures.py runs/draw --out figures --figure 4

Writes figureN.png, .svg and .csv, tableN.png, .svg and .md, and index.html, which shows them all with the commands, data
sets and versions they came from. Curves are medians over seeds, bands their range. Numbers the paper prints are drawn
only beside runs on the paper's own data. What is missing is named with the command that makes it.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lnrepro.engine.errors import ended


def main(argv: list[str]) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=pathlib.Path,
        help="run directories, or folders that hold some",
    )
    parser.add_argument(
        "--out",
        required=True,
        type=pathlib.Path,
        metavar="DIR",
        help="where the pictures go",
    )
    parser.add_argument(
        "--figure",
        type=int,
        action="append",
        choices=range(1, 7),
        help="this figure only; repeatable",
    )
    parser.add_argument(
        "--table",
        type=int,
        action="append",
        choices=range(1, 4),
        help="this table only; repeatable",
    )
    args = parser.parse_args(argv)

    from scripts.paper import claims, page, picture, tables
    from scripts.paper.axes import FIGURES
    from scripts.paper.runs import find, of_figure

    runs, everything = find(args.runs), not (args.figure or args.table)
    args.out.mkdir(parents=True, exist_ok=True)
    parts: list[page.Part] = []
    for number in range(1, 7) if everything else sorted(set(args.figure or ())):
        figure = FIGURES[number]
        own = of_figure(runs, figure)
        panels = picture.drawn(figure, own)
        shown = any(firsts for _, firsts, _ in panels)
        if shown:
            caption = page.caption(figure, own)
            picture.draw(figure, panels, caption, args.out / f"figure{number}")
            picture.points(figure, panels, args.out / f"figure{number}.csv")
        parts.append(
            page.figure_part(figure, own, shown, claims.sentences(figure, panels))
        )
    for number in range(1, 4) if everything else sorted(set(args.table or ())):
        table = (tables.invariances, tables.order_embeddings, tables.skip_thoughts)[
            number - 1
        ]
        table = table() if number == 1 else table(runs)
        picture.draw_table(table, args.out / f"table{number}")
        (args.out / f"table{number}.md").write_text(table.markdown(), encoding="utf-8")
        parts.append(page.table_part(table))
    page.write(parts, args.out / "index.html")
    for part in parts:
        print(part.line)
    print(f"look at {args.out / 'index.html'}")


if __name__ == "__main__":
    ended(main, "drawing figures")
