"""Fixtures of the tests of the engine."""

import pytest

from lnrepro.engine import train
from lnrepro.engine.run import Run
from tests.engine import toy


@pytest.fixture
def toy_data(monkeypatch):
    """Let every config name one data set, which the toy does not read."""
    monkeypatch.setattr(Run, "data_identity", lambda run: ("toy/1", {}))


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory):
    """The folder of an undisturbed run of the toy, which no test changes."""
    folder = tmp_path_factory.mktemp("toy") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "data_identity", lambda run: ("toy/1", {}))
        train.train(toy.config(), folder)
    return folder
