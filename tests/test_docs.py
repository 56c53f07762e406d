"""The documentation tells the truth: its Python runs, and what it names exists."""

import functools
import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap

import pytest

from docs.hooks.equations import to_latex
from docs.hooks.site import FUNCTIONAL
from lnrepro import data, functional
from lnrepro.engine.config_file import read
from tests.runs import ROOT, environment, smoke_run
from tests.test_imports import RULES

DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.glob("**/*.md"))
}
NOTEBOOKS = sorted(path.stem for path in (DOCS / "notebooks").glob("*.ipynb"))
# Their blocks are tested by themselves: below, and in tests/data/test_own.py.
FILES_PAGE, OWN_DATA_PAGE = "add-experiment.md", "data.md"


def blocks(page, language):
    """The code blocks of a page, also those of its tabs."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", PAGES[page], re.S | re.M)
    return [textwrap.dedent(block) for _, block in found]


WITH_PYTHON = [
    page
    for page in PAGES
    if blocks(page, "python") and page not in (FILES_PAGE, OWN_DATA_PAGE)
]


def execute(arguments, folder, **variables):
    """Run Python in a folder as a user does."""
    paths = os.pathsep.join([str(folder), str(ROOT)])
    env = environment(folder) | {"PYTHONPATH": paths, "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=env | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_blocks_run(page, tmp_path):
    # What the commands of the pages leave behind, for the blocks that read it.
    for path in (DOCS / "pictures").rglob("*.csv"):
        shutil.copy(path, tmp_path)
    for words in commands(page):
        if words[-1].endswith(":smoke"):
            name = re.search(r"configs/(\w+)\.py", words[-1])[1]
            place = tmp_path / "runs" / name
            place.mkdir(parents=True)
            smoke_run(name, tmp_path / name).rename(place / "smoke-layer-seed0")
    # A block may continue those above it.
    execute(["-c", "\n".join(blocks(page, "python"))], tmp_path)


@pytest.mark.slow
def test_the_experiment_of_the_documentation_trains(tmp_path):
    for block in blocks(FILES_PAGE, "python"):
        name = re.match(r"# (\w+/\w+\.py)\n", block)[1]
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(block, encoding="utf-8")
    # As in the repository, whose settings hold for ruff.
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "lnrepro").symlink_to(ROOT / "lnrepro")
    for arguments in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *arguments, "configs", "experiments"]
        subprocess.run(ruff, cwd=tmp_path, check=True)
    command, comparison = blocks(FILES_PAGE, "sh")
    command = shlex.split(command)[1:]
    # The usual folder of compiled programs would be behind the link.
    caches = str(tmp_path / "caches")
    execute([*command, "--workdir=run"], tmp_path, XDG_CACHE_HOME=caches)
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert results["test/error"] < 0.2
    # The sweep is planned only: its runs are as the one above.
    train, list_runs, draw = map(shlex.split, comparison.splitlines())
    planned = [str(ROOT / train[1]), *train[2:], "--launcher", "print"]
    assert len(execute(planned, tmp_path).splitlines()) == 6
    shown = execute([*list_runs[1:3], "run"], tmp_path)
    assert f"valid/error {results['best valid/error']:.4g}" in shown
    execute([str(ROOT / draw[1]), "run", *draw[3:]], tmp_path)
    assert (tmp_path / "figures/valid_error.png").exists()
    with pytest.raises(AssertionError, match=r"config\.norm = 'batch'"):
        execute([*command, "--config.norm=batch", "--workdir=refused"], tmp_path)


@pytest.mark.parametrize("folder", ["functional", "data", "engine"])
def test_the_page_of_the_code_names_every_file(folder):
    tree = re.search(rf"^  {folder}/ .*\n((?:    .*\n)+)", PAGES["code.md"], re.M)
    named = re.findall(r"(?<!/)\b\w+\.py", tree[1])
    there = {path.name for path in (ROOT / "lnrepro" / folder).glob("*.py")}
    assert sorted(named) == sorted(there - {"__init__.py"})


def commands(page):
    """The words of each `python ...` command in the shell blocks of a page."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "python" in words:
                yield words[words.index("python") + 1 :]


@functools.cache
def help_of(*program):
    """What a program prints with --help."""
    return subprocess.run(
        [sys.executable, *program, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if "```sh" in PAGES[page]])
def test_commands_name_files_and_flags_that_exist(page):
    for words in commands(page):
        if words[0] == "-m" and words[1] != "lnrepro.main":
            continue
        # The words before the flags may name a command, which has flags of its own.
        first = 2 if words[0] == "-m" else 1
        while first < len(words) and not words[first].startswith("-"):
            first += 1
        program, flags = words[:first], words[first:]
        configs = [w.removeprefix("--config=") for w in words if "configs/" in w]
        for config in configs:
            # The page on experiments has the whole file.
            if (ROOT / config.partition(":")[0]).exists():
                read(
                    str(ROOT / config), [f for f in flags if f.startswith("--config.")]
                )
            else:
                assert page == FILES_PAGE or config in PAGES[FILES_PAGE]
        for flag in flags[: flags.index("--")] if "--" in flags else flags:
            name = flag.partition("=")[0]
            if name.startswith("--") and name.split(".")[0] not in (
                "--config",
                "--help",
            ):
                # A flag that is true or false is shown as --[no]NAME.
                shown = rf"--(\[no\])?{name[2:]}\b"
                assert re.search(shown, help_of(*program)), (page, words)


README = "../README.md"
WITH_README = PAGES | {README: (DOCS / README).read_text(encoding="utf-8")}


def test_scripts_and_configs_that_the_pages_name_exist():
    for page, text in WITH_README.items():
        named = re.findall(r"\b(?:configs|scripts|docs)/[\w/]+\.(?:py|sh)\b", text)
        for name in set(named):
            assert (ROOT / name).exists() or page == FILES_PAGE, (page, name)


LINK = r"\]\((?!\w+:|#)([^)#\s]+)|^\[[^\]]+\]: (?!\w+:)([^#\s]+)|src=\"(?!\w+:)([^\"]+)"
# Pages of the site, and folders that it has.
PLACES = ("docs", "experiments", ".github", "CHANGELOG.md", "README.md")


def test_links_lead_to_files_of_the_repository():
    found = 0
    for page, text in WITH_README.items():
        prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S)
        for link in map("".join, re.findall(LINK, prose, re.M)):
            path = (DOCS / page).parent / link
            if path.parent == DOCS / "api/functional":
                # The hook of the site makes these pages.
                assert path.stem in FUNCTIONAL
                continue
            assert path.exists(), (page, link)
            # Sources and tests are not on the site: their names stand in backticks.
            place = path.resolve().relative_to(ROOT).parts
            assert page == README or place[0] in PLACES, page
            found += 1
    assert found > 100


def test_no_address_of_a_repository_stands_in_the_project():
    """Only `repo_url` of mkdocs.yml may name one, once somebody publishes the site."""
    names = subprocess.run(
        ["git", "grep", "-lE", "github.com/lnrepro|colab.research"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert set(names) <= {"mkdocs.yml", "tests/test_docs.py"}, names


def test_every_page_is_in_the_navigation():
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    entries = set(re.findall(r"^ *- (?:.+: )?(\S+\.md)$", settings, re.M))
    assert set(PAGES) <= entries


def test_all_pages_together_are_short():
    """What is added is paid for."""
    command = ["git", "ls-files", "*.md"]
    files = subprocess.check_output(command, cwd=ROOT, text=True).split()
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in files]
    assert sum(len(text.split()) for text in texts) <= 30_000


def test_the_reference_has_all_names_of_functional():
    shown = {name.split(".")[-1] for name in " ".join(FUNCTIONAL.values()).split()}
    assert shown == set(functional.__all__)


CELLS = re.findall(r"\w+Cell\b", FUNCTIONAL["cells"])


@pytest.mark.parametrize("name", CELLS)
def test_the_page_of_cells_has_the_equations_of_the_docstrings(name):
    blocks_of_docstring = inspect.getdoc(getattr(functional, name)).split("\n\n")
    found = [to_latex(b) for b in blocks_of_docstring if b.startswith("    ")]
    first = next(latex for latex in found if latex)
    assert f"```math\n{first}\n```" in PAGES["cells.md"]


RECIPES = [p for p in PAGES if p.startswith("recipes/") and p != "recipes/index.md"]


@pytest.mark.parametrize("page", RECIPES)
def test_a_recipe_is_a_short_change_that_runs(page):
    assert blocks(page, "python")
    assert "\n## What to expect\n" in PAGES[page]
    changes = blocks(page, "diff")
    assert changes
    for change in changes:
        assert len(re.findall(r"^[+-]", change, re.M)) <= 10, change


def test_the_data_page_has_every_set():
    for name in data.TABLE:
        assert f"`{name}`" in PAGES["data.md"], name


def test_the_reference_has_the_engine_of_experiments():
    allowed, _ = RULES["experiments"]
    for module in sorted(allowed):
        if module.startswith("engine."):
            assert f"::: lnrepro.{module}\n" in PAGES["api/engine.md"], module


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for module in ("functional", "linen", "nnx", "convert", "theory"):
        pages = (site / "api" / module).rglob("*.html")
        reference = "".join(page.read_text(encoding="utf-8") for page in pages)
        for name in importlib.import_module(f"lnrepro.{module}").__all__:
            # Constants have no docstrings.
            if name.isupper():
                continue
            anchor = rf'id="lnrepro\.{module}[\w.]*\.{name}"'
            assert re.search(anchor, reference), (module, name)
        assert not re.search(r'id="[\w.]+\.__(?!call)', reference)
        # Markdown would make quotations of the doctests.
        assert "<blockquote>" not in reference
    for page, count in (("cells", 5), ("api/functional/cells", 6)):
        text = (site / page / "index.html").read_text(encoding="utf-8")
        assert text.count("<math") == count


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run(name, tmp_path):
    cells = [cell for cell in read_notebook(name).cells if cell.cell_type == "code"]
    # Without the lines that install the library, which is here already.
    program = re.sub("^%", "# %", "\n".join(cell.source for cell in cells), flags=re.M)
    # The small config takes minutes; the same cells run with the smoke config.
    program = program.replace(
        'configs/handwriting.py"', 'configs/handwriting.py:smoke"'
    )
    # Configs and experiments are read from the checkout.
    for folder in ("configs", "experiments"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    execute(["-c", program], tmp_path)


def read_notebook(name):
    import nbformat

    return nbformat.read(DOCS / f"notebooks/{name}.ipynb", as_version=4)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_show_what_they_do(name):
    cells = read_notebook(name).cells
    assert any(cell.get("outputs") for cell in cells), "see CONTRIBUTING.md"
    for cell in cells:
        # What another program prints would stay as it was when that changes.
        assert "subprocess" not in cell.source or cell.outputs == []
