"""README is short, and what it names exists."""

import os
import re
import subprocess
import sys

import pytest

from tests.runs import ROOT, environment

README = (ROOT / "README.md").read_text(encoding="utf-8")

BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def test_python_blocks_run():
    assert BLOCKS
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), {})


def test_it_is_short():
    assert len(README.splitlines()) <= 90
    assert len(README.split()) <= 800


def test_every_config_is_on_the_page_of_results():
    page = (ROOT / "experiments/README.md").read_text(encoding="utf-8")
    for path in (ROOT / "configs").glob("*.py"):
        assert f"configs/{path.name}" in page, path


@pytest.mark.slow
def test_its_commands_run_in_their_order(tmp_path):
    """From quickstart on. Those after `prepare.py` need the official files."""
    for name in ("configs", "experiments", "lnrepro", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    # An environment in which everything is installed already.
    tools = tmp_path / ".venv/bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f"PATH={tools}:$PATH\n")
    python = f'#!/bin/sh\n[ "$2" = pip ] || exec {sys.executable} "$@"\n'
    (tools / "python").write_text(python)
    (tools / "python").chmod(0o755)
    program = "".join(re.findall(r"```sh\n(.*?)```", README, re.S))
    program = re.sub(" +#.*", "", program[program.index("scripts/quickstart") :])
    steps = r"\1 --config.steps=20 --config.epochs=None"
    program = re.sub(r"(?m)^(.*--config=.*|scripts/quickstart)", steps, program)
    official = os.environ.get("LNREPRO_REAL_DATA")
    if official:
        program = program.replace("DIR", f"{official}/mnist", 1)
    else:
        program = program[: program.index("python scripts/prepare.py")]
    env = environment(tmp_path) | {"PYTHONPATH": str(tmp_path)}
    command = ["bash", "-ec", program]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("default", "paper") if official else ("default",):
        folder = tmp_path / f"runs/mnist/{name}-layer-seed0"
        assert (folder / "results.json").exists()
