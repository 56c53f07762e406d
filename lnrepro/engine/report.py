"""report.html of a run: its numbers, pictures and config in one page.

The page holds its pictures, so that it can be sent and kept as a single file.
"""

import base64
import json
import pathlib
from collections.abc import Sequence
from html import escape

from lnrepro.engine import artifacts
from lnrepro.engine.progress import HEAD

REPORT = "report.html"
PAGE = """<!doctype html><html lang='en'><meta charset='utf-8'>
<meta name='viewport' content='width=device-width, initial-scale=1'>
<title>{title}</title>
<style>
body {{ font-family: Georgia, serif; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; color: #222; }}
img {{ max-width: 100%; }}
pre {{ font-size: .82rem; background: #f5f5f5; padding: .5rem; overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .85rem; }}
td {{ border-bottom: 1px solid #ddd; padding: .2rem .6rem; }}
</style>
<body><h1>{title}</h1>
{sections}
<h2>How it was made</h2><pre>{made}</pre>
</body></html>
"""
PICTURES = {".png": "image/png", ".gif": "image/gif", ".svg": "image/svg+xml"}


def write(
    folder: pathlib.Path, numbers: Sequence[tuple[str, str, str]]
) -> pathlib.Path:
    """Write report.html.

    Args:
      folder: the run directory, with its config.json and its artifacts.
      numbers: the rows of the table, as text.

    Returns:
      The path of the page.

    Raises:
      OSError: it cannot be written.
    """
    about = json.loads((folder / "config.json").read_bytes())
    sections = [f"<h2>Numbers</h2>{_table(numbers)}"]
    root = folder / "artifacts"
    found = [path for path in root.rglob("*") if path.is_file()]
    # The curves come first.
    for path in sorted(found, key=lambda path: (path.stem != "curves", path)):
        sections.append(_shown(path, str(path.relative_to(root))))
    # Every text is escaped: names and values of a run may come from a stranger.
    text = PAGE.format(
        title=escape(artifacts.title(about["config"])),
        sections="\n".join(sections),
        made=escape(json.dumps(about, indent=1)),
    )
    page = folder / REPORT
    page.write_text(text, encoding="utf-8")
    return page


def _table(numbers):
    """Return rows as a table of HTML."""
    table = ["<table>"]
    for row in (HEAD, *numbers):
        cells = [f"<td>{escape(cell)}</td>" for cell in row]
        table.append(f"<tr>{''.join(cells)}</tr>")
    return "".join([*table, "</table>"])


def _shown(path, name):
    """Return a file as a section of the page, "" for files that cannot be shown."""
    title = f"<h2>{escape(name)}</h2>"
    if path.suffix in PICTURES:
        # Scripts in an SVG do not run within <img>.
        content = base64.b64encode(path.read_bytes()).decode()
        source = f"data:{PICTURES[path.suffix]};base64,{content}"
        return f"{title}<img src='{source}' alt='{escape(name)}'>"
    if path.suffix == ".txt":
        return f"{title}<pre>{escape(path.read_text(encoding='utf-8'))}</pre>"
    return ""
