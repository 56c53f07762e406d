"""scripts/reproduce.py: plan, resuming, report, and what it says when it cannot."""

import errno
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from lnrepro.engine import seeds
from lnrepro.errors import RunError, UserError
from scripts import reproduce
from scripts.paper import cost, plan, records
from tests.runs import ROOT, environment
from tests.runs import run as train


@pytest.fixture(autouse=True)
def checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


def start(folder, *flags) -> subprocess.Popen:
    command = [sys.executable, "scripts/reproduce.py", *flags]
    command += ["--root", str(folder / "runs"), "--report", str(folder / "report")]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(folder / "home"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def results(folder) -> dict:
    """{results.json of a finished run: when it was written}."""
    # The folders of checkpoints change while the runs train.
    found = folder.glob("runs/*/*/results.json")
    return {path: path.stat().st_mtime_ns for path in found}


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_and_repeats_nothing(tmp_path):
    flags = ("--scale", "smoke", "--only", "convnet", "--processes", "1")
    first = start(tmp_path, *flags)
    deadline = time.monotonic() + 300
    while not results(tmp_path):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    finished = results(tmp_path)
    assert 1 <= len(finished) < 12

    again = start(tmp_path, *flags)
    out, err = again.communicate(timeout=900)
    assert (again.returncode, err) == (0, "")
    assert "measuring" not in out
    assert "12 of 12 runs are finished" in out
    assert finished.items() <= results(tmp_path).items()

    page = (tmp_path / "report" / "index.html").read_text()
    assert "Section 6.7" in page
    assert "<img src='figure7.svg'" in page
    verdicts = (tmp_path / "report" / "verdicts.md").read_text()
    rows = [line.split(" | ") for line in verdicts.splitlines() if "Section" in line]
    assert len(rows) == 2
    for row in rows:
        # The rates of both protocols, and the number of seeds.
        assert (row[4], row[7], row[10]) == ("0.003", "0.001", "2")


@pytest.mark.slow
def test_the_time_is_up_and_the_report_is_written(tmp_path):
    flags = ("--scale", "smoke", "--only", "convnet", "--minutes", "0.05")
    process = start(tmp_path, *flags)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert "the time is up; the same command resumes the runs" in out
    assert (tmp_path / "report" / "index.html").exists()
    assert len(results(tmp_path)) < 12


def test_sets_that_are_not_prepared_are_named_and_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("LNREPRO_DATA", str(tmp_path))
    found, skipped = plan.items("small", ["attentive_reader", "draw"], tmp_path)
    assert {item.name for item in found} == {"attentive_reader"}
    (line,) = skipped
    assert line.startswith("left out: Figure 4, configs/draw.py:small: binarized_mnist")
    assert "scripts/prepare.py binarized_mnist" in line


def test_a_run_of_both_protocols_is_planned_once(tmp_path):
    def planned(name, protocols):
        items, _ = plan.items("smoke", [name], tmp_path, protocols=protocols)
        runs = [run for item in items for run in item.runs]
        assert len({run.id for run in runs}) == len(runs)
        return {run.workdir for run in runs}

    tuned = planned("mnist", ["tuned"])
    same_rate = planned("mnist", ["same_rate"])
    both = planned("mnist", ["tuned", "same_rate"])
    assert both == tuned | same_rate
    # Two seeds of none and of layer, whose own rate is the common one.
    assert len(tuned & same_rate) == 4
    for workdir in same_rate:
        assert "optimizer.learning_rate=0.001" in workdir.name


def test_the_plan_says_what_each_protocol_costs(tmp_path):
    items, _ = plan.items("smoke", ["convnet"], tmp_path)
    costs = {"tuned": 600.0, "same_rate": 1200.0}
    costed = [
        item._replace(seconds={run.id: costs[item.protocol] for run in item.runs})
        for item in items
    ]
    text = reproduce._plan_table(costed, 1)
    totals = [line.split() for line in text.splitlines() if line.startswith("all")]
    assert totals == [["all", "tuned", "1:00"], ["all", "same_rate", "2:00"]]


def test_seeds_together_are_one_run_for_each_norm(tmp_path):
    ((item,), _) = plan.items("embedded", ["mnist"], tmp_path, together=3)
    norms = [run.id.partition("norm=")[2].partition(",")[0] for run in item.runs]
    assert sorted(norms) == ["batch", "layer", "none"]
    for run in item.runs:
        assert "--config.seeds=3" in run.command
        assert "--config.seed=0" in run.command
        assert run.workdir.parent == tmp_path / "mnist-default-3-seeds"


def test_transfer_sets_are_data_too(tmp_path, monkeypatch):
    from lnrepro import data

    there = {"gutenberg", "sick", "mr", "cr", "subj"}

    def fingerprint(name, data_dir=None):
        if name not in there:
            raise UserError(f"{name} is not prepared")
        return f"{name}/1"

    monkeypatch.setattr(data, "fingerprint", fingerprint)
    # The config leaves the number of sentences to the data.
    facts = {"lines": 9000, "words": ["a"] * 9000, "triples_by_length": [9000] * 30}
    monkeypatch.setattr(data, "facts", lambda name, data_dir=None: facts)
    _, skipped = plan.items("small", ["skip_thoughts"], tmp_path)
    assert skipped[0].endswith("mpqa is not prepared")
    there.add("mpqa")
    found, skipped = plan.items("small", ["skip_thoughts"], tmp_path)
    assert [len(item.runs) for item in found] == [10, 10]
    assert not skipped


def test_nothing_left_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("LNREPRO_DATA", str(tmp_path))
    with pytest.raises(UserError, match="no run is left; prepare a data set"):
        reproduce.main(["--scale", "small", "--only", "draw", "--root", str(tmp_path)])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--scale", "large"], "invalid choice: 'large'"),
        ([], "the following arguments are required: --scale"),
        (["--scale", "smoke", "--only", "drow"], "invalid choice: 'drow'"),
        (["--scale", "smoke", "--protocol", "same"], "from '?tuned'?, '?same_rate'?"),
        (
            ["--scale", "embedded", "--protocol", "tuned"],
            "no runs of the protocol tuned",
        ),
        (["--scale", "smoke", "--hours", "0"], "--hours 0: a time above 0"),
        (["--scale", "smoke", "--hours", "nan"], "--hours nan: a time above 0"),
        (["--scale", "smoke", "--hours", "1", "--minutes", "9"], "not allowed with"),
        (["--scale", "smoke", "--processes", "0"], "at least 1 is needed"),
    ],
)
def test_mistakes(flags, message):
    with pytest.raises(UserError, match=message):
        reproduce.main(flags)


def test_a_report_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    folder = tmp_path / "runs"
    run = SimpleNamespace(finished=True, ended=True)
    item = SimpleNamespace(
        part="", config="", protocol="", runs=[run], seconds={"": 0.0}, seconds_left=0.0
    )
    monkeypatch.setattr(plan, "items", lambda *args: ([item], []))
    monkeypatch.setattr(plan, "with_costs", lambda *args: [item])

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(reproduce, "write_report", full)
    flags = ["--scale", "smoke", "--root", str(folder), "--report", str(tmp_path / "r")]
    with pytest.raises(RunError, match=f"{tmp_path / 'r'}: No space left on device; "):
        reproduce.main(flags)


def test_items_are_sorted_by_cost_and_measured_once(tmp_path, monkeypatch):
    seconds = {"mnist": 2.0, "convnet": 1.0}
    measured = []

    def seconds_per_step(config, flags, cores):
        measured.append((config, flags))
        return seconds[config.split("/")[1].split(".")[0]]

    monkeypatch.setattr(plan, "_seconds_per_step", seconds_per_step)
    items, _ = plan.items("smoke", ["mnist", "convnet"], tmp_path)
    for _ in range(2):
        costed = plan.with_costs(items, tmp_path, [0])
        # What is left of same_rate for MNIST is batch norm.
        names = [(item.name, item.protocol) for item in costed]
        mnist = [("mnist", "same_rate"), ("mnist", "tuned")]
        convnet = [("convnet", "tuned"), ("convnet", "same_rate")]
        assert sorted(names) == sorted(mnist + convnet)
        cost = {
            name: item.seconds_left for name, item in zip(names, costed, strict=True)
        }
        assert list(cost.values()) == sorted(cost.values())
        # Two seeds of three norms, each with its steps.
        assert cost["convnet", "tuned"] == 6 * 1.0 * costed[0].runs[0].total
        assert len(measured) == 6


def test_costs_are_those_of_the_runs_flags_and_cores(tmp_path, monkeypatch):
    measured = []

    def seconds_per_step(config, flags, cores):
        measured.append((sorted(flags), len(cores)))
        return float(len(measured))

    monkeypatch.setattr(plan, "_seconds_per_step", seconds_per_step)
    for together, cores in ((1, [0]), (3, [0]), (3, [0, 1]), (3, [1, 2])):
        items, _ = plan.items("smoke", ["convnet"], tmp_path, together)
        plan.with_costs(items, tmp_path, cores)
    norms = [[f"--config.norm={norm}"] for norm in ("none", "batch", "layer")]
    together = ["--config.seeds=3"]
    expected = [(norm, 1) for norm in norms]
    expected += [(norm + together, n) for n in (1, 2) for norm in norms]
    assert sorted(measured) == sorted(expected)


def test_the_cost_of_several_seeds_is_that_of_their_common_step(monkeypatch, capsys):
    shapes, take = [], seeds.StackedBatches.take

    def noted_take(batches, n):
        batch = take(batches, n)
        shapes.append(batch["image"].shape[:2])
        return batch

    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: None, False)
    monkeypatch.setattr(seeds.StackedBatches, "take", noted_take)
    flags = ["--config.seeds=3", "--config.steps_per_call=2"]
    cost.main(["configs/mnist.py:smoke", "0", *flags])
    assert float(capsys.readouterr().out) > 0
    assert shapes == [(2, 3)]


@pytest.mark.slow
def test_a_run_that_diverged_is_counted_as_such(tmp_path):
    item, _ = plan.items("smoke", ["convnet"], tmp_path / "runs")[0]
    run = item.runs[0]
    flags = [*run.command[2:], "--config.optimizer.learning_rate=1e30"]
    code, _, _ = train(tmp_path, *flags)
    assert code == 1
    assert run.diverged
    assert not item.runs[1].diverged
    (found,) = records.find([run.workdir])
    assert found.diverged
