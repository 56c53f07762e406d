"""README tells the truth: its Python runs, and what it names exists."""

import json
import os
import re
import subprocess
import sys

from tests.runs import ROOT, environment

README = (ROOT / "README.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)
FILES = {
    match[1]: block
    for block in BLOCKS
    if (match := re.match(r"# (\w+/\w+\.py)\n", block))
}


def test_python_blocks_run():
    assert len(BLOCKS) > len(FILES)
    for block in BLOCKS:
        if block not in FILES.values():
            exec(compile(block, "README.md", "exec"), {})


def test_the_worked_experiment_trains(tmp_path):
    assert len(FILES) == 2
    for name, block in FILES.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(block, encoding="utf-8")
    (config,) = (name for name in FILES if name.startswith("configs/"))
    command = [
        sys.executable,
        "-m",
        "lnrepro.main",
        f"--config={config}",
        "--workdir=run",
    ]
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    env = environment(tmp_path) | {"PYTHONPATH": paths}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run/results.json").read_text())["test/error"] < 0.2


def test_configs_and_scripts_named_exist():
    for name in set(re.findall(r"\b(?:configs|scripts)/\w+(?:\.\w+)?", README)):
        assert (ROOT / name).exists() or name in FILES, name


def test_every_config_is_in_the_readme():
    for path in (ROOT / "configs").glob("*.py"):
        assert f"configs/{path.name}" in README, path
