"""Checkpoints: which are set aside, which stay, and which are replaced."""

import numpy as np
import optax
import pytest

from lnrepro.engine import loop, train
from lnrepro.engine.checkpoint import Checkpoint, Store
from lnrepro.errors import RunError, UserError


def state(value=0.0, **more):
    arrays = {"w": np.full((3, 2), value), **more}
    return {"params": arrays, "opt_state": ({"mu": np.zeros(3)}, optax.EmptyState())}


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path)
    yield found
    found.close()


def save(store, name, *steps, value=0.0):
    for step in steps:
        store.save(name, step, state(value), {})
    store.wait()


def steps(store, name):
    return sorted(int(p.name) for p in (store.folder / name).iterdir())


def empty(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


def fail(error):
    def read(*args):
        raise error

    return read


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (MemoryError(), MemoryError),
        (OSError(24, "Too many open files", "manifest"), RunError),
        (PermissionError(13, "Permission denied"), RunError),
        # As TensorStore words it.
        (ValueError("PERMISSION_DENIED: ... [os_error_code='13']"), RunError),
    ],
)
def test_what_is_no_damage_moves_nothing(store, monkeypatch, error, raised):
    save(store, "last", 5, 10)
    with monkeypatch.context() as m:
        m.setattr(store, "_read", fail(error))
        with pytest.raises(raised):
            store.restore("last", state())
    assert steps(store, "last") == [5, 10]
    assert not (store.folder / "damaged").exists()
    assert store.restore("last", state()).step == 10


def test_a_flipped_byte_is_damage(store):
    save(store, "last", 5)
    # The list of the arrays is intact, and a byte of their values is not.
    for file in (store.folder / "last/5/state").rglob("d/*"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    with pytest.raises(UserError, match="none of the checkpoints"):
        store.restore("last", state())
    assert (store.folder / "damaged/last-5").exists()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (state(v=np.zeros(1)), "5 is of another model: it lacks 'params/v'"),
        ({"params": state()["params"]}, "it has 'opt_state/0/mu'"),
    ],
)
def test_checkpoints_of_another_model_stay(store, capsys, other, says):
    save(store, "last", 5)
    with pytest.raises(UserError, match=says):
        store.restore("last", other)
    assert steps(store, "last") == [5]
    assert not (store.folder / "damaged").exists()
    assert capsys.readouterr().err == ""


def test_damaged_checkpoints_of_one_step_are_all_kept(store, capsys):
    save(store, "last", 5)
    for value in (1.0, 2.0):
        save(store, "last", 10, value=value)
        empty(store.folder / "last/10")
        assert store.restore("last", state()).step == 5
    assert "last/10 cannot be read" in capsys.readouterr().err
    damaged = sorted(p.name for p in (store.folder / "damaged").iterdir())
    assert damaged == ["last-10", "last-10-2"]


def test_a_better_state_replaces_the_best_of_later_steps(store):
    save(store, "best", 500, value=1.0)
    save(store, "best", 400, value=2.0)
    assert steps(store, "best") == [400]
    saved = store.restore("best", state())
    np.testing.assert_array_equal(saved.state["params"]["w"], state(2.0)["params"]["w"])


def test_a_checkpoint_that_is_not_saved_is_an_error(store, monkeypatch):
    import orbax.checkpoint as ocp

    monkeypatch.setattr(ocp.CheckpointManager, "save", lambda *a, **k: False)
    with pytest.raises(RunError, match="did not save the checkpoint of step 5"):
        store.save("last", 5, state(), {})


def test_processes_that_read_different_steps_are_refused(monkeypatch):
    from jax.experimental import multihost_utils

    monkeypatch.setattr(train.jax, "process_count", lambda: 2)
    # The other process has read step 10.
    monkeypatch.setattr(
        multihost_utils, "process_allgather", lambda own: np.array([own, 10])
    )
    loop.check_same_step(Checkpoint(10, None, {}))
    with pytest.raises(UserError, match=r"different steps, \[5, 10\]; give all"):
        loop.check_same_step(Checkpoint(5, None, {}))
    with pytest.raises(UserError, match=r"different steps, \[0, 10\]"):
        loop.check_same_step(None)
