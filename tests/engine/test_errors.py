"""Mistakes end with one line and an exit code; and the lock of a run directory."""

import errno
import fcntl
import subprocess
import sys

import pytest

from lnrepro.engine import loaded_run, workdir
from tests.refused import refused
from tests.runs import ROOT

SCRIPT = """
import os, signal, sys
from lnrepro.errors import Stopped, run_script, say

def main(argv):
    {body}

run_script(main, "this test")
"""


@pytest.mark.parametrize(
    ("body", "code", "out", "err"),
    [
        (
            "open('/proc/x.svg', 'w')",
            1,
            "",
            "error: /proc/x.svg: No such file or directory\n",
        ),
        # A script that SIGTERM ends deletes its temporary folders.
        (
            "try: os.kill(os.getpid(), signal.SIGTERM)\n    finally: print('cleaned')",
            128 + 15,
            "cleaned\n",
            "",
        ),
        (
            "raise Stopped(signal.SIGTERM, 7)",
            128 + 15,
            "",
            "stopped by SIGTERM at step 7; saved, the same command resumes\n",
        ),
        # What cannot be printed is dropped.
        (
            "os.dup2(os.open('/dev/full', os.O_WRONLY), 1); say('a'); say('b')",
            0,
            "",
            "",
        ),
        # Without the place in the code.
        (
            "import warnings; warnings.warn('left out: x')",
            0,
            "",
            "warning: left out: x\n",
        ),
        # A reader has enough.
        (
            "r, w = os.pipe(); os.close(r); os.dup2(w, 1); print(flush=True)",
            141,
            "",
            "",
        ),
    ],
    ids=["file", "sigterm", "stopped", "full", "warning", "pipe"],
)
def test_a_script_ends_without_a_traceback(body, code, out, err):
    command = [sys.executable, "-c", SCRIPT.format(body=body)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


@pytest.mark.parametrize("content", ["{", '{"config": 3}', "null", '{"config": {}}'])
def test_a_config_json_that_is_none_is_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with refused(str(tmp_path), "config.json"):
        loaded_run.load(tmp_path)


def test_a_lock_is_held_as_long_as_its_run(tmp_path):
    assert not workdir.is_training(tmp_path)
    with workdir.lock(tmp_path):
        assert workdir.is_training(tmp_path)
        with refused("is in use by another run"):
            workdir.lock(tmp_path).__enter__()
    assert not workdir.is_training(tmp_path)


def test_a_file_system_without_locks_is_not_another_run(tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with refused(str(tmp_path), "lock a file there", "No locks available"):
        workdir.lock(tmp_path).__enter__()
    assert not workdir.is_training(tmp_path)
