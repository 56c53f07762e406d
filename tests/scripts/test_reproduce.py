"""scripts/reproduce.py: plan, resuming, report, and what it says when it cannot."""

import subprocess
import sys

import pytest
from ml_collections import FrozenConfigDict

from lnrepro import data
from lnrepro.engine import config_file
from lnrepro.errors import DataError
from scripts import figures, reproduce
from scripts.sweeps import planned_runs
from tests.hardening.processes import ended, wait_for
from tests.refused import refused
from tests.runs import ROOT, environment


@pytest.fixture(autouse=True)
def checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


def start(folder, *flags) -> subprocess.Popen:
    command = [sys.executable, "scripts/reproduce.py", "--scale", "smoke", *flags]
    command += ["--only", "convnet", "--processes", "1", "--seeds", "0"]
    command += ["--root", str(folder / "runs"), "--report", str(folder / "report")]
    # A run that is killed may leave half a program in its cache.
    home = environment(folder / "home") | {"XDG_CACHE_HOME": str(folder)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=home, **pipes)


def results(folder) -> dict:
    """{results.json of a finished run: when it was written}."""
    # The folders of checkpoints change while the runs train.
    found = folder.glob("runs/*/*/results.json")
    return {path: path.stat().st_mtime_ns for path in found}


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_and_repeats_nothing(tmp_path):
    first = start(tmp_path)
    wait_for(first, lambda: results(tmp_path))
    first.kill()
    first.communicate()
    finished = results(tmp_path)
    assert 1 <= len(finished) < 6
    # The time is up, and the report is written.
    limited, _, err = ended(start(tmp_path, "--hours", "0.0001"))[0]
    assert (limited, err) == (0, "")
    assert (tmp_path / "report/index.md").exists()
    assert len(results(tmp_path)) < 6

    code, out, err = ended(start(tmp_path))[0]
    assert (code, err) == (0, "")
    assert "6 of 6 runs are finished" in out
    assert finished.items() <= results(tmp_path).items()
    assert "(figure7.png)" in (tmp_path / "report/index.md").read_text()
    verdicts = (tmp_path / "report/verdicts.md").read_text()
    rows = [line.split(" | ") for line in verdicts.splitlines() if "Section" in line]
    # The rate of the norms in the protocol tuned, and the number of seeds.
    assert [row[2].rpartition("<br>")[2] for row in rows] == 2 * ["lr 0.003"]
    assert [row[4] for row in rows] == 2 * ["1"]


def test_sets_that_are_not_prepared_are_named_and_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("LNREPRO_DATA", str(tmp_path))
    found, (line,) = reproduce.plan("small", ["attentive_reader", "draw"], tmp_path)
    assert {(item.part, item.minutes) for item in found} == {("Figure 2", 2.5)}
    assert line.startswith("left out: Figure 4, configs/draw.py:small: binarized_mnist")
    assert "scripts/prepare.py binarized_mnist" in line
    with refused("no run is left; prepare a data set"):
        reproduce.main(["--scale", "small", "--only", "draw", "--root", str(tmp_path)])


def test_transfer_sets_are_data_too(monkeypatch, tmp_path):
    def open_set(name, data_dir=None):
        if name == "mpqa":
            raise DataError(f"{name} is not prepared")

    monkeypatch.setattr(data, "open_set", open_set)
    config = config_file.read("configs/skip_thoughts.py:small")
    run = planned_runs.PlannedRun(tmp_path, (), FrozenConfigDict(config))
    with refused("mpqa is not prepared", error=DataError):
        planned_runs.check_data([run])


def test_a_run_of_both_protocols_is_planned_once(tmp_path, capsys):
    (tuned, same), _ = reproduce.plan("smoke", ["mnist"], tmp_path, [5, 6])
    # Two seeds of each norm. The rates of none and of layer are the common one.
    assert {run.workdir.name[-6:] for run in tuned.runs} == {"seed=5", "seed=6"}
    assert len({run.workdir for run in (*tuned.runs, *same.runs)}) == 6 + 2
    for run in same.runs:
        assert "norm=batch,optimizer.learning_rate=0.001" in run.workdir.name
    flags = ["--scale", "smoke", "--only", "mnist", "--root", str(tmp_path), "--plan"]
    assert reproduce.main(flags) == 0
    first, second, total = capsys.readouterr().out.splitlines()
    assert "tuned      0 of 6 runs are finished" in first
    assert "same_rate  0 of 2 runs are finished" in second
    assert total == "8 runs are left, about 0.0 hours one after the other"


def test_kept_records_join_the_report(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(reproduce, "drive", lambda *args: ({}, 0))
    monkeypatch.setattr(figures, "draw_all", lambda runs, *args: shown.extend(runs))
    flags = ["--scale", "smoke", "--only", "mnist", "--root", str(tmp_path)]
    kept = ROOT / "experiments/results/decay"
    assert reproduce.main([*flags, "--records", str(kept)]) == 0
    assert {run.experiment for run in shown} == {"handwriting"}
    with refused("there is no run directory"):
        reproduce.main([*flags, "--records", str(tmp_path)])


@pytest.mark.parametrize("hours", ["nan", "inf"])
def test_a_time_that_is_no_number_is_refused(hours):
    with refused(f"--hours {hours}: a time of 0 or more"):
        reproduce.main(["--scale", "smoke", "--hours", hours])
