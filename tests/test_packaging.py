"""The package, its metadata and the files that GitHub reads."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

import lnrepro
from tests.runs import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
FORMS = ".github/ISSUE_TEMPLATE"


def test_one_version_everywhere():
    version = PROJECT["version"]
    assert lnrepro.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    # The newest section of the changelog: "## [Unreleased] 0.2.0" or "## [0.2.0] DATE".
    heading = re.search(r"^## .*", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heading is not None
    assert version in re.findall(r"\d+\.\d+\.\d+", heading[0])


def test_requirements_have_lower_bounds():
    # A requirement without a lower bound would be tested at its first release.
    for requirements in (
        PROJECT["dependencies"],
        *PROJECT["optional-dependencies"].values(),
    ):
        for requirement in requirements:
            assert ">=" in requirement or requirement.startswith("lnrepro[")


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("dependabot", ".github/dependabot.yml"),
        ("github-issue-config", f"{FORMS}/config.yml"),
        ("github-issue-forms", f"{FORMS}/[!c]*.yml"),
        ("citation-file-format", "CITATION.cff"),
    ],
)
def test_files_that_github_reads_fit_their_schema(schema, pattern):
    files = sorted(ROOT.glob(pattern))
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    command += [f"vendor.{schema}", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_wheel_runs_alone(tmp_path):
    def python(*words, cwd=ROOT):
        command = [sys.executable, *map(str, words)]
        subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)

    python("-m", "build", "--outdir", tmp_path)
    source, wheel = sorted(tmp_path.iterdir(), reverse=True)
    names = zipfile.ZipFile(wheel).namelist()
    assert "lnrepro/py.typed" in names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"lnrepro"}
    with tarfile.open(source) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "configs/mnist.py", "scripts/sweep.py"} <= inside
    # The first example of README.md, with lnrepro from the wheel.
    alone = tmp_path / "alone"
    zipfile.ZipFile(wheel).extractall(alone)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```", readme, re.S | re.M)[1]
    example = f"import sys; sys.path.insert(0, {str(alone)!r})\n{example}\n"
    example += f"import lnrepro; assert lnrepro.__file__.startswith({str(alone)!r})"
    python("-I", "-c", example, cwd=tmp_path)
