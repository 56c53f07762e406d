"""`python -m lnrepro.runs`: the table of runs; and report.html."""

import fcntl
import json
import re
import shutil

import pytest

from lnrepro import runs
from lnrepro.engine import report
from lnrepro.engine.loaded_run import load_model
from scripts.paper import records
from tests.refused import refused


@pytest.fixture
def whole(mnist_run, tmp_path):
    """A copy of a finished run, two folders below `tmp_path`."""
    return shutil.copytree(mnist_run, tmp_path / "all/mnist/smoke")


@pytest.fixture
def table(capsys):
    """A function that returns the table of a folder as a list of dicts."""

    def table(folder):
        runs.main([str(folder)])
        lines = capsys.readouterr().out.splitlines()
        names, *rows = (re.split("  +", line) for line in lines)
        return [dict(zip(names, row, strict=True)) for row in rows]

    return table


def test_a_finished_run(whole, table, tmp_path):
    (row,) = table(whole.parent.parent)
    assert re.fullmatch(r"0:\d\d:\d\d", row.pop("age"))
    results = json.loads((whole / "results.json").read_text())
    assert row.pop("best") == f"valid/error {results['best valid/error']:.4g}"
    assert row == {
        "run": "mnist/smoke",
        "norm": "layer",
        "seed": "0",
        "data": "digits",
        "state": "finished",
        "step": "44/44",
    }
    # Runs that are links are found.
    (tmp_path / "links").mkdir()
    (tmp_path / "links/linked").symlink_to(whole.parent)
    (row,) = table(tmp_path / "links")
    assert row["run"] == "linked/smoke"
    (run,) = records.find([tmp_path / "links"])
    assert run.folder == tmp_path / "links/linked/smoke"


def test_stopped_training_diverged_and_exported(whole, table):
    (whole / "results.json").unlink()
    assert table(whole)[0]["state"] == "stopped"
    with open(whole / "lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert table(whole)[0]["state"] == "training"
    (whole / "diverged.json").write_text("{}")
    assert table(whole)[0]["state"] == "diverged"
    load_model(whole).export(whole.parent / "sent")
    assert [row["state"] for row in table(whole.parent)] == ["export", "diverged"]


def test_the_step_is_that_of_the_newest_checkpoint(whole, table):
    records = (whole / "metrics.jsonl").read_text().splitlines(keepends=True)
    (whole / "metrics.jsonl").write_text("".join(records[:2]))
    assert table(whole)[0]["step"] == "44/44"


def test_a_broken_run_is_named_and_the_others_are_shown(whole, tmp_path, capsys):
    good = "[a]" + 90 * "b"
    whole.rename(tmp_path / good)
    broken = {"b": "{", "c": '{"config": {"experiment": "experiments.mnist"}}'}
    for name, text in broken.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    runs.main([str(tmp_path)])
    shown = capsys.readouterr()
    # It is whole.
    assert f"{good} " in shown.out
    for name, line in zip(broken, shown.err.splitlines(), strict=True):
        assert line.startswith(f"left out: {tmp_path / name}: ")


def test_no_runs_are_one_line(tmp_path):
    with refused("none: there is no run directory"):
        runs.main([str(tmp_path / "none")])


def test_the_report_holds_everything(mnist_run):
    page = (mnist_run / "report.html").read_text()
    assert "<td>valid/error</td>" in page
    assert "<td>nats per image</td>" in page
    assert "configs/mnist.py:smoke" in page
    assert "src='data:image/png;base64," in page
    # Nothing is loaded from elsewhere.
    assert set(re.findall(r"(?:src|href)='(\w+):", page)) == {"data"}


def test_texts_of_a_run_are_not_html(tmp_path):
    text = "<script>alert(1)</script>\"'"
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "note.txt").write_text(text)
    about = {"experiment": text, "norm": text, "data": {"name": text}}
    (tmp_path / "config.json").write_text(json.dumps({"config": about}))
    page = report.write(tmp_path, [(text, "1", "")]).read_text()
    assert "&lt;script&gt;" in page
    assert "<script" not in page
