"""GitHub shows every page: it reads plain Markdown, without the site's extensions."""

import json
import re

import cmarkgfm
import pytest
from cmarkgfm import cmark

from tests.runs import ROOT


def pages():
    """Return the Markdown that GitHub renders, {path: text}."""
    found = {}
    for path in sorted(ROOT.glob("*.md")) + sorted(ROOT.glob(".github/*.md")):
        found[path.name] = path.read_text(encoding="utf-8")
    for folder in ("docs", "experiments"):
        for path in sorted((ROOT / folder).rglob("*.md")):
            name = path.relative_to(ROOT).as_posix()
            # The reference is written for mkdocstrings.
            if not name.startswith("docs/api/"):
                found[name] = path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        found[path.name] = "\n\n".join(texts)
    return found


PAGES = pages()


def prose(text):
    """Return the HTML that GitHub makes of a page, without code and comments."""
    options = cmark.Options.CMARK_OPT_UNSAFE
    html = cmarkgfm.github_flavored_markdown_to_html(text, options)
    return re.sub(r"<!--.*?-->|<(pre|code)\b.*?</\1>", "", html, flags=re.S)


RAW = re.compile(r".*(?:===|:::|!!!|\?\?\?|\]\(|\*\*|`|\{:|^#).*", re.M)


@pytest.mark.parametrize("page", PAGES)
def test_github_renders_all_of_its_markdown(page):
    assert RAW.findall(prose(PAGES[page])) == []
