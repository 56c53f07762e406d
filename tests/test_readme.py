"""README is short, and what it names exists."""

import re

from tests.runs import ROOT

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
