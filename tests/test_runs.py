"""`python -m lnrepro.runs`: the table of runs, and report.html."""

import fcntl
import json
import re
import shutil
import subprocess
import sys

import pytest

from lnrepro import runs
from tests.runs import ROOT, SMOKE, environment, run, shared_programs


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with one finished run."""
    home = tmp_path_factory.mktemp("runs")
    workdir = home / "all/mnist/smoke-layer-seed3"
    flags = (SMOKE, "--config.seed=3", f"--workdir={workdir}")
    code, _, error = run(home, *flags, **shared_programs())
    assert code == 0, error
    return home / "all"


def table(root, capsys):
    """The table as a list of dicts."""
    runs.main([str(root)])
    lines = capsys.readouterr().out.splitlines()
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines if line.strip(" ─")]
    names, *rows = rows
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_a_finished_run(root, capsys):
    (row,) = table(root, capsys)
    assert row.pop("age").endswith((" s", " min"))
    assert re.fullmatch(r"valid/error [\d.]+", row.pop("best"))
    step, total = row.pop("step").split("/")
    assert step == total
    assert row == {
        "run": "mnist/smoke-layer-seed3",
        "experiment": "mnist",
        "variant": "smoke",
        "norm": "layer",
        "seed": "3",
        "data": "digits",
        "state": "finished",
    }


def test_stopped_and_training(root, capsys, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    whole = root / "mnist/smoke-layer-seed3"
    for name in ("config.json", "metrics.jsonl", "lock"):
        (folder / name).write_bytes((whole / name).read_bytes())
    (row,) = table(tmp_path, capsys)
    assert row["state"] == "stopped"
    with open(folder / "lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (row,) = table(tmp_path, capsys)
    assert row["state"] == "training"


def test_the_step_is_that_of_the_newest_checkpoint(root, capsys, tmp_path):
    shutil.copytree(root, tmp_path / "whole")
    folder = tmp_path / "whole/mnist/smoke-layer-seed3"
    (folder / "results.json").unlink()
    records = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(records[:2]))
    (row,) = table(tmp_path, capsys)
    step, total = row["step"].split("/")
    assert step == total


def test_a_broken_run_is_named_and_the_others_are_shown(root, capsys, tmp_path):
    shutil.copytree(root, tmp_path / "whole")
    for name, text in {"a": "{", "b": '{"config": {"experiment": 1}}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    runs.main([str(tmp_path)])
    shown = capsys.readouterr()
    assert "whole/mnist/smoke-layer-seed3" in shown.out
    left_out = shown.err.splitlines()
    assert len(left_out) == 2
    for name, line in zip("ab", left_out, strict=True):
        assert line.startswith(f"left out: {tmp_path / name}/config.json")


def test_brackets_in_the_name_of_a_folder_are_shown(root, capsys, tmp_path):
    names = {"[a]", "[/a]x"}
    for name in names:
        shutil.copytree(root / "mnist/smoke-layer-seed3", tmp_path / name)
    rows = table(tmp_path, capsys)
    assert {row["run"] for row in rows} == names


def test_what_was_set_aside_is_no_run(root, capsys, tmp_path):
    whole = shutil.copytree(root / "mnist/smoke-layer-seed3", tmp_path / "run")
    shutil.copytree(whole, whole / "without-checkpoint-1")
    (row,) = table(tmp_path, capsys)
    assert row["run"] == "run"
    # It can be looked at by its name.
    (row,) = table(whole / "without-checkpoint-1", capsys)
    assert row["run"] == "."


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", "x"),
        ("seeds", None),
        ("batch_size", 0),
        ("optimizer", 1),
        ("best", "valid/error"),
        ("curves", 3),
        ("curves", [["error"]]),
    ],
)
def test_an_unusual_config_is_named(root, capsys, tmp_path, field, value):
    run = shutil.copytree(root / "mnist/smoke-layer-seed3", tmp_path / "run")
    about = json.loads((run / "config.json").read_text())
    about["config"][field] = value
    (run / "config.json").write_text(json.dumps(about))
    shutil.copytree(root / "mnist/smoke-layer-seed3", tmp_path / "whole")
    runs.main([str(tmp_path), "--report"])
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines() if "mnist" in line] == [
        "whole"
    ]
    assert shown.err.startswith(f"left out: {run}: ")
    assert shown.err.count("\n") == 1


def test_kept_records_of_version_0_1_are_listed(capsys, tmp_path):
    for file in (ROOT / "experiments/results/runs").iterdir():
        for line in file.read_text().splitlines():
            files = json.loads(line)
            folder = tmp_path / file.name / files["run"]
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps(files["config.json"]))
            records = "".join(json.dumps(r) + "\n" for r in files["metrics.jsonl"])
            (folder / "metrics.jsonl").write_text(records)
    runs.main([str(tmp_path)])
    assert capsys.readouterr().err == ""


def test_a_config_of_an_earlier_version_has_defaults(root, capsys, tmp_path):
    run = shutil.copytree(root / "mnist/smoke-layer-seed3", tmp_path / "run")
    about = json.loads((run / "config.json").read_text())
    for field in ("seeds", "best", "curves"):
        del about["config"][field]
    (run / "config.json").write_text(json.dumps(about))
    runs.main([str(tmp_path), "--report"])
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "finished" in shown.out


def test_no_runs_are_one_line(tmp_path):
    command = [sys.executable, "-m", "lnrepro.runs", str(tmp_path / "none")]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch("error: .*none: there is no run directory.*\n", done.stderr)


def test_the_report_holds_everything(root, capsys):
    folder = root / "mnist/smoke-layer-seed3"
    page = (folder / "report.html").read_text()
    assert "<td>valid/error</td>" in page
    assert "<td>nats per image</td>" in page
    assert "configs/mnist.py:smoke" in page
    assert "src='data:image/png;base64," in page
    # Nothing is loaded from elsewhere.
    assert set(re.findall(r"(?:src|href)='(\w+):", page)) == {"data"}
    # It can be written at any time.
    (folder / "report.html").unlink()
    runs.main([str(root), "--report"])
    assert capsys.readouterr().out.startswith(f"{folder / 'report.html'}\n")
    again = (folder / "report.html").read_text()
    assert "finished, step" in again
    assert "<td>valid/error</td>" in again


def test_texts_of_a_run_are_not_html(tmp_path):
    from lnrepro.engine import report
    from lnrepro.engine.progress import Row

    evil = "<script>alert(1)</script>\"'"
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "note.md").write_text(evil)
    (tmp_path / "artifacts" / "page.html").write_text(evil)
    config = {"experiment": evil, "norm": evil, "data": {"name": evil}}
    about = {"config": config, "data": {"fingerprint": evil}, "command": ["x", evil]}
    page = report.write(tmp_path, about, [Row(evil, 1.0)], evil).read_text()
    assert "<script" not in page
    assert "<iframe sandbox srcdoc=" in page
