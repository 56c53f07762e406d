"""scripts/theory.py and theory_trained.py: what docs/theory.md shows, and bad input."""

import numpy as np
import pytest

from lnrepro.engine import config_file
from lnrepro.engine.train import train
from scripts import theory as script
from scripts import theory_trained
from tests.refused import refused


@pytest.mark.slow
def test_the_whole_script(tmp_path, capsys):
    script.main(["--out", str(tmp_path / "new" / "folder")])
    out = capsys.readouterr().out
    assert "not so in the paper" not in out
    # All but layer norm's in eq. 12-13, and batch norm's in two families of eq. 32-35.
    assert out.count(" exact ") == 6 * 4 - 3 - 2
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


@pytest.mark.parametrize("main", [script.main, theory_trained.main])
def test_bad_input_is_one_line(main):
    with refused("--colour"):
        main(["--colour"])
