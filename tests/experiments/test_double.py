"""All experiments with JAX_ENABLE_X64=1: they train, and parameters stay float32."""

import json

import numpy as np
import pytest

from tests import runs


@pytest.mark.slow
@pytest.mark.parametrize("name", runs.EXPERIMENTS)
def test_the_smoke_config_trains_with_x64_as_without(name, tmp_path, monkeypatch):
    losses = {}
    for x64 in ("0", "1"):
        monkeypatch.setenv("JAX_ENABLE_X64", x64)
        workdir = tmp_path / x64
        flags = f"--config=configs/{name}.py:smoke", f"--workdir={workdir}"
        code, _, err = runs.run(tmp_path, *flags)
        assert code == 0, err
        records = map(json.loads, (workdir / "metrics.jsonl").open())
        losses[x64] = [r["train/loss"] for r in records if "train/loss" in r]
        state = runs.newest_state(workdir)
        dtypes = {str(a.dtype) for key, a in state.items() if "params" in key}
        assert dtypes == {"float32"}
    # Noise and batches are the same, so that only rounding differs.
    np.testing.assert_allclose(losses["1"], losses["0"], rtol=1e-3)
