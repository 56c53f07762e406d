"""A run starts from the state of step 0 as it is read back from its directory."""

import shutil
import threading

import jax.numpy as jnp
import pytest

from lnrepro.engine import evaluate, loaded_run, train
from tests.engine import toy
from tests.engine.toy import config, train_until
from tests.hardening.processes import assert_same_run, saved
from tests.refused import refused


@pytest.mark.parametrize(
    ("added", "named"),
    [
        ({"a": {"b": jnp.ones(3)}, "a.b": jnp.zeros(3)}, "do not match its digest"),
        # Orbax refuses it.
        ({"empty": jnp.zeros((0, 3))}, "zero size: ParamInfo: [name=params.empty"),
    ],
    ids=["names that meet", "no elements"],
)
def test_an_array_that_cannot_be_saved_ends_the_run_before_its_first_step(
    tmp_path, monkeypatch, toy_run, added, named
):
    def init(real, key):
        vars = real(key)
        return vars | {"collection": {}, "params": vars["params"] | added}

    def loss(real, *arguments):
        raise AssertionError("a step was taken")

    with monkeypatch.context() as m:
        toy.change(m, init=init, loss=loss)
        with refused(named):
            train.train(config(), tmp_path)
    assert not (tmp_path / "config.json").exists()
    # No thread of Orbax waits for what was refused.
    for thread in threading.enumerate():
        if thread.name == "json_ch_save":
            thread.join(timeout=9)
            assert not thread.is_alive()
    # The mended command starts.
    train.train(config(), tmp_path)
    assert_same_run(toy_run, tmp_path)


def test_a_path_that_cannot_be_read_is_named(tmp_path):
    folder = tmp_path / "[draft]"
    with refused(f"{folder}/checkpoints: the state of step 0 cannot be saved"):
        train.train(config(), folder)
    assert not (folder / "config.json").exists()


def test_step_0_is_a_place_to_start_from_only(tmp_path, monkeypatch, toy_run):
    # Between the first checkpoint and config.json.
    with monkeypatch.context() as m:
        m.setattr(train.workdir, "describe", toy.crash)
        with pytest.raises(KeyError):
            train.train(config(), tmp_path)
    assert saved(tmp_path) == [0]
    train_until(monkeypatch, 2, tmp_path)
    assert saved(tmp_path) == [0]
    with refused("has no checkpoint; train it"):
        _ = loaded_run.load(tmp_path).params
    with refused("has no checkpoint; train it"):
        evaluate.evaluate(config(), tmp_path)
    train.train(config(), tmp_path)
    assert_same_run(toy_run, tmp_path)


def test_a_damaged_checkpoint_does_not_give_way_to_the_start(killed):
    assert saved(killed) == [0, 5]
    shutil.rmtree(killed / "checkpoints/last/5/state/d")
    with refused("last/5 cannot be read", "and no other one of [5]"):
        train.train(config(), killed)
