"""index.html, which shows every figure and table with what it was made from."""

import os
import pathlib
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from lnrepro.engine import report
from lnrepro.engine.report import table_row
from scripts.paper import own, protocols, shares, verdicts
from scripts.paper.axes import Figure
from scripts.paper.records import RecordedRun
from scripts.paper.tables import Table


class Part(NamedTuple):
    """A section of the page, and the line that is printed about it.

    Attributes:
      html: the section.
      line: the line.
      is_figure: whether it shows a figure of runs.
    """

    html: str
    line: str
    is_figure: bool = False


def caption(figure: Figure, runs: Sequence[RecordedRun]) -> str:
    """Return the text below a figure.

    It has the number, the data sets and the number of steps. On other data than the
    paper's it warns.

    Args:
      figure: the figure.
      runs: its runs.
    """
    sets = sorted({run.data for run in runs})
    # Runs may have stopped at different steps.
    steps = sorted({run.step for run in runs})
    n_steps = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    text = f"{figure.title}, {figure.name}. "
    text += f"Data: {', '.join(sets)}; {n_steps} steps."
    drawn = {run.folder for own in protocols.by_protocol(runs).values() for run in own}
    if n_others := sum(run.folder not in drawn for run in runs):
        text += f" Not drawn: {n_others} of neither protocol."
    # Curves of other data, or of a mixture, are not comparable with the paper's.
    if not figure.paper_data:
        return f"{text} The paper names no data."
    if sets != [figure.paper_data]:
        return (
            f"{text} The paper's data is {figure.paper_data}: not to be compared with "
            "its curves."
        )
    (x0, x1), (y0, y1) = figure.xlim, figure.panels[0].ylim
    return (
        f"{text} The paper's axes: {figure.xlabel} {x0:g} to {x1:g}, "
        f"{figure.panels[0].ylabel} {y0:g} to {y1:g}."
    )


def figure_part(
    figure: Figure,
    runs: Sequence[RecordedRun],
    has_curves: bool,
    has_shares: bool,
    sentences: Sequence[str],
    out: pathlib.Path,
) -> Part:
    """Return the section of a figure, or that with the commands that would make it.

    Args:
      figure: the figure.
      runs: its runs.
      has_curves: whether the figure was drawn.
      has_shares: whether the shares of the steps were drawn.
      sentences: sentences about it.
      out: the folder of the page.
    """
    # Curves of the paper for which there is no run.
    norms = {run.config.norm for run in runs}
    absent = [norm for norm in figure.curves if norm not in norms]
    config = figure.config.partition(" ")[0]
    sweep = f"python scripts/sweep.py {config} --launcher local"
    # A sweep trains all norms of the figure. The other commands train one missing norm
    # each.
    commands = [sweep]
    for norm in absent:
        commands.append(
            f"python -m lnrepro.main --config={config} --config.norm={norm}"
        )
    title = _title(f"figure{figure.number}", f"{figure.title}. {figure.name}")
    missing = ""
    if absent:
        missing = _missing(f"Missing: {', '.join(absent)}.", "\n".join(commands))
    if not has_curves:
        line = f"figure {figure.number}: no runs of {figure.experiment}; {sweep}"
        return Part(title + missing, line)
    body = _picture(f"figure{figure.number}", caption(figure, runs))
    if has_shares:
        body += _picture(f"figure{figure.number}-shares", shares.caption(figure))
    body += "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    without = f", without {', '.join(absent)}" if absent else ""
    line = f"figure {figure.number}: {_count(runs)}{without}"
    body += missing + _made_from(runs, out)
    return Part(title + body, line, is_figure=True)


def table_part(table: Table, out: pathlib.Path) -> Part:
    """Return the section of a table.

    Args:
      table: the table.
      out: the folder of the page.
    """
    title = _title(f"table{table.number}", f"Table {table.number}. {table.name}")
    rows = "".join(table_row("td", row) for row in table.rows)
    body = (
        f"<table>{table_row('th', table.head)}{rows}</table><p>{escape(table.note)}</p>"
    )
    # Table 1 has no command, since it needs no runs.
    if table.command and not table.runs:
        body += _missing("No row of ours.", table.command)
        line = f"table {table.number}: no row of ours; {table.command}"
        return Part(title + body, line)
    made = _count(table.runs) if table.runs else "computed"
    return Part(
        title + body + _made_from(table.runs, out), f"table {table.number}: {made}"
    )


def own_part(
    title: str,
    name: str,
    text: str,
    runs: Sequence[RecordedRun],
    out: pathlib.Path,
    rows: Sequence[Sequence[str]] = (),
) -> Part:
    """Return the section of a metric, or of an experiment that is not the paper's.

    Args:
      title: the name of the metric or of the experiment.
      name: name of its pictures, without suffix.
      text: the text below the picture.
      runs: the runs that were drawn.
      out: the folder of the page.
      rows: a table about them, in the order of `own.HEAD`.
    """
    cells = "".join(table_row("td", row) for row in rows)
    table = f"<table>{table_row('th', own.HEAD)}{cells}</table>" if rows else ""
    body = _picture(name, text) + table + _made_from(runs, out)
    line = f"{title}: {_count(runs)}"
    return Part(_title(name, title) + body, line, is_figure=True)


def verdicts_part(rows: Sequence[verdicts.Row]) -> Part:
    """Return the section of the claims and the verdicts about them."""
    cells = "".join(table_row("td", row) for row in verdicts.cells(rows))
    body = f"<table>{table_row('th', verdicts.HEAD)}{cells}</table>"
    notes = "".join(f"<p>{escape(note)}</p>" for note in verdicts.notes(rows))
    html = _title("verdicts", "Claims") + body + notes
    return Part(html, f"{len(rows)} verdicts")


def write(parts: Sequence[Part], path: pathlib.Path) -> None:
    """Write the page, the figures of runs first."""
    parts = sorted(parts, key=lambda part: not part.is_figure)
    body = "".join(part.html for part in parts)
    head = report.head("Layer Normalization: figures and tables, from runs")
    path.write_text(f"{head}{body}</body></html>\n", encoding="utf-8")


def _count(runs):
    return f"{len(runs)} run" if len(runs) == 1 else f"{len(runs)} runs"


def _title(id, text):
    return f"<h2 id='{id}'>{escape(text)}</h2>"


def _missing(text, commands):
    return f"<p class='missing'>{text} Made by</p><pre>{escape(commands)}</pre>"


def _picture(name, text):
    links = " ".join(f"<a href='{name}.{k}'>{k}</a>" for k in ("png", "svg", "csv"))
    text = escape(text)
    return (
        f"<figure><img src='{name}.svg' alt='{text}'>"
        f"<figcaption>{text} {links}</figcaption></figure>"
    )


def _made_from(runs, out):
    """Return the commands, data, versions and configs of runs."""
    if not runs:
        return ""
    items = "".join(_facts(run, out) for run in runs)
    summary = f"<summary>Made from {_count(runs)}</summary>"
    return f"<details>{summary}{items}</details>"


def _facts(run, out):
    """Return how a run was made, with a link to its own page if it has one."""
    facts = report.how_it_was_made(run.about)
    link, own = "", run.folder / report.REPORT
    if own.exists():
        # Relative to the folder of the page, so that both can be moved together.
        target = os.path.relpath(own, out)
        link = f" <a href='{escape(target, quote=True)}'>its page</a>"
    summary = f"<summary>{escape(str(run.folder))}: {run.step:,} steps</summary>"
    return f"<details>{summary}{link}<pre>{escape(facts)}</pre></details>"
