"""scripts/theory.py and theory_trained.py: what docs/theory.md shows, and bad input."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from lnrepro import theory
from lnrepro.engine import config_file
from lnrepro.engine.train import train
from scripts import theory as script
from scripts import theory_trained
from tests.runs import ROOT


def test_the_tables_have_the_papers_18_entries_and_the_errors_of_the_page():
    with jax.enable_x64(True):
        exact, with_eps = script.table_1(seed=3), script.table_1(seed=3, epsilon=1e-5)
        errors = script.fisher_errors(seed=3)
    for norm, row in exact.items():
        found = {column: value < script.TOLERANCE for column, value in row.items()}
        assert found == theory.TABLE_1[norm]
    column = "weight matrix re-scaling"
    for norm in ("batch", "layer"):
        assert exact[norm][column] < 1e-12 < with_eps[norm][column] < 1e-3
    inexact = {"layer": "eq. 12-13", "batch": "eq. 32-35"}
    for name, row in errors.items():
        for norm, error in row.items():
            gaussian = norm == "batch" and name.endswith("gaussian")
            is_exact = gaussian or not name.startswith(inexact.get(norm, "no formula"))
            assert (error < 1e-9) == is_exact, (name, norm)


@pytest.mark.slow
@pytest.mark.parametrize("norm", theory.NORMS)
def test_slopes_of_the_figure(norm):
    """Effects of doubling ||w|| and x on curvature and gain."""
    with jax.enable_x64(True):
        found = script.geometry(norm, 0)
    expected = {
        "curvature": 1.0 if norm == "none" else 0.25,
        "gain": 1.0 if norm in ("batch", "layer") else 4.0,
    }
    for name, factor in expected.items():
        slopes = np.diff(np.log2(found[name])) / np.diff(np.log2(script.SCALES))
        np.testing.assert_allclose(np.exp2(slopes), factor, rtol=1e-6)


@pytest.mark.slow
def test_the_whole_script(tmp_path, capsys):
    script.main(["--out", str(tmp_path / "new" / "folder")])
    out = capsys.readouterr().out
    assert "not so in the paper" not in out
    assert out.count("| exact ") > 10
    assert (tmp_path / "new" / "folder" / "geometry.png").stat().st_size > 20_000


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["none", "layer"])
def test_the_network_is_that_of_the_trainer(tmp_path, norm):
    flags = [f"--config.norm={norm}", "--config.epochs=1"]
    config = config_file.read("configs/mnist.py:smoke", flags)
    points = theory_trained.train(config)
    assert (min(points), max(points)) == (0, 22)
    train(config, tmp_path / "run")
    import lnrepro

    run = lnrepro.load(tmp_path / "run", checkpoint="last")
    kernel = np.asarray(run.params["Dense_0"]["kernel"])
    length = np.linalg.norm(kernel, axis=0).mean()
    np.testing.assert_allclose(points[22].lengths[0], length, rtol=1e-5)
    if norm == "none":
        # The first layer's summed inputs are linear in its weights: their step never
        # changes.
        np.testing.assert_allclose(points[22].moved[0], points[0].moved[0], rtol=1e-4)
    theory_trained.draw(tmp_path / "trained.png", {norm: points})
    assert (tmp_path / "trained.png").stat().st_size > 20_000


@pytest.mark.parametrize("name", ["theory", "theory_trained"])
def test_bad_input_is_one_line(name):
    for flags in (["--out", "/dev/null/x"], ["--colour"]):
        command = [sys.executable, f"scripts/{name}.py", *flags]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode in (1, 2)
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
