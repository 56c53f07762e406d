"""Training loop: what is recorded, evaluated and saved, and when."""

import errno
import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.engine import artifacts, evaluate, train, train_step
from lnrepro.errors import RunError
from tests.engine import toy
from tests.engine.toy import config, final_state, records
from tests.refused import refused

pytestmark = pytest.mark.usefixtures("toy_data")


def test_records_are_complete_and_in_order(toy_run):
    found = records(toy_run)
    assert all(r["data"] == "digits" for r in found)
    logged = [r["step"] for r in found if "train/loss" in r]
    assert logged == [4, 8, 12, 16, 20, 24, 28, 30]
    assert [r["step"] for r in found if "test/error" in r] == [10, 20, 30]
    assert [r["step"] for r in found] == sorted(r["step"] for r in found)


def test_steps_per_call_do_not_change_the_result(tmp_path):
    states = []
    for n in (1, 7):
        c = config(steps_per_call=n)
        train.train(c, tmp_path / str(n))
        states.append(final_state(tmp_path / str(n), c).state)
    for x, y in zip(*map(train.jax.tree.leaves, states), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_the_best_checkpoint_is_the_one_with_the_best_metric(tmp_path):
    # The error falls, so the first evaluation is the largest.
    c = config(best__mode="max")
    train.train(c, tmp_path)
    assert [p.name for p in (tmp_path / "checkpoints/best").iterdir()] == ["10"]
    first = next(r for r in records(tmp_path) if "test/error" in r)
    assert evaluate.evaluate(c, tmp_path)["test/error"] == first["test/error"]


def test_a_checkpoint_that_names_the_best_is_begun_when_the_best_is_on_disk(
    tmp_path, monkeypatch
):
    import orbax.checkpoint as ocp

    begun, save = [], ocp.CheckpointManager.save

    def note(manager, step, **kwargs):
        best = kwargs["args"].notes.item["best"]
        if manager.directory.name == "last" and best:
            begun.append(best["step"])
            assert (tmp_path / "checkpoints/best" / str(best["step"])).is_dir()
        return save(manager, step, **kwargs)

    monkeypatch.setattr(ocp.CheckpointManager, "save", note)
    train.train(config(), tmp_path)
    # Evaluated every 10 steps, saved every 5 and before an evaluation.
    assert begun == [10, 10, 20, 20]


def test_artifacts_and_summary(tmp_path, capsys):
    final = train.train(config(), tmp_path)
    names = {p.name for p in (tmp_path / "artifacts").iterdir()}
    assert names == {"curves.png", "square.png", "note.html"}
    assert final["picture/sum"] == 1.5
    out = capsys.readouterr().out
    assert "curves.png" in out
    assert "data=digits" in out


def test_a_picture_that_cannot_be_drawn_is_a_line_and_a_name(
    tmp_path, monkeypatch, capsys
):
    def fail(*arguments):
        raise RuntimeError("latex\nwas not found")

    monkeypatch.setattr(artifacts, "_draw_curves", fail)
    monkeypatch.setattr(artifacts, "_save_image", fail)
    train.train(config(steps=10), tmp_path)
    out = capsys.readouterr().out
    for name in ("square", "curves"):
        assert out.count(f"not drawn  {name} (RuntimeError: latex)") == 1
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["not_drawn"] == ["curves", "square"]
    assert (tmp_path / "artifacts/note.html").exists()
    evaluate.evaluate(config(steps=10), tmp_path)
    evaluated = json.loads((tmp_path / "evaluation.json").read_text())
    assert evaluated["not_drawn"] == ["square"]


@pytest.mark.parametrize("place", ["artifacts.write", "json_files.write"])
def test_a_read_only_run_shows_its_numbers(tmp_path, monkeypatch, capsys, place):
    train.train(config(steps=10), tmp_path)

    def fail(*arguments):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "evaluation.json")

    monkeypatch.setattr(f"lnrepro.engine.{place}", fail)
    capsys.readouterr()
    numbers = evaluate.evaluate(config(steps=10), tmp_path)
    out = capsys.readouterr().out
    assert numbers["picture/sum"] == 1.5
    assert "picture/sum" in out
    assert "not written: evaluation.json: Read-only file system" in out


def test_a_full_disk_below_a_picture_ends_the_run(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(artifacts, "_save_image", fail)
    with pytest.raises(OSError, match="No space left"):
        train.train(config(steps=10), tmp_path)
    assert not (tmp_path / "results.json").exists()


def test_a_metric_may_be_a_python_number(tmp_path, monkeypatch):
    def loss(real, vars, batch, key):
        value, (collections, metrics) = real(vars, batch, key)
        return value, (collections, metrics | {"half": 0.5, "two": 2})

    toy.change(monkeypatch, loss=loss)
    numbers = train.train(config(steps=4), tmp_path)
    assert (numbers["train/half"], numbers["train/two"]) == (0.5, 2.0)


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(tmp_path):
    c = config(nan_at=13)
    with refused("train/loss is nan at step 14", error=RunError):
        train.train(c, tmp_path)
    assert final_state(tmp_path, c).step == 10
    assert not (tmp_path / "results.json").exists()


def test_parameters_that_broke_in_the_step_before_a_save_are_not_saved(
    tmp_path, monkeypatch
):
    def loss(real, vars, batch, key):
        value, aux = real(vars, batch, key)
        # The value stays finite, the gradient does not.
        alive = jnp.where(batch["k"][0] == 9, 0.0, 1.0)
        return value + 0 * jnp.sqrt(alive * jnp.sum(vars["params"]["w"] ** 2)), aux

    toy.change(monkeypatch, loss=loss)
    c = config(evals__test="never", best__metric=None)
    with refused("not finite after step 10: stopped", error=RunError):
        train.train(c, tmp_path)
    assert final_state(tmp_path, c).step == 5


def test_an_unknown_best_metric_names_the_measured_ones(tmp_path):
    with refused("'test/eror'", "did you mean test/error?"):
        train.train(config(best__metric="test/eror"), tmp_path)


def test_unlike_batches_in_one_call_are_refused():
    batches = iter([{"x": np.zeros((2, 3))}, {"x": np.zeros((2, 4))}])
    with refused("steps_per_call = 2 needs batches of one"):
        train_step.take(batches, 2)
