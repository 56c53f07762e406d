"""The embedded defaults end within the limits of their config files."""

import importlib

import pytest

from lnrepro.engine import config_file, expected, experiment, loaded_run
from lnrepro.errors import RunError
from tests.refused import refused
from tests.runs import EXPERIMENTS, ROOT, run, smoke_run


@pytest.mark.nightly
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_default_ends_within_its_limit(name, tmp_path):
    flags = [f"--config=configs/{name}.py", f"--workdir={tmp_path / 'run'}"]
    # Compiled as users compile it.
    code, _, err = run(tmp_path, *flags, XLA_FLAGS="")
    assert code == 0, err
    code, out, err = run(tmp_path, *flags, "--check", XLA_FLAGS="")
    assert code == 0, err
    assert ": pass: " in out


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_limit_is_between_good_and_bad_runs(name):
    limit = importlib.import_module(f"configs.{name}").EXPECTED
    config = config_file.read(f"{ROOT}/configs/{name}.py")
    evaluation, _, number = limit.metric.partition("/")
    assert config.evals[evaluation] != "never"
    assert number in experiment.load(config).scalars(evaluation)
    for value in limit.measured or ():
        assert limit.holds(value)
    for value in (limit.shuffled, limit.quarter):
        assert value is None or not limit.holds(value)
    assert not limit.holds(float("nan"))


def test_a_finished_run_is_checked(tmp_path):
    file, folder = f"{ROOT}/configs/mnist.py", smoke_run("mnist", tmp_path)
    config = loaded_run.load(folder).config
    results = folder / "results.json"
    results.write_text('{"test/error": 0.01}')
    line = expected.check(config, file, folder)
    assert line.startswith(f"{folder}: pass: test/error is 0.01, expected at most")
    results.write_text('{"test/error": 0.9}')
    with refused("fail: test/error is 0.9, expected at most", error=RunError):
        expected.check(config, file, folder)
    with refused("nothing is expected of", "mnist.py:small"):
        expected.check(config, f"{file}:small", folder)
    results.unlink()
    with refused("no results with test/error"):
        expected.check(config, file, folder)
    config.seed = 5
    with refused("config.seed: 0 there, 5 now"):
        expected.check(config, file, folder)
