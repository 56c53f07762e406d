"""scripts/theory.py: tables as in the paper, figures, bad input."""

import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from rich.console import Console

from configs import mnist
from lnrepro import theory
from lnrepro.engine import train
from lnrepro.errors import UserError
from scripts import theory as script
from scripts import theory_trained


def test_all_18_entries_agree_and_eps_breaks_them_a_little():
    with jax.enable_x64(True):
        exact, with_eps = script.table_1(seed=3), script.table_1(seed=3, epsilon=1e-5)
    for norm, row in exact.items():
        assert {
            column: value < script.TOLERANCE for column, value in row.items()
        } == theory.TABLE_1[norm]
    for norm in ("batch", "layer"):
        assert (
            exact[norm]["weight matrix re-scaling"]
            < 1e-12
            < with_eps[norm]["weight matrix re-scaling"]
            < 1e-3
        )


def test_the_lstm_step_has_layer_norms_row():
    with jax.enable_x64(True):
        rows = script.lstm_rows(seed=3)
    for row in rows.values():
        assert {
            column: value < script.TOLERANCE for column, value in row.items()
        } == theory.TABLE_1["layer"]


def test_the_plain_and_the_weight_normalised_layer_start_as_one_function():
    with jax.enable_x64(True):
        (plain, x), (normed, _) = (
            script.problem(norm, seed=0) for norm in ("none", "weight")
        )
        h = [
            theory.layer_model(n)(t, x)
            for n, t in (("none", plain), ("weight", normed))
        ]
        np.testing.assert_allclose(*h, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("norm", theory.NORMS)
def test_slopes_of_the_figure(norm):
    """Effects of doubling ||w|| and x on curvature, step and gain."""
    with jax.enable_x64(True):
        g = script.geometry(norm, 0, script.FAMILIES["gaussian"])
    per_doubling = {
        name: np.exp2(np.diff(np.log2(g[name])) / np.diff(np.log2(script.SCALES)))
        for name in g
    }
    np.testing.assert_allclose(
        per_doubling["curvature"], 1.0 if norm == "none" else 0.25, rtol=1e-6
    )
    np.testing.assert_allclose(
        per_doubling["step"], 1.0 if norm == "none" else 0.5, rtol=1e-6
    )
    np.testing.assert_allclose(
        per_doubling["gain"], 1.0 if norm in ("batch", "layer") else 4.0, rtol=1e-6
    )


@pytest.mark.slow
def test_the_whole_script(tmp_path, capsys):
    script.main(["--out", str(tmp_path / "new" / "folder"), "--outputs", "bernoulli"])
    out = capsys.readouterr().out
    assert "18 of 18 entries are the paper's" in out
    assert len(re.findall(r"exact \(\de-", out)) > 10
    assert (tmp_path / "new" / "folder" / "geometry.png").stat().st_size > 20_000


def small_run(folder, norm, **changes):
    c = mnist.get_config("smoke")
    c.norm, c.epochs = norm, 1.0
    c.update_from_flattened_dict(changes)
    train.train(c, folder)
    return folder


@pytest.mark.slow
def test_trained_runs_are_measured_on_the_way(tmp_path, capsys):
    folders = [small_run(tmp_path / norm, norm) for norm in ("none", "layer")]
    capsys.readouterr()
    runs = [theory_trained.Trained(folder) for folder in folders]
    for run in runs:
        way = run.replayed(Console(), points=4)
        assert "its end is 0.0e+00 (relative)" in " ".join(
            capsys.readouterr().out.split()
        )
        assert way[0].step == 0
        end = run.kept()[-1]
        assert way[-1].step == end.step == 22
        np.testing.assert_allclose(way[-1].lengths, end.lengths)
        np.testing.assert_allclose(way[-1].moved, end.moved, rtol=1e-5)
        kernel = np.asarray(run.states[22].params["Dense_0"]["kernel"])
        np.testing.assert_allclose(
            end.lengths[0], np.linalg.norm(kernel, axis=0).mean(), rtol=1e-5
        )
    # Without a norm the first layer's summed inputs are linear in its weights: their
    # step never changes.
    plain = runs[0].kept()
    np.testing.assert_allclose(plain[-1].moved[0], plain[0].moved[0], rtol=1e-4)
    theory_trained.show(Console(), tmp_path / "trained.png", runs, replay=False)
    assert (tmp_path / "trained.png").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workdir", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--seed", "-1"], "--seed"),
        (["--seed", "one"], "invalid int value"),
        (["--outputs", "poisson"], "poisson"),
        (["--out", "/dev/null/x"], "--out"),
        (["--colour"], "--colour"),
    ],
)
def test_bad_input_is_one_line(arguments, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        script.main(arguments)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_package_is_one_line_and_exit_code_2(tmp_path):
    argv = ["theory.py", "--out", str(tmp_path / "out")]
    code = f"import runpy, sys; sys.modules['matplotlib'] = None; sys.argv = {argv!r}\n"
    code += f"runpy.run_path({script.__file__!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: matplotlib is not installed; this")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a run's config.json"),
        (
            '{"config": {"experiment": "experiments.draw", "norm": "none", '
            '"data": {"name": "x"}}}',
            "not of experiments.mnist",
        ),
        (
            '{"config": {"experiment": "experiments.mnist", "norm": "none", '
            '"seeds": 2, "data": {"name": "x"}}}',
            "has 2 seeds in one run; give a run with --config.seeds=1",
        ),
    ],
)
def test_a_folder_that_is_no_run_of_mnist_with_one_seed(
    text, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=words):
        script.main(["--workdir", str(tmp_path)])
