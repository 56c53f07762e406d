"""Checkpoints: which are read, which are passed over, and which are replaced."""

import json
import logging
import sys
import types

import numpy as np
import optax
import pytest

from lnrepro.engine import checkpoint, orbax_workarounds
from lnrepro.engine.store import Store
from tests.engine.toy import assert_same_bits
from tests.hardening.processes import saved
from tests.refused import refused


def state(value=0.0, **more):
    arrays = {"w": np.full((3, 2), value), **more}
    return {"params": arrays, "opt_state": ({"mu": np.zeros(3)}, optax.EmptyState())}


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path / "checkpoints")
    yield found
    found.close()


def save(store, name, *steps, value=0.0):
    for step in steps:
        store.save(name, step, state(value), {})
    store.wait()


def restore(store, name="last", like=None):
    return checkpoint.restore(store.folder / name, like or state(), resumes=False)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(24, "Too many open files", "manifest"), "Too many open files"),
        # As TensorStore words it.
        (ValueError("DENIED: ... [os_error_code='13']"), "Permission denied"),
    ],
)
def test_what_cannot_be_read_stays_and_is_named(store, tmp_path, error, says):
    def fail(*args):
        raise error

    save(store, "last", 5, 10)
    with pytest.MonkeyPatch.context() as m:
        m.setattr(checkpoint, "read_one", fail)
        with refused("last/10 cannot be read", says):
            restore(store)
    assert saved(tmp_path) == [5, 10]
    assert restore(store).step == 10


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            state(v=np.zeros(1)),
            "another model: params.v is None there, float64 [1] in this",
        ),
        (
            state(w=np.zeros((2, 3))),
            "params.w is float64 [3, 2] there, float64 [2, 3] in",
        ),
        ({"params": state()["params"]}, "opt_state.0.mu is float64 [3] there, None in"),
    ],
)
def test_checkpoints_of_another_model_stay(store, tmp_path, other, says):
    save(store, "last", 5)
    with refused(says):
        restore(store, like=other)
    assert saved(tmp_path) == [5]


def test_a_damaged_checkpoint_is_replaced_when_its_step_is_saved_again(
    store, tmp_path, capsys
):
    for step in (5, 10):
        store.save("last", step, state(), {"records": step})
    store.wait()
    files = (tmp_path / "checkpoints/last/10/notes").iterdir()
    (file,) = (path for path in files if "records" in path.read_text())
    # Valid JSON with another number: only the digest can show it.
    file.write_text(json.dumps(json.loads(file.read_text()) | {"records": 7}))
    before = restore(store)
    assert (before.step, before.notes) == (5, {"records": 5})
    assert "last/10 cannot be read (its contents do not" in capsys.readouterr().err
    save(store, "last", 10, value=2.0)
    after = restore(store)
    assert after.step == 10
    assert_same_bits(after.state, state(2.0))


def test_late_reads_of_a_damaged_checkpoint_say_nothing(monkeypatch, caplog):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    orbax_workarounds.install.__wrapped__()
    for message in ("Event loop is closed", "another"):
        error = types.SimpleNamespace(exc_value=RuntimeError(message))
        sys.unraisablehook(error)
    assert [str(error.exc_value) for error in seen] == ["another"]
    for message in ("Task exception was never retrieved\n...", "another"):
        logging.getLogger("asyncio").error(message)
    said = [r.getMessage() for r in caplog.records if r.name == "asyncio"]
    assert said == ["another"]


def test_what_a_reader_reads_stays_while_the_run_saves(store, monkeypatch, capsys):
    def both(step, best):
        notes = {"best": {"step": best}}
        store.save("best", best, state(float(best)), notes)
        store.save("last", step, state(float(step)), notes)
        store.wait()

    both(5, 4)
    # As another one is while it is being written.
    (store.folder / "last/6.orbax-checkpoint-tmp").mkdir()
    read = checkpoint.read_one

    def go_on(*arguments):
        both(10, 9)
        return read(*arguments)

    monkeypatch.setattr(checkpoint, "read_one", go_on)
    assert restore(store, "best").step == 4
    assert restore(store).step == 10
    assert capsys.readouterr().err == ""
