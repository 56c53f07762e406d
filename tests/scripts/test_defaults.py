"""The embedded defaults end within the limits of their config files."""

import json

import pytest

from lnrepro.engine import config_file, expected, experiment, schedule
from lnrepro.engine.run_config import as_json
from lnrepro.errors import RunError
from tests.refused import refused
from tests.runs import EXPERIMENTS, ROOT, run


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
def test_a_limit_is_between_good_and_bad_runs(name, tmp_path):
    file = f"{ROOT}/configs/{name}.py"
    limit = config_file.load_module(file).EXPECTED
    config = config_file.read(file)
    mode = schedule.known_metrics(config, experiment.load(config))[limit.metric].mode
    for value in limit.measured or ():
        assert limit.holds(value, mode)
    worse = limit.limit + (1 if mode == "min" else -1)
    for value in (limit.shuffled, limit.quarter, float("nan"), worse):
        assert value is None or not limit.holds(value, mode)
    # What the check reads of a finished run.
    about = {"config": as_json(experiment.with_sizes(config)), "data": {}}
    (tmp_path / "config.json").write_text(json.dumps(about))

    def check(**numbers):
        (tmp_path / "results.json").write_text(json.dumps(numbers))
        return expected.check(config, file, tmp_path)

    line = check(**{limit.metric: limit.limit})
    assert line.startswith(f"{tmp_path}: pass: {limit.metric} is {limit.limit:.4g}, ")
    with refused("fail: ", f"expected {limit.words(mode)}", error=RunError):
        check(**{limit.metric: worse})
    with refused(f"no results with {limit.metric}"):
        check()
