"""Training loop: what is recorded, evaluated and saved, and when."""

import errno
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from lnrepro.engine import artifacts, distribute, evaluate, metrics, train
from lnrepro.engine import workdir as workdirs
from lnrepro.errors import Diverged
from tests.engine import toy
from tests.engine.toy import CURVES, config, final_state
from tests.hardening.processes import saved
from tests.refused import refused


def records(folder):
    return metrics.read(folder / "metrics.jsonl")


def test_records_are_complete_and_in_order(toy_run):
    found = records(toy_run)
    assert all(r["data"] == "digits" for r in found)
    assert [r["step"] for r in found if "train/loss" in r] == [4, 8, 12]
    assert [r["step"] for r in found if "test/error" in r] == [10, 12]
    assert [r["step"] for r in found] == sorted(r["step"] for r in found)
    assert [r["epoch"] for r in found][:2] == [0.4, 0.8]


def test_steps_per_call_do_not_change_the_result(tmp_path, toy_run):
    train.train(config(steps_per_call=7), tmp_path)
    states = [jax.tree.leaves(final_state(run).state) for run in (toy_run, tmp_path)]
    for x, y in zip(*states, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_the_best_checkpoint_is_the_one_with_the_best_metric(tmp_path, monkeypatch):
    begun, save = [], ocp.CheckpointManager.save

    def note(manager, step, **kwargs):
        best = kwargs["args"].notes.item["best"]
        if manager.directory.name == "last" and best:
            begun.append(best["step"])
            # What a checkpoint names is on disk before.
            assert (tmp_path / "checkpoints/best" / str(best["step"])).is_dir()
        return save(manager, step, **kwargs)

    monkeypatch.setattr(ocp.CheckpointManager, "save", note)
    # The error falls, so the first evaluation is the largest.
    largest = config(best__mode="max", evals__test="4")
    train.train(largest, tmp_path)
    assert saved(tmp_path, "best") == [4]
    assert begun == [4, 4, 4]
    first = next(r for r in records(tmp_path) if "test/error" in r)
    assert evaluate.evaluate(largest, tmp_path)["test/error"] == first["test/error"]


def test_artifacts_and_summary(tmp_path, capsys):
    # The last call takes one step.
    short = config(steps=3, steps_per_call=2, curves=CURVES)
    final = train.train(short, tmp_path)
    assert final_state(tmp_path).step == records(tmp_path)[-1]["step"] == 3
    names = {p.name for p in (tmp_path / "artifacts").iterdir()}
    assert names == {"curves.png", "square.png", "note.txt"}
    assert (final["picture/sum"], final["train/half"]) == (1.5, 0.5)
    out = capsys.readouterr().out
    assert f"pictures   {tmp_path}/artifacts\n" in out
    # The rate of the steps after the first call, which compiles.
    assert " 0:00:00 left  " in out
    assert "toy, none, data: digits, seed 0: training 3 steps on 4 x cpu" in out
    assert json.loads((tmp_path / "results.json").read_text()) == final


def test_a_disk_that_takes_no_pictures(finished, tmp_path, monkeypatch, capsys):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left", "square.png")

    monkeypatch.setattr(artifacts, "_save_image", fail)
    # The numbers come first.
    with pytest.raises(OSError, match="No space left"):
        evaluate.evaluate(config(curves=CURVES), finished)
    assert "picture/sum" in capsys.readouterr().out
    with pytest.raises(OSError, match="No space left"):
        train.train(config(steps=4), tmp_path / "run")
    assert not (tmp_path / "run/results.json").exists()


def test_each_step_draws_numbers_of_its_own(tmp_path, monkeypatch):
    def loss(real, vars, batch, key):
        value, (collections, _) = real(vars, batch, key)
        return value, (collections, {"drawn": jax.random.uniform(key)})

    toy.change(monkeypatch, loss=loss)
    train.train(config(steps=3, log_every=1), tmp_path)
    drawn = {r["train/drawn"] for r in records(tmp_path) if "train/drawn" in r}
    assert len(drawn) == 3


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(
    tmp_path, monkeypatch
):
    broken = config(nan_at=8)
    with refused("train/loss is nan at step 9", error=Diverged):
        train.train(broken, tmp_path)
    assert final_state(tmp_path).step == 5
    assert not (tmp_path / "results.json").exists()
    assert workdirs.ended(tmp_path) == "diverged"
    # The machine that computed the NaN is repaired.
    real = toy.make
    monkeypatch.setattr(toy, "make", lambda c: real(config()))
    train.train(broken, tmp_path)
    assert workdirs.ended(tmp_path) == "finished"


def test_parameters_that_broke_in_the_step_before_a_save_are_not_saved(
    tmp_path, monkeypatch
):
    def loss(real, vars, batch, key):
        value, aux = real(vars, batch, key)
        # The value stays finite, the gradient does not.
        alive = jnp.where(batch["k"][0] == 9, 0.0, 1.0)
        return value + 0 * jnp.sqrt(alive * jnp.sum(vars["params"]["w"] ** 2)), aux

    toy.change(monkeypatch, loss=loss)
    never = config(evals__test="never", best__metric=None)
    with refused("not finite at step 10: stopped", error=Diverged):
        train.train(never, tmp_path)
    assert final_state(tmp_path).step == 5


def measuring(monkeypatch, value, where):
    """Let an evaluation of the toy measure a number beside its own ones."""

    def evaluate(real, vars, name):
        found = real(vars, name)
        if name != where:
            return found
        return found._replace(scalars={**found.scalars, "nll": value})

    toy.change(monkeypatch, evaluate=evaluate)


@pytest.mark.parametrize(
    ("name", "step", "value"), [("test", 10, math.nan), ("picture", 12, -math.inf)]
)
def test_an_evaluation_that_is_not_finite_ends_the_run(
    killed, monkeypatch, name, step, value
):
    measuring(monkeypatch, value, name)
    with refused(f"{name}/nll is {value}", f"at step {step}", error=Diverged):
        train.train(config(), killed)
    assert not (killed / "results.json").exists()
    # The state of this evaluation is not the best one, whatever its other numbers are.
    assert (killed / "checkpoints/best").exists() == (name == "picture")
    *_, last = (killed / "metrics.jsonl").read_text().splitlines()
    assert json.loads(last)[f"{name}/nll"] is None
    assert math.isnan(records(killed)[-1][f"{name}/nll"])
    noted = json.loads((killed / workdirs.DIVERGED).read_text())
    assert noted == {"metric": f"{name}/nll", "step": step}


def test_evaluating_a_state_that_is_not_finite_fails_after_its_numbers(
    finished, monkeypatch
):
    measuring(monkeypatch, math.nan, "test")
    with refused("test/nll is nan", error=Diverged):
        evaluate.evaluate(config(curves=CURVES), finished)
    again = json.loads((finished / "evaluation.json").read_text())
    assert (again["step"], again["test/nll"]) == (12, None)


def test_a_config_that_does_not_fit_the_devices_is_refused(monkeypatch):
    with refused("config.batch_size = 6 does not divide over 4 devices", "take 8"):
        distribute.make("jit", 6)
    assert distribute.make("pmap", 8)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with refused("2 processes need"):
        distribute.make("pmap", 8)
