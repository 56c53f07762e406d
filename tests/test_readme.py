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


def test_configs_and_scripts_named_exist():
    for name in set(re.findall(r"\b(?:configs|scripts)/\w+(?:\.\w+)?", README)):
        assert (ROOT / name).exists(), name


def test_links_lead_to_files():
    for link in re.findall(r"(?:\]\(|src=\")(?!https:)([^)#\"]+)", README):
        assert (ROOT / link).exists(), link


def test_every_config_is_on_the_page_of_results():
    page = (ROOT / "experiments/README.md").read_text(encoding="utf-8")
    for path in (ROOT / "configs").glob("*.py"):
        assert f"configs/{path.name}" in page, path


def commands():
    """The lines of its shell blocks, from quickstart on, without comments."""
    text = "".join(re.findall(r"```sh\n(.*?)```", README, re.S))
    lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
    return lines[lines.index("scripts/quickstart") :]


@pytest.mark.slow
def test_its_commands_run_in_their_order(tmp_path):
    """Those after `prepare.py` need the official files."""
    for name in ("configs", "experiments", "lnrepro", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    # An environment in which everything is installed already.
    tools = tmp_path / ".venv/bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f"PATH={tools}:$PATH\n")
    python = f'#!/bin/sh\n[ "$2" = pip ] || exec {sys.executable} "$@"\n'
    (tools / "python").write_text(python)
    (tools / "python").chmod(0o755)
    program, ran = ["set -ex"], commands()
    official = os.environ.get("LNREPRO_REAL_DATA")
    for line in ran:
        if "DIR" in line and not official:
            break
        if "--config=" in line or line == "scripts/quickstart":
            line += " --config.steps=20 --config.epochs=None"
        program.append(line.replace("DIR", f"{official}/mnist"))
    env = environment(tmp_path) | {"PYTHONPATH": str(tmp_path)}
    command = ["bash", "-c", "\n".join(program)]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "runs/mnist/default-layer-seed0/results.json").exists()
    if official:
        assert len(program) == len(ran) + 1
        assert (tmp_path / "runs/mnist/paper-layer-seed0/results.json").exists()
