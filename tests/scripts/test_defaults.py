"""The embedded defaults end with the numbers that docs/training.md expects."""

import re

import pytest

from lnrepro.engine import workdir
from tests.runs import ROOT, run

# {config: its number in results.json, factor to the unit of the page}.
NUMBERS = {
    "mnist": ("test/error", 100),
    "convnet": ("test/error", 100),
    "sequential_mnist": ("test/error", 100),
    "order_embeddings": ("final/image_r1", 1),
    "attentive_reader": ("valid/error", 100),
    "skip_thoughts": ("story_sick/pearson", 1),
    "draw": ("test/bound_binarized_digits", 1),
    "handwriting": ("valid/nll", 1),
}


def expected(name):
    """The number and the tolerance of a row of the page's table."""
    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `configs/{name}\.py` \|.*$", page, re.M)
    _, _, _, words, tolerance, _ = row.split("|")
    # "recall at 1 of 28.0 %", "NLL -421 nats": other numbers are plain and positive.
    number = re.search(r"-?\d+\.\d+|-\d+", words)[0]
    return float(number), float(tolerance)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NUMBERS)
def test_a_default_ends_with_the_number_of_the_page(name, tmp_path):
    metric, factor = NUMBERS[name]
    number, tolerance = expected(name)
    folder = tmp_path / "run"
    flags = [f"--config=configs/{name}.py", f"--workdir={folder}"]
    # Compiled as users compile it.
    code, _, err = run(tmp_path, *flags, XLA_FLAGS="")
    assert code == 0, err
    results = workdir.read_results(folder)
    assert factor * results[metric] == pytest.approx(number, abs=tolerance)
