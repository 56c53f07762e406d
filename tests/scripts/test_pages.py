"""Every measured number of a page has its record."""

import re

import pytest

from scripts.benches import records
from scripts.paper import pages, tables
from scripts.paper.claims import PLAN
from tests.runs import ROOT


@pytest.fixture(scope="module")
def kept():
    """The pages as the records write them, {path: text}."""
    return dict(pages.pages())


def test_the_pages_have_the_numbers_of_the_records(kept):
    for path, text in kept.items():
        assert path.read_text(encoding="utf-8") == text, path


def test_a_config_without_a_limit_is_no_row(monkeypatch):
    """Such as that of docs/add-experiment.md."""
    monkeypatch.delattr("configs.mnist.EXPECTED")
    assert "configs/mnist.py" not in tables.defaults()


def bare(text):
    """A page without the numbers and tables that are written."""
    return pages.SECTION.sub("", pages.NUMBER.sub("", text))


PAGE = """a
<!-- written by scripts.paper.pages: x -->
{table}
<!-- end -->
is <!--h100-cells-lstm:time,_ours_LN_/_Flax_LN-->{number}<!--/-->
<!--question-1:word-->{word}<!--/-->"""


@pytest.mark.parametrize("decimals", [1, 2])
def test_tables_and_numbers_of_a_page_are_those_of_its_records(decimals):
    """Numbers have as many decimals as before, and the rest of the page stays."""
    value = records.kept("h100-cells-lstm")["ratios"]["time, ours LN / Flax LN"]
    old = PAGE.format(table="old", number=f"{9:.{decimals}f}", word="no")
    new = PAGE.format(table="\nnew\n", number=f"{value:.{decimals}f}", word="open")
    answers = {"question-1": {"word": "open"}}
    assert pages.written(old, {"x": "new\n"}, answers) == new
    assert bare(old) == "a\n\nis \n"


# Numbers that nobody measured: versions, sections, sizes of data sets and devices.
GIVEN = re.compile(
    r"(?:Python|Version|[Cc]apability|capabilities|Before) \d+\.\d+(?: to \d+\.\d+)?"
    r"|\(?\b6\.\d\b\)?|\b\d+\.\d+\.\d+|1607\.06450|95 % interval|Apache-2\.0"
)
MEASURED = re.compile(r"\d+\.\d+|\d+ ?%|\d+ (?:times|ms|s|MB)\b")


def measured(text):
    """Return the numbers of a page that were measured and have no record."""
    text = re.sub(r"^ *```.*?^ *```$", "", bare(text), flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", text)
    return MEASURED.findall(GIVEN.sub("", text))


@pytest.mark.parametrize(
    "page", ["README.md", "docs/performance.md", "docs/benchmarks.md"]
)
def test_no_measured_number_stands_without_its_record(page):
    assert measured((ROOT / page).read_text(encoding="utf-8")) == []


def test_the_page_of_an_experiment_gives_the_answer_to_each_of_its_questions():
    """From the records, so that no page has a verdict of its own."""
    for place, question in enumerate(PLAN, 1):
        name = question.claim.experiment.replace("_", "-")
        page = pages.DOCS / f"experiments/{name}.md"
        assert f"<!--question-{place}:word-->" in page.read_text(encoding="utf-8")


QUOTES = ["docs/should-i-normalise.md", "docs/experiments/draw.md"]
QUOTES += ["docs/recurrent-rl.md", "docs/experiments/handwriting.md"]
QUOTES += ["docs/experiments/order-embeddings.md", "docs/experiments/skip-thoughts.md"]


@pytest.mark.parametrize("page", QUOTES)
def test_shares_in_the_text_of_a_page_are_those_of_the_kept_runs(kept, page):
    """Such as "40 % (30 to 45)" and "37 % of the steps (17 to 55)"."""
    tables = re.findall("<!-- written by.*?<!-- end -->", "".join(kept.values()), re.S)
    known = re.sub(r" ?%", "", "".join(tables))
    text = bare((ROOT / page).read_text()).replace("95 % interval ", "")
    between = r" %(?: of\s+(?:the|its)\s+steps)?\s+"
    quoted = re.findall(rf"(\d+){between}\((\d+) to (\w+)", text)
    assert quoted
    for share, low, high in quoted:
        assert f"{share} ({low} to {high})" in known
