"""report.html of a run: its numbers, pictures and config in one page.

The page holds its pictures, so that it can be sent and kept as a single file.
"""

import base64
import json
import pathlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from lnrepro.engine import artifacts, experiment
from lnrepro.engine.progress import Row

REPORT = "report.html"
HEAD = """<!doctype html><html lang='en'><meta charset='utf-8'>
<meta name='viewport' content='width=device-width, initial-scale=1'>
<title>{title}</title>
<style>
body {{ font-family: Georgia, serif; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; color: #222; }}
img, iframe {{ max-width: 100%; }}
iframe {{ width: 100%; height: 30rem; border: 1px solid #ddd; }}
code, pre {{ font-size: .82rem; background: #f5f5f5; }}
pre {{ padding: .5rem; overflow-x: auto; }}
summary {{ cursor: pointer; }}
.missing {{ color: #a00; }}
table {{ border-collapse: collapse; font-size: .85rem; }}
td, th {{ border-bottom: 1px solid #ddd; padding: .2rem .6rem; text-align: left; }}
</style>
<body><h1>{title}</h1>
"""
PICTURES = {".png": "image/png", ".gif": "image/gif", ".svg": "image/svg+xml"}
TEXTS = (".md", ".txt")


def head(title: str) -> str:
    """Return the beginning of a page, with its title as a heading."""
    return HEAD.format(title=escape(title))


def table_row(tag: str, cells: Iterable[str]) -> str:
    """Return a row of a table.

    Args:
      tag: "td" or "th".
      cells: the texts of the cells.
    """
    inner = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"


def how_it_was_made(about: Mapping[str, Any]) -> str:
    """Return what one needs to make a run again, as lines of text.

    Args:
      about: the contents of its config.json.
    """
    versions = about.get("versions", {})
    return "\n".join(
        [
            f"python -m lnrepro.main {shlex.join(about.get('command', ('',))[1:])}",
            f"data {about['data'].get('fingerprint')}; commit {about.get('git')}; "
            f"devices {', '.join(about.get('devices', ()))}",
            " ".join(f"{name} {version}" for name, version in versions.items()),
            json.dumps(about["config"], indent=1),
        ]
    )


def results_first(
    config: Mapping[str, Any], numbers: Sequence[Row]
) -> tuple[list[Row], list[Row]]:
    """Part what a run is judged by from the other numbers.

    Its results are the best value, those of the evaluations at the end, and the curves.

    Args:
      config: the config of the run, or its JSON.
      numbers: the rows of all numbers.

    Returns:
      The results, and the rest. Where a config names none of them, all are results.
    """
    at_end = [name for name, when in config["evals"].items() if when == "end"]
    leading = [f"best {config['best']['metric']}", "best step"]
    leading += [row.name for row in numbers if row.name.partition("/")[0] in at_end]
    leading += experiment.metrics_of(config["curves"])
    rest = {row.name: row for row in numbers}
    results = [rest.pop(name) for name in leading if name in rest]
    if not results:
        return list(rest.values()), []
    return results, list(rest.values())


def more(numbers: Sequence[Row]) -> str:
    """Return such as "3 more numbers"."""
    return f"{len(numbers)} more number{'s' if len(numbers) > 1 else ''}"


def write(
    folder: pathlib.Path, about: Mapping[str, Any], numbers: Sequence[Row], state: str
) -> pathlib.Path:
    """Write report.html.

    Args:
      folder: the run directory, with its artifacts.
      about: the contents of its config.json.
      numbers: the rows of the table. Those that are no results are folded.
      state: what is said about the run, such as "1,000 of 1,000 steps".

    Returns:
      The path of the page.

    Raises:
      OSError: it cannot be written.
    """
    config = about["config"]
    results, others = results_first(config, numbers)
    # Every text is escaped: names and values of a run may come from a stranger.
    parts = [head(artifacts.title(config)), f"<p>{escape(state)}</p>"]
    parts.append(f"<h2>Numbers</h2>{_table(results)}")
    if others:
        summary = f"<summary>{more(others)}</summary>"
        parts.append(f"<details>{summary}{_table(others)}</details>")
    # The curves first.
    files = [path for path in (folder / "artifacts").rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: (path.stem != "curves", path)):
        parts.append(_shown(path, str(path.relative_to(folder / "artifacts"))))
    parts.append(f"<h2>How it was made</h2><pre>{escape(how_it_was_made(about))}</pre>")
    page = folder / REPORT
    page.write_text("\n".join([*parts, "</body></html>\n"]), encoding="utf-8")
    return page


def _table(numbers):
    names = table_row("th", ("metric", "value", "std over seeds", "unit"))
    rows = [table_row("td", _cells(row)) for row in numbers]
    return f"<table>{names}{''.join(rows)}</table>"


def _cells(row):
    spread = "" if row.spread is None else f"{row.spread:.2g}"
    return row.name, f"{row.value:.6g}", spread, row.unit


def _shown(path, name):
    """Return a file as a section of the page, "" for files that cannot be shown."""
    title = f"<h2>{escape(name)}</h2>"
    if path.suffix in PICTURES:
        # Scripts in an SVG do not run within <img>.
        content = base64.b64encode(path.read_bytes()).decode()
        source = f"data:{PICTURES[path.suffix]};base64,{content}"
        return f"{title}<img src='{source}' alt='{escape(name)}'>"
    if path.suffix == ".html":
        # The sandbox keeps scripts of the file from running.
        text = escape(path.read_text(encoding="utf-8"))
        return f'{title}<iframe sandbox srcdoc="{text}"></iframe>'
    if path.suffix in TEXTS:
        return f"{title}<pre>{escape(path.read_text(encoding='utf-8'))}</pre>"
    return ""
