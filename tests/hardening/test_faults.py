"""Storage faults: damaged files, full disks, read-only and removed folders.

`python -m tests.hardening faults` tries more of each.
"""

import collections
import itertools
import json
import logging
import pathlib
import random
import resource
import shutil
import sys
import time
import types

import numpy as np
import pytest

from lnrepro.engine import train
from lnrepro.engine.checkpoint import Store
from lnrepro.engine.events import Events
from lnrepro.errors import RunError, UserError
from tests.engine import toy
from tests.hardening import faults


@pytest.fixture(autouse=True, scope="module")
def _no_data_set():
    with pytest.MonkeyPatch.context() as m:
        m.setattr(train, "_data_identity", lambda config: ("toy/1", {}))
        yield


def config():
    c = toy.get_config()
    c.evals.picture, c.curves = "never", ()
    return c


@pytest.fixture
def small_files():
    """A function (size) that limits the size of files, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size=512: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> pathlib.Path:
    """The undisturbed run."""
    folder = tmp_path_factory.mktemp("whole")
    train.train(config(), folder)
    return folder


def disturbed(monkeypatch, folder: pathlib.Path, at: int, harm) -> None:
    """Train in `folder`; `harm()` is done when batch `at` is asked for."""
    # `harm` runs where the loop asks for batch `at`, in the middle of a run.
    make = toy.make

    def harmed(c):
        exp = make(c)

        def batches(start):
            for k, batch in zip(
                itertools.count(start), exp.batches(start), strict=False
            ):
                if k == at:
                    harm()
                yield batch

        return exp._replace(batches=batches)

    with monkeypatch.context() as m:
        m.setattr(toy, "make", harmed)
        train.train(config(), folder)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory) -> pathlib.Path:
    """A run that crashed after its checkpoints of the steps 15 and 20."""

    def crash():
        raise KeyError("crash")

    folder = tmp_path_factory.mktemp("crashed")
    with pytest.MonkeyPatch.context() as m, pytest.raises(KeyError):
        disturbed(m, folder, 22, crash)
    return folder


def test_one_damaged_file_of_a_checkpoint_never_restores_anything_else(tmp_path):
    store = Store(tmp_path / "checkpoints")
    for step in (1, 2):
        store.save(
            "last",
            step,
            {"w": np.arange(200.0) * step, "b": np.float32([step])},
            {"records": step, "best": None},
        )
    store.close()
    like = {"w": np.zeros(200), "b": np.zeros(1, np.float32)}
    outcomes = faults.damage_each(tmp_path / "checkpoints", like, 0, random.Random(0))
    assert sum(found["wrong"] for found in outcomes.values()) == 0
    assert all(found["the one before"] > 1 for found in outcomes.values()), outcomes


def test_a_changed_note_is_noticed(tmp_path, capsys):
    store = Store(tmp_path)
    for step in (1, 2):
        store.save("last", step, {"w": np.zeros(3)}, {"records": step})
    store.close()
    (file,) = (
        p for p in (tmp_path / "last/2/notes").iterdir() if "records" in p.read_text()
    )
    # Valid JSON with another number: only the digest can show it.
    file.write_text(json.dumps(json.loads(file.read_text()) | {"records": 7}))
    store = Store(tmp_path)
    assert store.restore("last", {"w": np.zeros(3)}).notes == {"records": 1}
    store.close()
    assert (
        "last/2 cannot be read (its contents do not match its digest); set aside"
        in capsys.readouterr().err
    )


def test_late_reads_of_a_damaged_checkpoint_say_nothing(tmp_path, monkeypatch, caplog):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    store = Store(tmp_path)
    for step in (1, 2):
        store.save("last", step, {"w": np.zeros(3)}, {})
    store.wait()
    # Reading the rest of the checkpoint goes on while one of its files is missing.
    faults.remove(tmp_path / "last/2/state/manifest.ocdbt", random.Random(0))
    assert store.restore("last", {"w": np.zeros(3)}).step == 1
    store.close()
    others = [
        types.SimpleNamespace(exc_value=RuntimeError(m))
        for m in ("Event loop is closed", "another")
    ]
    for unraisable in others:
        sys.unraisablehook(unraisable)
    assert seen == others[1:]
    for message in (
        "Task exception was never retrieved\n...",
        "Future exception was never retrieved\n...",
        "another",
    ):
        logging.getLogger("asyncio").error(message)
    assert [r.getMessage() for r in caplog.records if r.name == "asyncio"] == [
        "another"
    ]


def test_looking_at_a_run_in_progress_changes_nothing(tmp_path, capsys):
    store = Store(tmp_path)
    for step in (1, 2):
        store.save("last", step, {"w": np.zeros(3)}, {})
    store.close()
    (tmp_path / "last/3.orbax-checkpoint-tmp/state").mkdir(
        parents=True
    )  # as while it is being written
    for path in (tmp_path / "last/2/state").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    before = sorted(tmp_path.rglob("*"))
    store = Store(tmp_path, writing=False)
    assert store.restore("last", {"w": np.zeros(3)}).step == 1
    store.close()
    assert sorted(tmp_path.rglob("*")) == before
    assert "last/2 cannot be read" in capsys.readouterr().err


def test_full_disk_ends_the_run_in_one_line_and_it_resumes(
    tmp_path, monkeypatch, whole, small_files
):
    with pytest.raises(RunError, match=r"checkpoints .* are intact") as e:
        disturbed(monkeypatch, tmp_path / "full", 12, small_files)
    assert "File too large" in str(e.value)
    # As if room had been made on the disk.
    small_files(resource.RLIM_INFINITY)
    train.train(config(), tmp_path / "full")
    assert (tmp_path / "full/metrics.jsonl").read_text() == (
        whole / "metrics.jsonl"
    ).read_text()
    assert (tmp_path / "full/results.json").read_text() == (
        whole / "results.json"
    ).read_text()


def test_pictures_that_cannot_be_written_end_the_run_in_one_line(tmp_path):
    (tmp_path / "run").mkdir()
    # A file where the folder of pictures should be.
    (tmp_path / "run/artifacts").write_text("in the way")
    with pytest.raises(
        RunError,
        match=r"run/artifacts.*: (Not a directory|File exists); checkpoints saved "
        r"before are",
    ):
        train.train(toy.get_config(), tmp_path / "run")


def test_events_on_a_full_disk_raise_where_they_are_written(tmp_path, small_files):
    events = Events(tmp_path, 0)
    small_files()
    with pytest.raises(OSError, match="File too large"):
        collections.deque(
            (events.scalar("loss", 1.0, step) for step in range(10_000)), maxlen=0
        )


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UserError, match=r"cannot write to --workdir .*/file/run: Not a directory"
    ):
        train.train(config(), tmp_path / "file/run")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_directory_that_vanishes_is_not_written_anew(
    tmp_path, monkeypatch, whole, replaced
):
    folder, moved = tmp_path / "run", tmp_path / "moved"

    def harm():
        while not (
            folder / "checkpoints/last/10"
        ).is_dir():  # what is on its way to the disk would still be written
            time.sleep(0.01)
        folder.rename(moved)
        if replaced:
            shutil.copytree(whole, folder)

    with pytest.raises(
        RunError,
        match="was removed, moved or replaced during the run; nothing more is written "
        "there",
    ):
        disturbed(monkeypatch, folder, 12, harm)
    if replaced:
        assert (folder / "results.json").read_text() == (
            whole / "results.json"
        ).read_text()
        assert sorted(p.name for p in (folder / "checkpoints/last").iterdir()) == [
            "25",
            "30",
        ]
    else:
        # Nothing may appear where the directory was.
        assert not folder.exists()
    # The moved run resumes and ends as the undisturbed one.
    train.train(config(), moved)
    assert (moved / "metrics.jsonl").read_text() == (
        whole / "metrics.jsonl"
    ).read_text()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (
            lambda path: path.unlink(),
            r"metrics\.jsonl has 0 of the 7 records that go with the checkpoint of "
            r"step 20",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes()[:200]),
            r"has \d of the 7 records",
        ),
        (
            lambda path: path.write_bytes(b"\xff" + path.read_bytes()[1:]),
            r"metrics\.jsonl:1: not a metrics record",
        ),
    ],
)
def test_missing_records_are_not_passed_over(tmp_path, crashed, harm, says):
    folder = tmp_path / "run"
    shutil.copytree(crashed, folder)
    harm(folder / "metrics.jsonl")
    with pytest.raises(UserError, match=says):
        train.train(config(), folder)


@pytest.mark.slow
def test_faults_of_the_command(tmp_path):
    """One fault of each kind, done as `python -m tests.hardening faults` does it."""
    bench = faults.Bench(tmp_path / "runs", tmp_path / "home")
    for name in (
        "newest checkpoint: flip its largest file",
        "a second process",
        "disk full in flight",
    ):
        try:
            result = faults.FAULTS[name](bench, random.Random(0))
        except faults.NotPermitted:
            continue
        assert not result.wrong, (name, result)
