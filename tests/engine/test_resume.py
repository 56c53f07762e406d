"""A run is one run: it ends with the same bits, and what is not its own is refused."""

import json
import os
import shutil
import signal
import time

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from lnrepro.config import FIELDS
from lnrepro.engine import evaluate, evaluation, loaded_run, provenance, signals, train
from lnrepro.engine.run import Run
from lnrepro.errors import Stopped
from tests.engine import toy
from tests.engine.toy import config, crash_at, final_state
from tests.hardening.processes import assert_same_run, saved
from tests.refused import refused

pytestmark = pytest.mark.usefixtures("toy_data")


def crashed(folder, monkeypatch, at=17, **changes):
    """Train until a crash. At step 17, there is a checkpoint of step 15."""
    with monkeypatch.context() as m:
        crash_at(m, at)
        with pytest.raises(KeyError):
            train.train(config(**changes), folder)


def edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer__decay": "cosine"},
        pytest.param(
            {"placement": "pmap", "steps_per_call": 3}, marks=pytest.mark.slow
        ),
        {"steps_per_call": 2},
    ],
    ids=["jit", "pmap", "calls"],
)
def test_a_run_that_crashed_ends_with_the_same_bits(tmp_path, monkeypatch, changes):
    train.train(config(**changes), tmp_path / "whole")
    for at in (2, 17, 29):
        crashed(tmp_path / "broken", monkeypatch, at, **changes)
    train.train(config(**changes), tmp_path / "broken")
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, monkeypatch, toy_run, signum):
    def send():
        # Twice, as SLURM does.
        for _ in range(2):
            os.kill(os.getpid(), signum)

    with monkeypatch.context() as m:
        toy.act_before(m, 7, send)
        with pytest.raises(Stopped, match="at step 8; saved") as stopped:
            train.train(config(), tmp_path)
    assert stopped.value.exit_code == 128 + signum
    train.train(config(), tmp_path)
    assert_same_run(toy_run, tmp_path)


def test_a_signal_ends_an_evaluation_which_is_done_on_resume(
    tmp_path, monkeypatch, toy_run
):
    def evaluate(real, vars, name):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        raise AssertionError("the evaluation went on")

    for step in (10, 10):
        with monkeypatch.context() as m:
            toy.change(m, evaluate=evaluate)
            with pytest.raises(Stopped, match=f"at step {step}; saved"):
                train.train(config(), tmp_path)
    train.train(config(), tmp_path)
    assert_same_run(toy_run, tmp_path)


def test_an_evaluation_that_fails_loses_no_step(tmp_path, monkeypatch, toy_run):
    def fail(real, vars, name):
        raise MemoryError("no room for the scores")

    for _ in range(2):
        with monkeypatch.context() as m:
            toy.change(m, evaluate=fail)
            with pytest.raises(MemoryError):
                train.train(config(), tmp_path)
        last = final_state(tmp_path, config())
        assert (last.step, last.notes["due"]) == (10, ["test"])
    train.train(config(), tmp_path)
    assert_same_run(toy_run, tmp_path)


# Evaluated, and best, at 7, 14, 21 and 28; saved at 15 and 30.
BEST = {"evals__test": "7", "save_every": 15}


def test_best_follows_last(tmp_path, monkeypatch):
    crashed(tmp_path, monkeypatch, at=23, **BEST)
    # That of step 21 is named by no checkpoint yet.
    assert (saved(tmp_path)[-1], saved(tmp_path, "best")) == (15, [14, 21])

    def evaluate(real, vars, name):
        return real(vars, name)._replace(scalars={"error": 99.0})

    # The run takes another way from here, as on another machine.
    with monkeypatch.context() as m:
        toy.change(m, evaluate=evaluate)
        numbers = train.train(config(**BEST), tmp_path)
    assert saved(tmp_path, "best") == [14]
    assert numbers["best step"] == 14
    assert loaded_run.load(tmp_path).weights.step == 14


def test_a_best_checkpoint_that_is_gone_is_named(tmp_path, monkeypatch, capsys):
    crashed(tmp_path, monkeypatch, at=23, **BEST)
    shutil.rmtree(tmp_path / "checkpoints/best/14")
    numbers = train.train(config(best__mode="min", **BEST), tmp_path)
    line = capsys.readouterr().err
    assert f"best/14, which {tmp_path}/checkpoints/last/15 names, is gone" in line
    assert [numbers["best step"]] == saved(tmp_path, "best") == [30]


def test_a_signal_to_several_processes_acts_between_batches(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    # It arrives in another process, and JAX chooses the third question.
    monkeypatch.setattr(
        multihost_utils, "reached_preemption_sync_point", lambda n: n == 3
    )
    seen = []

    def batches():
        for k in range(9):
            seen.append(k)
            yield {"x": np.ones(2), "mask": np.ones(2)}

    collected = signals.Signals()
    assert not collected.agreed()
    mean = evaluation.mean_over_examples(lambda vars, batch: {"x": batch["x"]})
    with pytest.raises(signals.Interrupted), collected.interrupting():
        mean({"w": np.ones(1)}, batches())
    assert seen == [0, 1]


def test_a_signal_acts_at_once_in_the_evaluations_at_the_end(
    tmp_path, monkeypatch, toy_run
):
    def evaluate(real, vars, name):
        if name == "picture":
            os.kill(os.getpid(), signal.SIGINT)
        return real(vars, name)

    # A process that a shell started in the background ignores SIGINT.
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as m:
            toy.change(m, evaluate=evaluate)
            with pytest.raises(KeyboardInterrupt):
                train.train(config(), tmp_path)
    finally:
        signal.signal(signal.SIGINT, old)
    assert not (tmp_path / "results.json").exists()
    train.train(config(), tmp_path)
    assert_same_run(toy_run, tmp_path)


def test_a_signal_that_comes_again_later_acts_at_once(monkeypatch):
    seen = []
    old = signal.signal(signal.SIGTERM, lambda signum, frame: seen.append("acted"))
    try:
        with signals.Signals() as collected:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            assert (collected.caught, seen) == ([signal.SIGTERM] * 2, [])
            monkeypatch.setattr(signals, "REPEAT_S", 0.0)
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == ["acted"]
    finally:
        signal.signal(signal.SIGTERM, old)


def test_checkpoints_of_another_run_are_refused(tmp_path, monkeypatch):
    crashed(tmp_path / "run", monkeypatch)
    crashed(tmp_path / "other", monkeypatch, seed=1)
    shutil.rmtree(tmp_path / "run/checkpoints")
    shutil.copytree(tmp_path / "other/checkpoints", tmp_path / "run/checkpoints")
    differs = "config.seed: 1 there, 0 now"
    with refused("last/15", differs):
        train.train(config(), tmp_path / "run")
    with refused("best/10", differs):
        evaluate.evaluate(config(), tmp_path / "run")
    with refused("best/10", differs):
        _ = loaded_run.load(tmp_path / "run").weights


def test_a_run_of_another_config_or_of_other_data_is_refused(tmp_path, monkeypatch):
    crashed(tmp_path, monkeypatch)
    before = (tmp_path / "config.json").read_bytes()
    for field in ("seed", "log_every", "nan_at"):
        for use in (train.train, evaluate.evaluate):
            with refused(f"config.{field}: ", " there, 1 now"):
                use(config(**{field: 1}), tmp_path)
    monkeypatch.setattr(Run, "data_identity", lambda run: ("toy/2", {}))
    with refused("fingerprint: 'toy/1' there, 'toy/2' now"):
        train.train(config(), tmp_path)
    assert (tmp_path / "config.json").read_bytes() == before
    # The checkpoint knows its data too.
    edit(
        tmp_path / "config.json",
        lambda about: about["data"].update(fingerprint="toy/2"),
    )
    with refused("fingerprint: 'toy/1' there, 'toy/2' now"):
        train.train(config(), tmp_path)


def test_what_is_shown_at_the_end_may_change_on_resume(tmp_path, monkeypatch):
    crashed(tmp_path, monkeypatch, evals__picture="never", curves=())
    train.train(config(), tmp_path)
    assert loaded_run.load(tmp_path).config.evals == config().evals
    assert (tmp_path / "artifacts/square.png").exists()


def test_what_changes_no_training_may_change_on_resume(tmp_path, monkeypatch, toy_run):
    changes = {"save_every": 7, "eval_batch_size": 3, "data__dir": "/moved"}
    crashed(tmp_path, monkeypatch)
    train.train(config(**changes), tmp_path)
    assert_same_run(toy_run, tmp_path)
    assert loaded_run.load(tmp_path).config.data.dir == "/moved"
    evaluate.evaluate(config(eval_batch_size=5), tmp_path)


def test_what_changes_numbers_of_this_run_may_not_change(tmp_path, monkeypatch):
    crashed(tmp_path, monkeypatch, steps_per_call=2)
    with refused("config.save_every: 5 there, 7 now"):
        train.train(config(steps_per_call=2, save_every=7), tmp_path)
    # As batch norm that takes the statistics of the batch.
    of_batch = FIELDS["eval_batch_size"]._replace(may_change=lambda c: c.seed != 0)
    monkeypatch.setitem(toy.FIELDS, "eval_batch_size", of_batch)
    for use in (train.train, evaluate.evaluate):
        with refused("config.eval_batch_size: 100 there, 5 now"):
            use(config(steps_per_call=2, eval_batch_size=5), tmp_path)


def test_lost_checkpoints_are_named_and_no_record_is_lost(tmp_path, monkeypatch):
    crashed(tmp_path, monkeypatch, at=7)
    there = (tmp_path / "metrics.jsonl").read_bytes()
    for lost in ("checkpoints/last", "checkpoints"):
        shutil.move(tmp_path / lost, tmp_path / "moved")
        with refused("checkpoints/last has no checkpoint: put it back"):
            train.train(config(), tmp_path)
        with refused("has no checkpoint; train it, or put checkpoints/ back"):
            evaluate.evaluate(config(), tmp_path)
        assert (tmp_path / "metrics.jsonl").read_bytes() == there
        shutil.move(tmp_path / "moved", tmp_path / lost)
    train.train(config(), tmp_path)


def test_an_export_is_no_run(tmp_path):
    train.train(config(steps=2), tmp_path / "run")
    loaded_run.load(tmp_path / "run").export(tmp_path / "export")
    names = {path.name for path in (tmp_path / "export").iterdir()}
    for use in (train.train, evaluate.evaluate):
        with refused("is an exported network, not a run directory"):
            use(config(steps=2), tmp_path / "export")
    assert names == {path.name for path in (tmp_path / "export").iterdir()}


def test_a_folder_with_other_files_is_refused_and_stays(tmp_path, monkeypatch):
    crashed(tmp_path, monkeypatch)
    (tmp_path / "config.json").unlink()
    with refused("is not empty and has no config.json"):
        train.train(config(), tmp_path)
    assert not (tmp_path / "config.json").exists()


def test_a_finished_run_does_nothing(tmp_path, capsys):
    def written():
        files = (p for p in tmp_path.rglob("*") if p.is_file() and p.name != "lock")
        return {path: path.stat().st_mtime_ns for path in files}

    train.train(config(steps=10), tmp_path)
    before = written()
    assert train.train(config(steps=10), tmp_path) == {}
    assert "is finished" in capsys.readouterr().out
    assert before == written()


def test_other_curves_of_a_finished_run_are_drawn(tmp_path):
    train.train(config(steps=10), tmp_path)
    picture = tmp_path / "artifacts/curves.png"
    before = picture.read_bytes() if picture.exists() else b""
    other = config(steps=10)
    other.curves = (("mine", ("train/loss",), "linear"),)
    train.train(other, tmp_path)
    assert picture.read_bytes() != before
    about = json.loads((tmp_path / "config.json").read_text())
    assert about["config"]["curves"] == [["mine", ["train/loss"], "linear"]]


def test_each_start_is_recorded_and_a_change_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(provenance, "git_commit", lambda: "aaaa")
    crashed(tmp_path, monkeypatch)
    crashed(tmp_path, monkeypatch, at=18)
    lines = capsys.readouterr().out.splitlines()
    assert all(line and "resumed otherwise" not in line for line in lines)
    monkeypatch.setattr(provenance, "git_commit", lambda: "bbbb")
    train.train(config(), tmp_path)
    out = capsys.readouterr().out
    assert "resumed otherwise than started before: git aaaa -> bbbb" in out
    starts = provenance.starts(tmp_path)
    assert [start.get("step") for start in starts] == [None, 15, 15]
    assert [start["git"] for start in starts] == ["aaaa", "aaaa", "bbbb"]


def test_settings_of_jax_that_change_numbers_stay(tmp_path, monkeypatch):
    crashed(tmp_path, monkeypatch)
    about = json.loads((tmp_path / "config.json").read_text())
    assert about["settings"]["jax_default_prng_impl"] == "threefry2x32"
    assert about["machine"]["cores"] > 0
    before = {path: path.read_bytes() for path in tmp_path.glob("*.json*")}
    others = {
        "jax_default_prng_impl": "rbg",
        "jax_threefry_partitionable": not jax.config.jax_threefry_partitionable,
        "jax_enable_x64": True,
        "jax_default_matmul_precision": "highest",
    }
    for name, value in others.items():
        kept = getattr(jax.config, name)
        jax.config.update(name, value)
        try:
            for use in (train.train, evaluate.evaluate):
                with refused(f"({name}: {kept!r} there, {value!r} now"):
                    use(config(), tmp_path)
        finally:
            jax.config.update(name, kept)
    assert before == {path: path.read_bytes() for path in tmp_path.glob("*.json*")}


def test_a_run_without_a_record_of_settings_goes_on(tmp_path, monkeypatch, capsys):
    crashed(tmp_path, monkeypatch)

    def remove(about):
        del about["settings"], about["machine"]

    edit(tmp_path / "config.json", remove)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere")
    train.train(config(), tmp_path)
    assert "started before: machine None -> " in capsys.readouterr().out


def test_pmap_goes_on_with_as_many_devices_only(tmp_path, monkeypatch):
    c = config(placement="pmap")
    crashed(tmp_path, monkeypatch, placement="pmap")
    notes = final_state(tmp_path, c).notes
    assert notes["devices"] == 4
    monkeypatch.setattr(train.run_config.jax, "device_count", lambda: 2)
    with refused("devices: 4 there, 2 now"):
        train.train(c, tmp_path)


def test_pmap_runs_are_evaluated_and_finished(tmp_path):
    c = config(placement="pmap")
    numbers = train.train(c, tmp_path)
    again = evaluate.evaluate(c, tmp_path)
    assert again["test/error"] == pytest.approx(numbers["best test/error"], rel=1e-6)
    # Killed between the last checkpoint and results.json.
    (tmp_path / "results.json").unlink()
    assert train.train(c, tmp_path) == numbers
