"""Hook of MkDocs: what the site has besides the pages of docs/, and all links.

All pages have links that are right in the repository. Files that the site shows at
another place are listed in `place_on_site`, and links follow them there. MkDocs fails
where a link leads to nothing.
"""

import base64
import importlib
import json
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

from scripts import markdown as md

ROOT = pathlib.Path(__file__).parents[2]
# The documents of the repository that are pages of the site.
DOCUMENTS = {
    "README.md": "index.md",
    "experiments/README.md": "results/index.md",
    "CHANGELOG.md": "changelog.md",
    ".github/CONTRIBUTING.md": "contributing.md",
}
# The folders of kept records, with what they hold.
RECORDS = {
    "experiments/results/fresh": "runs of the answers, at laptop scale",
    "experiments/results/small": "runs of the pilot, at laptop scale",
    "experiments/results/runs": "runs of the paper's protocol",
    "experiments/results/figures": "curves of those runs",
    "experiments/results/decay": "Figure 5 with learning rates that fall to zero",
    "experiments/results/rounding": "DRAW's seeds with other roundings",
    "experiments/results/digits": "digits, pixel by pixel",
    "experiments/results/mnist_pixels": "MNIST, pixel by pixel",
    "experiments/results": "curves of other runs",
    "docs/pictures/recurrent_ppo": "recurrent PPO",
    "docs/pictures": "recurrent PPO with every norm",
    "docs/benchmarks": "benchmarks",
}
# The pages of lnrepro.functional, with what they show.
FUNCTIONAL = {
    "cells": "LSTMCell GRUCell SimpleCell DreamerGRUCell DreamerBlockGRUCell "
    "Cell Prepared StepContext clip_gradient",
    "norms": "layer_norm rms_norm batch_norm running_average weight_norm "
    "weight_norm_preserving Norm",
    "sequences": "unroll.unroll Unrolled BatchStatistics step bidirectional track flip",
    "scan": "scan.scan ScanResult ScanOptions runs_as autotune measured_kernels "
    "named_dot",
    "wrappers": "stack Stack zoneout variational_dropout",
}
# These pages have tables that need the space of the table of contents.
WIDE = ("capabilities.md", "results/index.md")
RECORDS_PAGE = "results/records.md"
# These hold every word, so that they would be found before the page about it.
FOUND_LAST = ("log.md", "changelog.md", "benchmarks.md", RECORDS_PAGE)
RECORD = re.compile(r".*\.(csv|jsonl|json)")
PUBLISHED = re.compile(r".*\.(png|csv|jsonl)")
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)
# Inline links, pictures and definitions, without addresses and anchors of the page.
LINK = re.compile(
    r"(?P<before>\]\(|^\[[^\]]+\]: |<img src=\")"
    r"(?!\w+:|#)(?P<path>[^)#\s\"]+)(?P<anchor>#[^)\s]*)?",
    re.M,
)


def place_in_repository(page):
    """Return the path of a page of the site, relative to the root of the repository."""
    places = {place: path for path, place in DOCUMENTS.items()}
    return places.get(page, f"docs/{page}")


def place_on_site(path):
    """Return where a file of the repository is on the site; a folder is an anchor."""
    if path in DOCUMENTS:
        return DOCUMENTS[path]
    if path in RECORDS:
        return f"{RECORDS_PAGE}#{path.replace('/', '-')}"
    path = re.sub(r"^(docs/(notebooks|examples)/\w+)\.(ipynb|py)$", r"\1.md", path)
    return re.sub(r"^(docs|experiments)/", "", path)


def on_files(files, config):
    """Add the documents, records, notebooks and examples to the files of the site."""

    def add(place, content):
        files.append(File.generated(config, place, content=content))

    for path, place in DOCUMENTS.items():
        add(place, (ROOT / path).read_text(encoding="utf-8"))
    for path in sorted((ROOT / "experiments/results").rglob("*")):
        if PUBLISHED.fullmatch(path.name):
            place = place_on_site(path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, place, abs_src_path=str(path)))
    add(RECORDS_PAGE, records_page())
    add("fields.md", fields_page())
    for subject, names in FUNCTIONAL.items():
        add(f"api/functional/{subject}.md", functional_page(subject, names.split()))
    for path in sorted((ROOT / "docs/examples").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        text = f"# `{path.name}`\n\n```python\n{source}```\n"
        add(f"examples/{path.stem}.md", text)
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        text, pictures = notebook_page(path)
        add(f"notebooks/{path.stem}.md", text)
        for name, content in pictures.items():
            add(f"notebooks/{name}", content)
    return files


def records_page():
    """Return the page that lists all kept records."""
    parts = [
        "# Kept records",
        "The numbers behind the tables and figures of this site. `*.runs.jsonl` has "
        "one run a line: its config, metrics and results. "
        "[`figures.py`](../reproduce.md#figures-alone) draws them.",
    ]
    for folder, what in RECORDS.items():
        parts.append(f"## {what.capitalize()} {{: #{folder.replace('/', '-')} }}")
        parts.append(f"In the repository `{folder}`:")
        names = sorted(path.name for path in (ROOT / folder).iterdir())
        names = filter(RECORD.fullmatch, names)
        parts.append("\n".join(f"- [{name}](../../{folder}/{name})" for name in names))
    return "\n\n".join(parts)


def fields_page():
    """Return the page that lists the fields of all configs, and of each experiment."""
    parts, modules = ["# Fields of configs"], ["lnrepro.config"]
    for path in sorted((ROOT / "experiments/fields").glob("*.py")):
        modules.append(f"experiments.fields.{path.stem}")
    head = ("field", "default", "meaning", "allowed", "may change on resume")
    for module in modules:
        rows = []
        for name, field in importlib.import_module(module).FIELDS.items():
            change = "in some runs" if callable(field.may_change) else field.may_change
            default = f"`{field.default!r}`"
            rows.append((f"`{name}`", default, field.help, field.words, change))
        parts += [f"## {module}", md.table(head, rows)]
    return "\n\n".join(parts)


def functional_page(subject, names):
    """Return the reference of some names of lnrepro.functional."""
    parts = [f"# lnrepro.functional: {subject}"]
    for name in names:
        # The methods that every cell has are shown once, at Cell.
        members = "" if name == "Cell" else "members: false, "
        parts.append(
            f"::: lnrepro.functional.{name}\n    options: {{{members}"
            "show_root_heading: true, show_root_toc_entry: true}"
        )
    return "\n\n".join(parts)


def notebook_page(path):
    """Return the Markdown of an executed notebook, and its pictures by name."""
    parts, pictures = [], {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            else:
                name = f"{path.stem}-{len(pictures)}.png"
                pictures[name] = base64.b64decode(output["data"]["image/png"])
                parts.append(f"![]({name})")
    return "\n\n".join(parts), pictures


def on_page_markdown(markdown, page, config, files):
    """Turn links that are right in the repository into those of the site."""
    here = page.file.src_uri
    if here in WIDE:
        page.meta["hide"] = ["toc"]
    if here in FOUND_LAST:
        page.meta["search"] = {"boost": 1e-4}
    folder = posixpath.dirname(place_in_repository(here))

    def link(match):
        path = posixpath.normpath(posixpath.join(folder, match["path"]))
        place, _, anchor = place_on_site(path).partition("#")
        anchor = f"#{anchor}" if anchor else match["anchor"] or ""
        address = posixpath.relpath(place, posixpath.dirname(here))
        return match["before"] + address + anchor

    parts = FENCED.split(markdown)
    # Every second part is a block of code, which has no links.
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)
