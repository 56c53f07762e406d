"""`python -m lnrepro.runs`: the table of runs; and report.html."""

import errno
import fcntl
import json
import re
import shutil

import pytest

from lnrepro import runs
from lnrepro.engine import report
from scripts.paper import records
from tests.refused import refused
from tests.runs import SMOKE, run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run."""
    home = tmp_path_factory.mktemp("runs")
    workdir = home / "all/mnist/smoke-layer-seed3"
    flags = (SMOKE, "--config.seed=3", f"--workdir={workdir}")
    code, _, error = run(home, *flags)
    assert code == 0, error
    return workdir


@pytest.fixture
def table(capsys):
    """A function that returns the table of a folder as a list of dicts."""

    def table(folder):
        runs.main([str(folder)])
        lines = capsys.readouterr().out.splitlines()
        names, *rows = lines
        # The cells of a column begin where its name does.
        starts = [match.start() for match in re.finditer(r"\S+", names)]
        parts = list(zip(starts, [*starts[1:], None], strict=True))
        return [
            {names[a:b].strip(): row[a:b].strip() for a, b in parts} for row in rows
        ]

    return table


def test_a_finished_run(whole, table):
    (row,) = table(whole.parent.parent)
    assert re.fullmatch(r"0:\d\d:\d\d", row.pop("age"))
    assert re.fullmatch(r"valid/error [\d.]+", row.pop("best"))
    assert row == {
        "run": "mnist/smoke-layer-seed3",
        "norm": "layer",
        "seed": "3",
        "data": "digits",
        "state": "finished",
        "step": "44/44",
    }


def test_runs_that_are_links_are_found(whole, table, tmp_path):
    (tmp_path / "linked").symlink_to(whole.parent)
    (row,) = table(tmp_path)
    assert row["run"] == "linked/smoke-layer-seed3"
    (run,) = records.find([tmp_path])
    assert run.folder == tmp_path / "linked/smoke-layer-seed3"


def test_stopped_training_and_unknown(whole, table, tmp_path, monkeypatch):
    for name in ("config.json", "metrics.jsonl", "lock"):
        shutil.copy(whole / name, tmp_path / name)
    assert table(tmp_path)[0]["state"] == "stopped"
    with open(tmp_path / "lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert table(tmp_path)[0]["state"] == "training"

    def no_locks(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    # Another machine may train there: to resume would be wrong advice.
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert table(tmp_path)[0]["state"] == "unknown"


def test_the_step_is_that_of_the_newest_checkpoint(whole, table, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "results.json").unlink()
    records = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(records[:2]))
    assert table(tmp_path)[0]["step"] == "44/44"


def test_a_broken_run_is_named_and_the_others_are_shown(whole, tmp_path, capsys):
    good = "[a]" + 90 * "b"
    shutil.copytree(whole, tmp_path / good)
    broken = {"b": "{", "c": '{"config": {"experiment": "experiments.mnist"}}'}
    for name, text in broken.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    runs.main([str(tmp_path)])
    shown = capsys.readouterr()
    # It is whole, and brackets are no markup.
    assert f"{good} " in shown.out
    left_out = shown.err.splitlines()
    assert len(left_out) == 2
    for name, line in zip(broken, left_out, strict=True):
        assert line.startswith(f"left out: {tmp_path / name}: ")


def test_no_runs_are_one_line(tmp_path):
    with refused("none: there is no run directory"):
        runs.main([str(tmp_path / "none")])


def test_the_report_holds_everything(whole):
    page = (whole / "report.html").read_text()
    assert "<td>valid/error</td>" in page
    assert "<td>nats per image</td>" in page
    assert "configs/mnist.py:smoke" in page
    assert "src='data:image/png;base64," in page
    # Nothing is loaded from elsewhere.
    assert set(re.findall(r"(?:src|href)='(\w+):", page)) == {"data"}


def test_texts_of_a_run_are_not_html(tmp_path):
    text = "<script>alert(1)</script>\"'"
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "note.md").write_text(text)
    (tmp_path / "artifacts" / "page.html").write_text(text)
    config = {"experiment": text, "norm": text, "data": {"name": text}}
    config |= {"evals": {}, "best": {"metric": None}, "curves": []}
    about = {"config": config, "data": {"fingerprint": text}, "command": ["x", text]}
    (tmp_path / "config.json").write_text(json.dumps(about))
    page = report.write(tmp_path, [(text, "1", "")], text).read_text()
    assert "<script" not in page
    assert "<iframe sandbox srcdoc=" in page
