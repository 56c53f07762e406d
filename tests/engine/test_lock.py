"""The lock of a run directory: held, free, or a file system that has no locks."""

import errno
import fcntl
import os

import pytest

from lnrepro.engine import workdir
from tests.refused import refused


def refuse(monkeypatch, number):
    """Make the file system answer every request for a lock with an error."""

    def flock(file, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_lock_is_held_as_long_as_its_run(tmp_path):
    assert workdir.lock_state(tmp_path) == "free"
    with workdir.lock(tmp_path):
        assert workdir.lock_state(tmp_path) == "held"
        with refused("is in use by another run"):
            workdir.lock(tmp_path).__enter__()
    assert workdir.lock_state(tmp_path) == "free"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EIO])
def test_a_file_system_without_locks_is_not_another_run(tmp_path, monkeypatch, number):
    (tmp_path / "lock").touch()
    refuse(monkeypatch, number)
    assert workdir.lock_state(tmp_path) == "unknown"
    with refused("cannot lock", os.strerror(number)):
        workdir.lock(tmp_path).__enter__()


def test_asking_does_not_disturb_a_run_that_starts(tmp_path, monkeypatch):
    answers = [BlockingIOError(errno.EAGAIN, "another process asks"), None]

    def flock(file, operation):
        if answers and (error := answers.pop(0)):
            raise error

    monkeypatch.setattr(fcntl, "flock", flock)
    with workdir.lock(tmp_path):
        pass
    assert not answers
