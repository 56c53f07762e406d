"""index.html: every figure and table with what it was made from; one file beside the pictures, readable offline."""

import html
import json
import pathlib
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from scripts.paper.axes import Figure
from scripts.paper.runs import Run
from scripts.paper.tables import Table

CSS = """
body { font-family: Georgia, serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
img { max-width: 100%; } code, pre { font-size: .82rem; background: #f5f5f5; } pre { padding: .5rem; overflow-x: auto; }
summary { cursor: pointer; } .missing { color: #a00; } table { border-collapse: collapse; font-size: .85rem; }
td, th { border-bottom: 1px solid #ddd; padding: .2rem .6rem; text-align: left; }
"""


class Part(NamedTuple):
    """A section of the page, and the line that is printed of it."""

    html: str
    line: str


def caption(figure: Figure, runs: Sequence[Run]) -> str:
    """What stands below a figure: number, data set and how far the runs went; and a warning on data of ours."""
    sets = sorted({run.config["data"]["name"] for run in runs})
    steps = sorted({run.step for run in runs})
    how_far = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    text = f"Figure {figure.number}, {figure.name}. Data: {', '.join(sets)}; {how_far} steps."
    if sets != [figure.paper_data]:
        return (
            text
            + f" The paper's data is {figure.paper_data}: not to be compared with its curves."
        )
    (x0, x1), (y0, y1) = figure.xlim, figure.panels[0].ylim
    return (
        text
        + f" The paper's axes: {figure.xlabel} {x0:g} to {x1:g}, {figure.panels[0].ylabel} {y0:g} to {y1:g}."
    )


def figure_part(
    figure: Figure, runs: Sequence[Run], shown: bool, claims: Sequence[str]
) -> Part:
    """A figure with its claims and its runs, or the command that would make it."""
    absent = [
        norm
        for norm in figure.curves
        if norm not in {run.config["norm"] for run in runs}
    ]
    commands = [f"python scripts/sweep.py {_config(figure)} --launcher local"]
    commands += [
        f"python -m lnrepro.main --config={_config(figure)} --config.norm={norm}"
        for norm in absent
    ]
    title = f"<h2 id='figure{figure.number}'>Figure {figure.number}. {html.escape(figure.name)}</h2>"
    missing = ""
    if absent:
        lines = "\n".join(commands)
        missing = f"<p class='missing'>Missing: {', '.join(absent)}. Made by</p><pre>{html.escape(lines)}</pre>"
    if not shown:
        return Part(
            title + missing,
            f"figure {figure.number}: no runs of {figure.experiment}; {commands[0]}",
        )
    body = _picture(f"figure{figure.number}", caption(figure, runs))
    body += (
        "".join(f"<p>{html.escape(claim)}</p>" for claim in claims)
        + missing
        + _made_from(runs)
    )
    also = f", without {', '.join(absent)}" if absent else ""
    return Part(title + body, f"figure {figure.number}: {_count(runs)}{also}")


def table_part(table: Table) -> Part:
    """A table with its runs, or the command that would make our rows."""
    title = f"<h2 id='table{table.number}'>Table {table.number}. {html.escape(table.name)}</h2>"
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>"
        for row in table.rows
    )
    head = "".join(f"<th>{html.escape(c)}</th>" for c in table.head)
    body = f"<table><tr>{head}</tr>{rows}</table><p>{html.escape(table.note)}</p>"
    if table.missing and not table.runs:
        body += f"<p class='missing'>No row of ours. Made by</p><pre>{html.escape(table.missing)}</pre>"
        return Part(
            title + body, f"table {table.number}: no row of ours; {table.missing}"
        )
    return Part(
        title + body + _made_from(table.runs),
        f"table {table.number}: {_count(table.runs) if table.runs else 'computed'}",
    )


def write(parts: Sequence[Part], path: pathlib.Path) -> None:
    """Write the page."""
    head = f"<!doctype html><html lang='en'><meta charset='utf-8'><title>Layer Normalization, regenerated</title><style>{CSS}</style>"
    body = "<h1>Layer Normalization: figures and tables, from runs</h1>" + "".join(
        part.html for part in parts
    )
    path.write_text(f"{head}<body>{body}</body></html>\n", encoding="utf-8")


def _count(runs: Sequence[Run]) -> str:
    return f"{len(runs)} run{'s' if len(runs) != 1 else ''}"


def _config(figure: Figure) -> str:
    return figure.config.partition(" ")[0]


def _picture(name: str, text: str) -> str:
    links = " ".join(
        f"<a href='{name}.{kind}'>{kind}</a>" for kind in ("png", "svg", "csv")
    )
    return f"<figure><img src='{name}.svg' alt='{html.escape(text)}'><figcaption>{html.escape(text)} {links}</figcaption></figure>"


def _made_from(runs: Sequence[Run]) -> str:
    if not runs:
        return ""
    items = []
    for run in runs:
        about = run.about
        versions = " ".join(f"{k} {v}" for k, v in about.get("versions", {}).items())
        facts = (
            f"python -m lnrepro.main {shlex.join(about.get('command', ('',))[1:])}\n"
            f"data {about['data'].get('fingerprint')}; commit {about.get('git')}; devices {', '.join(about.get('devices', ()))}\n"
            f"{versions}\n{json.dumps(about['config'], indent=1)}"
        )
        items.append(
            f"<details><summary>{html.escape(str(run.folder))}: {run.step:,} steps</summary><pre>{html.escape(facts)}</pre></details>"
        )
    return f"<details><summary>Made from {_count(runs)}</summary>{''.join(items)}</details>"
