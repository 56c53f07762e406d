"""README tells the truth: its Python runs, and what it names exists."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_configs_and_scripts_named_exist():
    for name in set(re.findall(r"\b(?:configs|scripts)/\w+(?:\.py)?", README)):
        assert (ROOT / name).exists(), name


def test_every_config_and_package_file_is_in_the_readme():
    tree = README.partition("## The tree")[2]
    for path in [*(ROOT / "lnrepro").glob("*.py"), *(ROOT / "lnrepro/functional").glob("*.py")]:
        if path.name != "__init__.py":
            assert path.name in tree, path
    for path in (ROOT / "configs").glob("*.py"):
        assert f"configs/{path.name}" in README, path
