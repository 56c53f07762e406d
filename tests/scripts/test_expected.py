"""The table of expected numbers: written from runs, and compared with them."""

import json

import pytest

from lnrepro.errors import UserError
from scripts import expected

PAGE = expected.PAGE.read_text(encoding="utf-8")


def stated_runs(**changes):
    """Runs with the numbers that the page states, and changes of some of them."""
    runs = {}
    for name, of in expected.DEFAULTS.items():
        (row,) = [
            r for r in PAGE.splitlines() if r.startswith(f"| `configs/{name}.py`")
        ]
        number = of.stated(row) + changes.get(name, 0)
        seconds = float(row.split("|")[2].split()[0])
        runs[name] = expected.Measured(seconds, {of.metric: number / of.factor})
    return runs


def test_the_page_is_what_the_script_writes():
    text = expected.section(PAGE)
    where = text.rpartition(" on ")[2].removesuffix(".")
    assert expected.table(stated_runs(), where) == text
    assert expected.with_table(PAGE, text) == PAGE


@pytest.mark.parametrize("name", expected.DEFAULTS)
def test_numbers_within_the_tolerance_pass_and_others_are_named(name):
    tolerance = expected.DEFAULTS[name].tolerance
    assert expected.compare(PAGE, stated_runs(**{name: 0.9 * tolerance})) == []
    for change in (-1.1 * tolerance, 1.1 * tolerance, float("nan")):
        (line,) = expected.compare(PAGE, stated_runs(**{name: change}))
        assert line.startswith(f"configs/{name}.py: ")


def test_a_page_without_its_marks_or_rows_is_named():
    with pytest.raises(UserError, match="is missing"):
        expected.section("no marks")
    with pytest.raises(UserError, match="there is no 'test error"):
        expected.compare(f"{expected.BEGIN}\n\n{expected.END}", stated_runs())


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
