"""Fixtures of the tests of the engine."""

import shutil

import pytest

from lnrepro.engine import train
from lnrepro.engine.run import Run
from tests.engine import toy
from tests.runs import once


@pytest.fixture(autouse=True)
def toy_data(monkeypatch):
    """Let every config name one data set, which the toy does not read."""
    monkeypatch.setattr(Run, "data", toy.DATA)


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory):
    """The folder of an undisturbed run of the toy, which no test changes."""

    def make(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "data", toy.DATA)
            train.train(toy.config(curves=toy.CURVES), folder)

    return once(tmp_path_factory, "toy", make)


@pytest.fixture(scope="session")
def killed_run(tmp_path_factory):
    """The folder of a run that ended before step 9, with a checkpoint of step 5."""

    def make(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "data", toy.DATA)
            toy.train_until(patch, 8, folder, evals__picture="never")

    return once(tmp_path_factory, "killed", make)


@pytest.fixture
def killed(killed_run, tmp_path):
    """A copy of `killed_run`, to go on with or to damage."""
    return shutil.copytree(killed_run, tmp_path / "killed")


@pytest.fixture
def finished(toy_run, tmp_path):
    """A copy of `toy_run`."""
    return shutil.copytree(toy_run, tmp_path / "finished")
