"""A run is one run: it ends with the same bits, and what is not its own is refused."""

import json
import os
import shutil
import signal

import jax
import pytest
from jax.experimental import multihost_utils

from lnrepro.config import FIELDS
from lnrepro.engine import (
    evaluate,
    loaded_run,
    provenance,
    run_config,
    signals,
    train,
)
from lnrepro.engine.run import Run
from lnrepro.engine.store import Store
from lnrepro.errors import Stopped
from tests.engine import toy
from tests.engine.toy import CURVES, config, train_until
from tests.hardening.processes import assert_same_run, saved
from tests.refused import refused

USES = (train.train, evaluate.evaluate)


def edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer__decay": "cosine", "steps_per_call": 2},
        pytest.param(
            {"placement": "pmap", "steps_per_call": 3}, marks=pytest.mark.slow
        ),
    ],
    ids=["jit", "pmap"],
)
def test_a_run_that_crashed_ends_with_the_same_bits(tmp_path, monkeypatch, changes):
    train.train(config(**changes), tmp_path / "whole")
    for at in (2, 7, 11):
        train_until(monkeypatch, at, tmp_path / "broken", **changes)
    train.train(config(**changes), tmp_path / "broken")
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_a_run_of_an_earlier_commit_goes_on(tmp_path, monkeypatch, toy_run):
    """Its checkpoints note more."""
    save = Store.save

    def save_more(store, name, step, state, notes):
        save(store, name, step, state, notes | {"numbers": {}})

    with monkeypatch.context() as m:
        m.setattr(Store, "save", save_more)
        train_until(m, 8, tmp_path)
    train.train(config(), tmp_path)
    assert_same_run(toy_run, tmp_path)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, monkeypatch, toy_run, signum):
    def send():
        # Twice, as SLURM does.
        for _ in range(2):
            os.kill(os.getpid(), signum)

    with monkeypatch.context() as m:
        toy.act_before(m, 6, send)
        with pytest.raises(Stopped, match="at step 7; saved") as stopped:
            train.train(config(), tmp_path)
    assert stopped.value.exit_code == 128 + signum
    assert saved(tmp_path)[-1] == 7
    train.train(config(), tmp_path)
    assert_same_run(toy_run, tmp_path)


def test_an_evaluation_that_fails_is_done_on_resume(killed, monkeypatch, toy_run):
    def evaluate(real, vars, name):
        raise MemoryError("no room for the scores")

    for _ in range(2):
        with monkeypatch.context() as m:
            toy.change(m, evaluate=evaluate)
            with pytest.raises(MemoryError):
                train.train(config(), killed)
        last = toy.final_state(killed)
        assert (last.step, last.notes["due"]) == (10, ["test"])
    train.train(config(), killed)
    assert_same_run(toy_run, killed)


def test_a_signal_in_an_evaluation_acts_after_the_next_step(
    killed, monkeypatch, toy_run
):
    ended = []

    def evaluate(real, vars, name):
        os.kill(os.getpid(), signal.SIGTERM)
        ended.append(name)
        return real(vars, name)

    with monkeypatch.context() as m:
        toy.change(m, evaluate=evaluate)
        with pytest.raises(Stopped, match="at step 11; saved"):
            train.train(config(), killed)
    assert ended == ["test"]
    train.train(config(), killed)
    assert_same_run(toy_run, killed)


def test_a_signal_acts_at_once_in_the_evaluations_at_the_end(
    killed, monkeypatch, toy_run
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
                train.train(config(), killed)
    finally:
        signal.signal(signal.SIGINT, old)
    assert not (killed / "results.json").exists()
    train.train(config(), killed)
    assert_same_run(toy_run, killed)


def test_several_processes_stop_at_the_question_that_jax_chooses(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(
        multihost_utils, "reached_preemption_sync_point", lambda n: n == 3
    )
    collected = signals.Signals()
    assert [collected.agreed() for _ in range(3)] == [0, 0, signal.SIGTERM]


def test_best_follows_last(tmp_path, monkeypatch, capsys):
    # Evaluated, and best, at 3, 6, 9 and 12; saved at 7 and 12.
    often = {"evals__test": "3", "save_every": 7}
    run, other = tmp_path / "run", tmp_path / "other"
    train_until(monkeypatch, 10, run, **often)
    # That of step 9 is named by no checkpoint yet.
    assert (saved(run)[-1], saved(run, "best")) == (7, [6, 9])
    shutil.copytree(run, other)

    def evaluate(real, vars, name):
        return real(vars, name)._replace(scalars={"error": 99.0})

    # The run takes another way from here, as on another machine.
    with monkeypatch.context() as m:
        toy.change(m, evaluate=evaluate)
        numbers = train.train(config(**often), run)
    assert [numbers["best step"]] == saved(run, "best") == [6]
    assert loaded_run.load(run).weights.step == 6

    shutil.rmtree(other / "checkpoints/best/6")
    numbers = train.train(config(**often), other)
    line = capsys.readouterr().err
    assert f"best/6, which {other}/checkpoints/last/7 names, is gone" in line
    assert [numbers["best step"]] == saved(other, "best") == [12]


def test_checkpoints_of_another_run_are_refused(tmp_path, monkeypatch, killed):
    other = tmp_path / "other"
    train_until(monkeypatch, 11, other, seed=1)
    shutil.rmtree(killed / "checkpoints")
    shutil.copytree(other / "checkpoints", killed / "checkpoints")
    differs = "config.seed: 1 there, 0 now"
    with refused("last/10", differs):
        train.train(config(), killed)
    with refused("best/10", differs):
        evaluate.evaluate(config(), killed)
    with refused("best/10", differs):
        _ = loaded_run.load(killed).weights


def test_a_run_of_another_config_or_of_other_data_is_refused(killed, monkeypatch):
    before = contents(killed)
    for field in ("seed", "log_every", "nan_at"):
        for use in USES:
            with refused(f"config.{field}: ", " there, 1 now"):
                use(config(**{field: 1}), killed)
    monkeypatch.setattr(toy.DATA, "fingerprint", "toy/2")
    with refused("fingerprint: 'toy/1' there, 'toy/2' now"):
        train.train(config(), killed)
    assert contents(killed) == before
    # The checkpoint knows its data too.
    edit(
        killed / "config.json", lambda about: about["data"].update(fingerprint="toy/2")
    )
    with refused("last/5", "fingerprint: 'toy/1' there, 'toy/2' now"):
        train.train(config(), killed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_default_prng_impl", "rbg"),
        ("jax_threefry_partitionable", not jax.config.jax_threefry_partitionable),
        ("jax_enable_x64", True),
        ("jax_default_matmul_precision", "highest"),
    ],
)
def test_settings_of_jax_that_change_numbers_stay(killed, name, value):
    before = contents(killed)
    kept = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        for use in USES:
            with refused(f"({name}: {kept!r} there, {value!r} now"):
                use(config(), killed)
    finally:
        jax.config.update(name, kept)
    assert contents(killed) == before


def test_what_changes_no_training_may_change_on_resume(killed, toy_run, capsys):
    changes = {"save_every": 7, "eval_batch_size": 3, "data__dir": "/moved"}
    # It was killed without curves and the picture at the end.
    train.train(config(curves=CURVES, **changes), killed)
    assert_same_run(toy_run, killed)
    assert loaded_run.load(killed).config.data.dir == "/moved"
    assert "before: config.data.dir None -> /moved\n" in capsys.readouterr().out
    assert provenance.starts(killed)[1]["config"]["data"]["dir"] == "/moved"
    assert (killed / "artifacts/square.png").exists()
    numbers = evaluate.evaluate(config(eval_batch_size=5), killed)
    results = json.loads((killed / "results.json").read_text())
    assert numbers["test/error"] == results["best test/error"]


def test_what_changes_numbers_of_a_run_may_not_change(monkeypatch):
    # As batch norm that takes the statistics of the batch.
    of_batch = FIELDS["eval_batch_size"]._replace(may_change=lambda c: c.seed != 0)
    monkeypatch.setitem(toy.FIELDS, "eval_batch_size", of_batch)
    there = {"config": run_config.as_json(config(steps_per_call=2))}
    for changed in ({"save_every": 7}, {"eval_batch_size": 5}, {"evals__test": "end"}):
        now = run_config.as_json(config(steps_per_call=2, **changed))
        (name,) = changed
        with refused(f"config.{name.replace('__', '.')}: "):
            run_config.check_same("it", there, {"config": now}, "no remedy")


def test_pmap_goes_on_with_as_many_devices_only(tmp_path, monkeypatch):
    pmap = config(placement="pmap")
    there = Run(pmap, tmp_path).identity
    assert there["devices"] == 4
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    now = Run(pmap, tmp_path).identity
    with refused("devices: 4 there, 2 now"):
        run_config.check_checkpoint(tmp_path, there, now)
    assert "devices" not in Run(config(), tmp_path).identity


def test_lost_checkpoints_are_named_and_no_record_is_lost(killed):
    there = (killed / "metrics.jsonl").read_bytes()
    for lost in ("checkpoints/last", "checkpoints"):
        shutil.move(killed / lost, killed / "moved")
        with refused("checkpoints/last has no checkpoint: put it back"):
            train.train(config(), killed)
        with refused("has no checkpoint; train it, or put checkpoints/ back"):
            evaluate.evaluate(config(), killed)
        assert (killed / "metrics.jsonl").read_bytes() == there
        shutil.move(killed / "moved", killed / lost)
    (killed / "config.json").unlink()
    with refused("is not empty and has no config.json"):
        train.train(config(), killed)
    assert not (killed / "config.json").exists()


def test_an_export_is_no_run(toy_run, tmp_path):
    loaded_run.load(toy_run).export(tmp_path / "export")
    before = contents(tmp_path)
    for use in USES:
        with refused("is an exported network, not a run directory"):
            use(config(curves=CURVES), tmp_path / "export")
    assert before == contents(tmp_path)


def test_a_finished_run_does_nothing(finished, capsys):
    before = contents(finished)
    assert train.train(config(eval_batch_size=7), finished) == {}
    assert "is finished" in capsys.readouterr().out
    assert before == contents(finished)


def test_each_start_is_recorded_and_a_change_is_printed(killed, monkeypatch, capsys):
    def older(about):
        # Such a run has no record of settings.
        del about["settings"], about["machine"]
        about["git"] = "aaaa"

    edit(killed / "config.json", older)
    monkeypatch.setattr(provenance, "git_commit", lambda: "aaaa")
    train_until(monkeypatch, 8, killed)
    out = capsys.readouterr().out
    assert "resumed otherwise than started before: machine None -> " in out
    assert "before: git" not in out
    assert "before: settings" not in out
    monkeypatch.setattr(provenance, "git_commit", lambda: "bbbb")
    train.train(config(), killed)
    out = capsys.readouterr().out
    assert "resumed otherwise than started before: git aaaa -> bbbb" in out
    starts = provenance.starts(killed)
    assert [start.get("step") for start in starts] == [None, 5, 5]
    assert provenance.commits(killed) == ["aaaa", "bbbb"]
    assert starts[1]["machine"]["cores"] > 0


def test_pmap_runs_are_evaluated_and_finished(tmp_path):
    pmap = config(placement="pmap")
    numbers = train.train(pmap, tmp_path)
    again = evaluate.evaluate(pmap, tmp_path)
    assert again["test/error"] == pytest.approx(numbers["best test/error"], rel=1e-6)
    # Killed between the last checkpoint and results.json.
    (tmp_path / "results.json").unlink()
    assert train.train(pmap, tmp_path) == numbers
