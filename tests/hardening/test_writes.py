"""A run that is killed between any two of its writes ends with the same bits."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import sys
import threading

import pytest

from lnrepro.engine import metrics, train
from lnrepro.engine.run import Run
from tests.engine import toy
from tests.hardening.processes import assert_same_run, saved

pytestmark = pytest.mark.slow

# Saved at step 4, evaluated at 6, saved at 8, both at 12.
SMALL = {"save_every": 4, "evals__test": "6", "evals__picture": "4", "log_every": 7}
# What Python reports before it changes a folder.
EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


class Watcher:
    """Copies a folder before each write to it, as a kill there would leave it.

    What other threads write waits meanwhile, except within C++: an array may be half
    there, as it may be after a kill.
    """

    def __init__(self, folder: pathlib.Path, copies: pathlib.Path):
        self.folder, self.copies = folder, copies
        self.lock, self.busy = threading.RLock(), False
        self.digests = {}

    def hook(self, event, args):
        """See sys.addaudithook."""
        if event in EVENTS or (event == "open" and _writes(*args)):
            place = os.fsdecode(args[0]) if not isinstance(args[0], int) else ""
            if place.startswith(str(self.folder)):
                self.copy()

    def copy(self):
        """Copy the folder, unless it is as it was at an earlier write."""
        with self.lock:
            if self.busy or not self.folder.exists():
                return
            self.busy = True
            found = hashlib.sha256()
            for path in sorted(self.folder.rglob("*")):
                found.update(str(path).encode())
                # TensorStore's locks come and go.
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    found.update(path.read_bytes())
            name = f"{len(self.digests):03d}"
            if self.digests.setdefault(found.digest(), name) == name:
                with contextlib.suppress(shutil.Error):
                    shutil.copytree(self.folder, self.copies / name)
            self.busy = False


def _writes(path, mode, flags):
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) and not isinstance(path, int)


watching: list[Watcher] = []
# Hooks cannot be taken away again.
sys.addaudithook(lambda event, args: watching and watching[0].hook(event, args))


@pytest.fixture(scope="module")
def moments(tmp_path_factory):
    """The folder of a whole run, and those that kills would leave."""
    home = tmp_path_factory.mktemp("writes")
    watcher = Watcher(home / "whole", home / "copies")
    append = metrics.RecordFile.append

    def watched(file, record):
        # A file that is open is written without a report.
        append(file, record)
        watcher.copy()

    with pytest.MonkeyPatch.context() as m:
        m.setattr(Run, "data", toy.DATA)
        m.setattr(metrics.RecordFile, "append", watched)
        watching.append(watcher)
        train.train(toy.config(**SMALL), home / "whole")
        watching.clear()
    return home / "whole", sorted((home / "copies").iterdir())


def test_the_moments_are_those_of_a_run(moments):
    _, copies = moments
    left = [(saved(path), saved(path, "best")) for path in copies]
    # Each checkpoint is there before what it replaces goes.
    for steps in ([], [0], [0, 4], [4, 8], [8, 12]):
        assert steps in [last for last, _ in left], steps
    assert ([8, 12], [6, 12]) in left
    for path in copies:
        assert saved(path) or not (path / "config.json").exists()


def test_a_run_killed_at_any_write_ends_the_same(moments):
    whole, copies = moments
    for broken in copies:
        try:
            numbers = train.train(toy.config(**SMALL), broken)
            assert_same_run(whole, broken)
            # It was killed after its end.
            assert not numbers or saved(broken, "best")[-1] == numbers["best step"]
        except BaseException as e:
            e.add_note(f"killed at write {broken.name} of {len(copies)}")
            raise
