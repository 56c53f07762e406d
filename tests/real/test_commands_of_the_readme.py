"""The commands of README run in the order in which they stand."""

import re
import subprocess
import sys

import pytest

from tests.runs import ROOT, environment

# So that each run ends in seconds.
FEW_STEPS = "--config.steps=20 --config.epochs=None"


def commands():
    """The lines of its shell blocks, from quickstart on, without comments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.S))
    lines = [line.partition(" #")[0].strip() for line in blocks.splitlines()]
    return lines[lines.index("scripts/quickstart") :]


@pytest.mark.slow
def test_they_run_in_their_order(real_data, tmp_path):
    for name in ("configs", "experiments", "lnrepro", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    # An environment in which everything is installed already.
    tools = tmp_path / ".venv/bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f"PATH={tools}:$PATH\n")
    (tools / "python").write_text(
        f'#!/bin/sh\n[ "$2" = pip ] || exec {sys.executable} "$@"\n'
    )
    (tools / "python").chmod(0o755)
    program = []
    for line in commands():
        if "--config=" in line or line == "scripts/quickstart":
            line = f"{line} {FEW_STEPS}"
        program.append(line.replace("DIR", str(real_data / "mnist")))
    assert len(program) >= 6
    env = environment(tmp_path) | {"PYTHONPATH": str(tmp_path)}
    script = "\n".join(["set -ex", *program])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "runs/mnist/paper-layer-seed0/results.json").exists()
