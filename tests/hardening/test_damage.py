"""Storage faults: damaged files, full disks, and folders that vanish.

Each ends in one line, and the run that is resumed afterwards ends with the same bits.
"""

import collections
import contextlib
import io
import os
import random
import resource
import shutil
import time

import jax
import numpy as np
import pytest

from lnrepro.engine import train
from lnrepro.engine.checkpoint import restore
from lnrepro.engine.events import Events
from lnrepro.engine.store import Store
from lnrepro.errors import RunError
from tests.engine import toy
from tests.engine.toy import config, train_until
from tests.hardening.processes import assert_same_run
from tests.refused import refused


@pytest.fixture
def small_files():
    """A function (size) that limits the size of files, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size=512: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def disturbed(monkeypatch, folder, at, harm):
    """Train in `folder`; `harm()` is done when batch `at` is asked for."""
    with monkeypatch.context() as m:
        toy.act_before(m, at, harm)
        train.train(config(), folder)


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def flip(path):
    content = bytearray(path.read_bytes())
    rng = random.Random(path.name)
    content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, os.remove, flip])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, damage):
    """Every file of it, one at a time; nothing else is ever restored."""
    kept, copy = tmp_path / "kept", tmp_path / "copy"
    states = {s: {"w": np.arange(200.0) * s, "b": np.float32([s])} for s in (1, 2)}
    with contextlib.closing(Store(kept)) as store:
        for step, state in states.items():
            store.save("last", step, state, {"records": step})
    like = jax.tree.map(np.zeros_like, states[1])
    newest = [p for p in (kept / "last/2").rglob("*") if p.is_file()]
    found = collections.Counter()
    for file in [path for path in newest if path.stat().st_size]:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(kept, copy)
        damage(copy / file.relative_to(kept))
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            saved = restore(copy / "last", like, resumes=True)
        toy.assert_same_bits(saved.state, states[saved.step])
        assert saved.notes == {"records": saved.step}
        assert err.getvalue().count("\n") == (saved.step == 1)
        found[saved.step] += 1
    assert found[1] > 1


def test_a_run_falls_back_and_ends_the_same(killed, monkeypatch, toy_run, capsys):
    train_until(monkeypatch, 11, killed)
    files = (p for p in (killed / "checkpoints/last/10").rglob("*") if p.is_file())
    truncate(max(files, key=os.path.getsize))
    train.train(config(), killed)
    assert "last/10 cannot be read" in capsys.readouterr().err
    assert_same_run(toy_run, killed)


def test_a_full_disk_ends_the_run_in_one_line_and_it_resumes(
    killed, monkeypatch, toy_run, small_files
):
    # There is no room for a second record. `errors.exit_code` prints this.
    with pytest.raises(OSError, match="File too large"):
        disturbed(monkeypatch, killed, 7, lambda: small_files(150))
    # As if room had been made on the disk.
    small_files(resource.RLIM_INFINITY)
    train.train(config(), killed)
    assert_same_run(toy_run, killed)


def test_events_on_a_full_disk_raise_where_they_are_written(tmp_path, small_files):
    events = Events(tmp_path, 0)
    small_files()
    steps = (events.scalar("loss", 1.0, step) for step in range(10_000))
    with pytest.raises(OSError, match="File too large"):
        collections.deque(steps, maxlen=0)


def test_what_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with refused("cannot write to --workdir ", "Not a directory"):
        train.train(config(), tmp_path / "file/run")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_directory_that_vanishes_is_not_written_anew(
    tmp_path, monkeypatch, toy_run, replaced
):
    folder, moved = tmp_path / "run", tmp_path / "moved"

    def evaluate(real, vars, name):
        # What is on its way to the disk would still be written.
        while not (folder / "checkpoints/last/10").is_dir():
            time.sleep(0.01)
        folder.rename(moved)
        if replaced:
            shutil.copytree(toy_run, folder)
        return real(vars, name)._replace(files={"new.txt": ""})

    with monkeypatch.context() as m:
        toy.change(m, evaluate=evaluate)
        with refused("removed, moved, replaced or changed", error=RunError):
            train.train(config(), folder)
    if replaced:
        assert_same_run(toy_run, folder)
    else:
        assert not folder.exists()
    train.train(config(), moved)
    assert_same_run(toy_run, moved)


def test_a_run_goes_on_with_its_own_records_only(killed, monkeypatch, toy_run):
    train_until(monkeypatch, 11, killed)
    path = killed / "metrics.jsonl"
    own = path.read_bytes()
    lines = own.splitlines(keepends=True)
    for other in (
        lines[:1],
        [line.replace(b"4", b"5") for line in lines],
    ):
        path.write_bytes(b"".join(other))
        says = "does not hold the 2 records that go with the checkpoint of step 10"
        with refused(says):
            train.train(config(), killed)
        assert path.read_bytes() == b"".join(other)
    path.write_bytes(own)
    train.train(config(), killed)
    assert_same_run(toy_run, killed)


def replace(path):
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)


@pytest.mark.parametrize("harm", [replace, truncate, os.remove])
def test_records_that_are_changed_end_the_run(killed, monkeypatch, harm):
    path = killed / "metrics.jsonl"
    with refused(f"{path} was removed, moved, replaced or changed", error=RunError):
        disturbed(monkeypatch, killed, 7, lambda: harm(path))
    assert not (killed / "results.json").exists()
