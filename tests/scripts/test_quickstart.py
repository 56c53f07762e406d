"""scripts/quickstart on a new machine: how the installation goes on or fails."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.runs import ROOT


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a .venv whose Python runs `pip` as the test says."""
    files = ["pyproject.toml", "constraints.txt", "README.md", "LICENSE"]
    for name in [*files, "lnrepro", "scripts"]:
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    return tmp_path


def program(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def quickstart(checkout, **variables):
    """Run it with a clock that is fifty times as fast."""
    program(checkout / "bin/sleep", "exec /bin/sleep 0.1")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    env |= {"PATH": f"{checkout / 'bin'}:{env['PATH']}", "PIP_CONFIG_FILE": "/dev/null"}
    return subprocess.run(
        ["sh", "scripts/quickstart"],
        cwd=checkout,
        env=env | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


PIP = """
case "$*" in
  "-m pip --version") exit 0 ;;
  "-m pip install "*)
    echo "Collecting jax>=0.10"
    echo "Collecting flax"
    /bin/sleep 0.5
    {then} ;;
  *) echo "ran $*" ;;
esac
"""


def test_the_installation_shows_that_it_goes_on(checkout):
    then = "echo 'Installing collected packages: jax'; /bin/sleep 0.5"
    program(checkout / ".venv/bin/python", PIP.format(then=then))
    done = quickstart(checkout)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ran -m lnrepro.main --config=configs/draw.py\n"
    first, *lines = done.stderr.splitlines()
    assert first.startswith("installing lnrepro[train] into .venv (once; ")
    assert "  5 s: 2 packages found" in lines
    assert lines[-1].endswith(" s: all packages are here, unpacking them")
    # A second start installs nothing.
    assert quickstart(checkout).stderr == ""


def test_another_python_installs_again(checkout):
    """An upgrade leaves .venv without the packages of the new version."""
    script = """
. scripts/venv.sh
install_with_progress() { echo installs; }
venv_with train"""
    for version, says in (
        ("3.11.1", "installs"),
        ("3.11.1", ""),
        ("3.13.0", "installs"),
    ):
        program(checkout / ".venv/bin/python", f"echo Python {version}")
        done = subprocess.run(
            ["sh", "-euc", script], cwd=checkout, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout.strip()) == (0, says), done.stderr


def test_a_failure_of_pip_is_named_and_nothing_is_trained(checkout):
    then = "echo 'ERROR: No matching distribution found for jax' >&2; exit 1"
    program(checkout / ".venv/bin/python", PIP.format(then=then))
    done = quickstart(checkout)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "ERROR: No matching distribution found for jax\n"
        "error: pip could not install the packages; see .venv/install.log\n"
    )


def test_no_network_is_one_line(checkout):
    """The pip of this Python, with an index where nothing listens."""
    program(checkout / ".venv/bin/python", f'exec "{sys.executable}" "$@"')
    done = quickstart(
        checkout,
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_RETRIES="1",
        # Nothing may come into this environment.
        PIP_TARGET=str(checkout / "target"),
        PIP_NO_CACHE_DIR="1",
    )
    assert (done.returncode, done.stdout) == (2, "")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  ")]
    assert len(lines) == 2, done.stderr
    assert lines[1].startswith("error: the package index cannot be reached; connect")
