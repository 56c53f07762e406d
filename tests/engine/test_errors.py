"""Every script ends a mistake with one line and an exit code, without a traceback."""

import os
import subprocess
import sys

import pytest

from lnrepro.engine import loaded_run
from tests.refused import refused
from tests.runs import ROOT

SCRIPT = """
import sys
from lnrepro.errors import run_script

def main(argv):
    {body}

run_script(main, "this test")
"""


def script(body, stdout=subprocess.PIPE):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(body=body)],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_file_that_cannot_be_written_is_named():
    process = script("open('/proc/x.svg', 'w')")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == "error: /proc/x.svg: No such file or directory\n"


def test_a_reader_that_has_enough_ends_the_script_silently():
    process = script("[print('a' * 1000) for _ in range(10000)]")
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141


@pytest.mark.parametrize("content", ["{", '{"config": 3}', "null", '{"config": {}}'])
def test_a_config_json_that_is_none_is_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with refused(str(tmp_path), "config.json"):
        loaded_run.load(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is full")
def test_what_cannot_be_printed_is_dropped():
    code = "from lnrepro.errors import say; [say('line') for _ in range(3)]"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=full, stderr=subprocess.PIPE
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_sigterm_ends_a_script_in_order():
    body = (
        "import os, signal\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    finally:\n"
        "        print('cleaned')"
    )
    process = script(body)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + 15, "cleaned\n", "")
