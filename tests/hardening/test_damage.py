"""Storage faults: damaged files, full disks, and folders that vanish.

Each ends in one line, and the run that is resumed afterwards ends with the same bits.
"""

import collections
import contextlib
import io
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import time

import jax
import numpy as np
import pytest

from lnrepro.engine import train
from lnrepro.engine.checkpoint import Store
from lnrepro.engine.events import Events
from lnrepro.engine.run import Run
from lnrepro.errors import RunError
from tests.engine import toy
from tests.engine.toy import config
from tests.refused import refused

QUIET = {"evals__picture": "never", "curves": ()}


@pytest.fixture(autouse=True, scope="module")
def _toy_data():
    with pytest.MonkeyPatch.context() as m:
        m.setattr(Run, "data_identity", lambda run: ("toy/1", {}))
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The undisturbed run."""
    folder = tmp_path_factory.mktemp("whole")
    train.train(config(**QUIET), folder)
    return folder


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
        train.train(config(**QUIET), folder)


def assert_same_records(a, b):
    for name in ("metrics.jsonl", "results.json"):
        assert (a / name).read_bytes() == (b / name).read_bytes()


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
        with contextlib.closing(Store(copy)) as store, contextlib.redirect_stderr(err):
            saved = store.restore("last", like)
        toy.assert_same_bits(saved.state, states[saved.step])
        assert saved.notes == {"records": saved.step}
        assert err.getvalue().count("\n") == (saved.step == 1)
        found[saved.step] += 1
    assert found[1] > 1


def crash():
    raise KeyError("crash")


def test_a_run_falls_back_and_ends_the_same(tmp_path, monkeypatch, whole, capsys):
    with pytest.raises(KeyError):
        disturbed(monkeypatch, tmp_path, 23, crash)
    files = (p for p in (tmp_path / "checkpoints/last/20").rglob("*") if p.is_file())
    truncate(max(files, key=os.path.getsize))
    train.train(config(**QUIET), tmp_path)
    assert "last/20 cannot be read" in capsys.readouterr().err
    assert_same_records(tmp_path, whole)


def test_a_full_disk_ends_the_run_in_one_line_and_it_resumes(
    tmp_path, monkeypatch, whole, small_files
):
    # Of a checkpoint, or of TensorBoard's file: `errors.exit_code` prints either.
    with pytest.raises((RunError, OSError), match="File too large"):
        disturbed(monkeypatch, tmp_path, 12, small_files)
    # As if room had been made on the disk.
    small_files(resource.RLIM_INFINITY)
    train.train(config(**QUIET), tmp_path)
    assert_same_records(tmp_path, whole)


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


def test_pictures_that_cannot_be_written_end_the_run_in_one_line(tmp_path, monkeypatch):
    def block():
        # A file where the folder of pictures should be.
        (tmp_path / "artifacts").write_text("in the way")

    with monkeypatch.context() as m:
        toy.act_before(m, 20, block)
        with pytest.raises(OSError, match="artifacts"):
            train.train(config(), tmp_path)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_directory_that_vanishes_is_not_written_anew(
    tmp_path, monkeypatch, whole, replaced
):
    folder, moved = tmp_path / "run", tmp_path / "moved"

    def harm():
        # What is on its way to the disk would still be written.
        while not (folder / "checkpoints/best/10").is_dir():
            time.sleep(0.01)
        folder.rename(moved)
        if replaced:
            shutil.copytree(whole, folder)

    with refused("removed, moved or replaced during the run", error=RunError):
        disturbed(monkeypatch, folder, 12, harm)
    if replaced:
        assert_same_records(folder, whole)
        last = sorted(p.name for p in (folder / "checkpoints/last").iterdir())
        assert last == ["25", "30"]
    else:
        assert not folder.exists()
    train.train(config(**QUIET), moved)
    assert_same_records(moved, whole)


CHANGES = {
    "cut": lambda lines: lines[:2],
    "reversed": lambda lines: lines[::-1],
    "doubled": lambda lines: [line for line in lines for _ in range(2)],
    "of another run": lambda lines: [line.replace(b"4", b"5") for line in lines],
    "binary": lambda lines: [b"\xff", *lines],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_run_goes_on_with_its_own_records_only(tmp_path, monkeypatch, whole, change):
    with pytest.raises(KeyError):
        disturbed(monkeypatch, tmp_path, 22, crash)
    path = tmp_path / "metrics.jsonl"
    own = path.read_bytes()
    other = b"".join(change(own.splitlines(keepends=True)))
    path.write_bytes(other)
    with refused("does not hold the 6 records that go with the checkpoint of step 20"):
        train.train(config(**QUIET), tmp_path)
    assert path.read_bytes() == other
    path.write_bytes(own)
    train.train(config(**QUIET), tmp_path)
    assert_same_records(tmp_path, whole)


def test_records_without_a_digest_go_on_by_their_number(
    tmp_path, monkeypatch, whole, capsys
):
    with pytest.raises(KeyError):
        disturbed(monkeypatch, tmp_path, 22, crash)
    restore = Store.restore

    def old(store, *arguments):
        saved = restore(store, *arguments)
        saved.notes["records"] = saved.notes["records"][0]
        return saved

    monkeypatch.setattr(Store, "restore", old)
    train.train(config(**QUIET), tmp_path)
    assert "no digest of its records; the first 6 are" in capsys.readouterr().err
    assert_same_records(tmp_path, whole)


def replace(path):
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)


def test_replaced_records_end_the_run_and_are_put_back_by_one_command(
    tmp_path, monkeypatch, whole
):
    path = tmp_path / "metrics.jsonl"
    with refused("was replaced or changed", error=RunError) as caught:
        disturbed(monkeypatch, tmp_path, 12, lambda: replace(path))
    command = re.search(r"records back: (mv .*);", str(caught.value))[1]
    assert len(path.read_bytes().splitlines()) == 3
    assert toy.final_state(tmp_path, config(**QUIET)).step == 15
    subprocess.run(shlex.split(command), check=True)
    train.train(config(**QUIET), tmp_path)
    assert_same_records(tmp_path, whole)


def test_truncated_records_end_the_run(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    with refused("what is left of them; put the file back", error=RunError):
        disturbed(monkeypatch, tmp_path, 27, lambda: os.truncate(path, 0))
    assert not (tmp_path / "results.json").exists()
    assert (tmp_path / "metrics.recovered.jsonl").exists()
