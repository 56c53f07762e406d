"""Killed and terminated runs end with the same bits as an undisturbed run.

This is a small form of `python -m tests.hardening kills`.
"""

import random

import pytest

from tests.hardening.kills import PHASES, Trial, longer


def trial(folder, quota: dict[str, int], *flags: str) -> Trial:
    done = Trial(
        "mnist",
        (*longer("configs/mnist.py:smoke"), *flags),
        folder / "home",
        folder / "runs",
    ).run(quota, random.Random(0))
    assert done.losses == []
    assert all(done.kills[phase] >= n for phase, n in quota.items()), done.kills
    assert done.ends > 0
    return done


@pytest.mark.slow
def test_killed_and_terminated_run_ends_with_the_same_bits(tmp_path):
    trial(tmp_path, {"checkpoint": 1, "SIGTERM": 1})


@pytest.mark.slow
def test_run_killed_in_every_phase_on_four_devices_ends_with_the_same_bits(tmp_path):
    # With checkpoints further apart, every machine has steps outside of them.
    flags = ("--cpu_devices=4", "--config.save_every=20")
    trial(tmp_path, dict.fromkeys(PHASES, 1), *flags)
