"""What does not belong to a run is refused: a small form of the trial `identity`."""

import argparse

import pytest

from tests.hardening import identity


@pytest.mark.slow
@pytest.mark.parametrize("only", ["another seed", "learning_rate together", "1e30"])
def test_trials_end_as_they_must(tmp_path, only):
    args = argparse.Namespace(only=only, seed=0, out=tmp_path)
    assert identity.main(args) == 0
    assert "as it must be" in (tmp_path / "identity.md").read_text()
