"""Two processes: stopped or killed and resumed, they end as a run that was not."""

import random
import signal
import time

import pytest

from tests.hardening.processes import (
    assert_same_run,
    ended,
    lines,
    saved,
    start_two,
    wait_for,
)
from tests.runs import SMOKE

# Nothing is due for 1,000 steps.
QUICK = (
    "--config=tests/engine/toy.py",
    "--config.steps=12",
    "--config.log_every=1000",
    "--config.save_every=1000",
    "--config.evals.test=never",
    "--config.evals.picture=never",
    "--config.best.metric=None",
)
# Each batch takes 2 s.
SLOW = (*QUICK, "--config.seconds=2.0")


def finished(home, workdir, *flags):
    found = ended(*start_two(home, workdir, *flags))
    assert [code for code, _, _ in found] == [0, 0], found
    return found[0][1]


@pytest.mark.slow
def test_slow_steps_stop_within_seconds_of_a_signal_to_one_process(tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    finished(tmp_path, whole, *QUICK)
    both = start_two(tmp_path, stopped, *SLOW)
    for line in both[0].stdout:
        if " steps on " in line:
            break
    time.sleep(6)
    began = time.monotonic()
    both[1].send_signal(signal.SIGTERM)
    found = ended(*both)
    assert time.monotonic() - began < 20
    for code, _, err in found:
        assert code == 143, err
        assert err.splitlines()[-1].startswith("stopped by SIGTERM at step ")
    assert "resuming at step" in finished(tmp_path, stopped, *SLOW)
    assert_same_run(whole, stopped)


KILLED = (
    SMOKE,
    "--config.steps=150",
    "--config.log_every=1",
    "--config.save_every=25",
    "--peer_timeout=20",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed run of two processes."""
    home = tmp_path_factory.mktemp("whole")
    finished(home, home / "run", *KILLED)
    return home / "run"


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_killed_processes_end_as_a_run_that_was_not(tmp_path, whole, victim):
    broken = tmp_path / "broken"
    both = start_two(tmp_path, broken, *KILLED)
    records = random.Random(victim).randrange(30, 100)
    wait_for(both[victim], lambda: len(lines(broken)) > records and saved(broken))
    both[victim].kill()
    began = time.monotonic()
    other = ended(*both)[1 - victim]
    assert time.monotonic() - began < 60
    assert other[0] != 0
    # Our own line, unless JAX's runtime notices the loss first and aborts the process.
    says = ("another process of this run was lost", "another task died")
    assert any(text in other[2] for text in says), other[2]
    assert lines(broken) == lines(whole)[: len(lines(broken))]
    assert "resuming at step" in finished(tmp_path, broken, *KILLED)
    assert_same_run(whole, broken)
