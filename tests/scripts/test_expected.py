"""The table of expected numbers: written from runs, and compared with them."""

import json

import pytest

from lnrepro.errors import UserError
from scripts import expected, page_sections
from tests.runs import ROOT

SECTION = page_sections.read(expected.PAGE, expected.SCRIPT)


def stated_runs(**changes):
    """Runs with the numbers that the page states, and changes of some of them."""
    runs = {}
    for name, of in expected.DEFAULTS.items():
        (row,) = [
            r for r in SECTION.splitlines() if r.startswith(f"| `configs/{name}.py`")
        ]
        number = of.stated(row) + changes.get(name, 0)
        seconds = float(row.split("|")[2].split()[0])
        runs[name] = expected.Measured(seconds, {of.metric: number / of.factor})
    return runs


def test_the_page_is_what_the_script_writes():
    where = SECTION.rpartition(" on ")[2].removesuffix(".")
    assert expected.table(stated_runs(), where) == SECTION


@pytest.mark.parametrize("name", expected.DEFAULTS)
def test_numbers_within_the_tolerance_pass_and_others_are_named(name):
    tolerance = expected.DEFAULTS[name].tolerance
    assert expected.compare(SECTION, stated_runs(**{name: 0.9 * tolerance})) == []
    for change in (-1.1 * tolerance, 1.1 * tolerance, float("nan")):
        (line,) = expected.compare(SECTION, stated_runs(**{name: change}))
        assert line.startswith(f"configs/{name}.py: ")


def test_a_page_without_its_rows_is_named():
    with pytest.raises(UserError, match="there is no 'test error"):
        expected.compare("", stated_runs())


@pytest.mark.parametrize(
    ("page", "script"),
    [
        (expected.PAGE, expected.SCRIPT),
        (ROOT / "experiments/README.md", "scripts.paper.pages: claims"),
    ],
)
def test_a_section_is_replaced_and_the_rest_stays(tmp_path, page, script):
    copy, before = tmp_path / "page.md", page.read_text()
    copy.write_text(before)
    text = page_sections.read(copy, script)
    for new in ("| a table |", text):
        page_sections.write(copy, script, new)
        assert page_sections.read(copy, script) == new
    assert copy.read_text() == before
    copy.write_text("no lines")
    with pytest.raises(UserError, match="the lines <!-- written"):
        page_sections.write(copy, script, "")
    assert copy.read_text() == "no lines"


def test_runs_are_trained_and_their_results_read(tmp_path, monkeypatch):
    def run(command, cwd):
        folder = tmp_path / command[3].removeprefix("--config=configs/")[:-3]
        assert command[4] == f"--workdir={folder}"
        folder.mkdir()
        name = folder.name
        found = json.dumps(dict(stated_runs()[name].results))
        (folder / "results.json").write_text(found)
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(expected.subprocess, "run", run)
    assert expected.main(["--out", str(tmp_path)]) == 0
    with pytest.raises(UserError, match="give a new folder"):
        expected.main(["--out", str(tmp_path)])
