"""Runs that are killed at random moments: resumed, they end with the same bits."""

import json
import random
import signal
import time

import pytest

from lnrepro.engine import config_file
from tests.hardening.processes import (
    assert_same_run,
    ended,
    lines,
    saved,
    start_run,
    wait_for,
)
from tests.runs import EXPERIMENTS, ROOT, WITH_LENGTHS

STEPS, EVAL_EVERY = 30, 6


def longer(name: str, steps: int = STEPS, save_every: int = 4) -> tuple[str, ...]:
    """The flags of a smoke run that evaluates often, and saves often by default.

    What is evaluated at the end only is left out.

    EVAL_EVERY is no multiple of 4, so that the best and the last checkpoint are
    sometimes saved at one step and sometimes at different ones.
    """
    config = f"configs/{name}.py:smoke"
    flags = [f"--config={config}", f"--config.steps={steps}", "--config.log_every=1"]
    flags += [f"--config.save_every={save_every}", "--config.curves=()"]
    for evaluation, schedule in config_file.read(f"{ROOT}/{config}").evals.items():
        often = schedule.isdigit() or schedule == "epoch"
        when = EVAL_EVERY if often else "never"
        flags.append(f"--config.evals.{evaluation}={when}")
    return tuple(flags)


def killed(home, workdir, flags, sign, expected):
    """Start a run, kill it after a sign, and check what it leaves.

    Returns whether it was killed before its end.
    """
    before = saved(workdir)
    process = start_run(home, workdir, *flags)
    wait_for(process, sign)
    process.kill()
    ((code, _, err),) = ended(process)
    found = lines(workdir)
    assert found == expected[: len(found)]
    assert saved(workdir)[-1:] >= before[-1:]
    assert code in (0, -signal.SIGKILL), err
    assert "cannot be read" not in err
    return code != 0


def finished(home, workdir, flags):
    ((code, _, err),) = ended(start_run(home, workdir, *flags))
    assert code == 0, err
    return lines(workdir)


# The nightly job kills the other experiments too.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name if name in WITH_LENGTHS else pytest.param(name, marks=pytest.mark.nightly)
        for name in EXPERIMENTS
    ],
)
def test_an_experiment_killed_at_two_random_steps_ends_with_the_same_bits(
    tmp_path, name
):
    flags, rng = longer(name), random.Random(name)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    expected = finished(tmp_path, whole, flags)
    for step in sorted(rng.sample(range(1, STEPS - 1), 2)):

        def sign(step=step):
            records = lines(broken)
            return records and json.loads(records[-1])["step"] >= step

        assert killed(tmp_path, broken, flags, sign, expected)
    finished(tmp_path, broken, flags)
    assert_same_run(whole, broken)


def unfinished(workdir):
    """The checkpoints that are begun and not complete."""
    return set(workdir.glob("checkpoints/*/*orbax-checkpoint-tmp*"))


@pytest.mark.slow
def test_a_run_killed_at_any_moment_ends_with_the_same_bits(tmp_path):
    """Also while it starts, compiles, evaluates and saves, on four devices."""
    flags, rng = (*longer("mnist", 200), "--cpu_devices=4"), random.Random(0)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    began = time.monotonic()
    expected = finished(tmp_path, whole, flags)
    duration = time.monotonic() - began
    for _ in range(6):
        end = time.monotonic() + rng.uniform(0, duration)

        def is_over(end=end):
            return time.monotonic() > end

        killed(tmp_path, broken, flags, is_over, expected)
    for _ in range(3):
        old = unfinished(broken)

        def saves(old=old):
            return unfinished(broken) - old

        killed(tmp_path, broken, flags, saves, expected)
    finished(tmp_path, broken, flags)
    assert_same_run(whole, broken)
