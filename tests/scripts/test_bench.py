"""Benchmarks: their records, and that what they compare is comparable."""

import json
import re

import flax.linen as nn
import jax
import numpy as np
import pytest

from docs.examples import recurrent_ppo
from lnrepro.engine import config_file
from scripts import bench
from scripts.benches import cells, engine, programs, records


@pytest.mark.slow
def test_cells_write_a_record(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(cells.SHAPES, "draw", cells.Shape(4, 2, 3, 8))
    path = tmp_path / "cells.json"
    flags = ["--shapes", "draw", "--rounds", "2", "--seconds", "0", "--autotune"]
    bench.main(["cells", *flags, "--json", str(path)])
    record = json.loads(path.read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
    assert re.fullmatch(r"[0-9a-f]{7}\+?|unknown", record["commit"])
    assert record["device"] == records.this_device()
    assert "jax" in record["versions"]
    ratio = record["ratios"]["time, ours LN / Flax LN"]
    out = capsys.readouterr().out
    assert f"- time, ours LN / Flax LN: {ratio:.3f}\n" in out
    # That with layer norm, and that without a norm.
    assert out.count("autotune: there are no kernels for cpu\n") == 2
    rows = record["details"]["draw"]
    assert ratio == pytest.approx(rows["ours LN"]["ms"] / rows["Flax LN"]["ms"])


@pytest.mark.slow
def test_each_layer_of_ppo_learns_from_what_it_saw(monkeypatch):
    settings = recurrent_ppo.Settings(features=8, environments=4, steps=30, epochs=1)
    ppo = programs.PROGRAMS["ppo"]._replace(settings=settings)
    monkeypatch.setitem(programs.PROGRAMS, "ppo", ppo)
    functions = programs.implementations("ppo")
    assert functions.keys() == {"ours LN", "ours plain", "Flax LN", "Flax plain"}
    for label, function in functions.items():
        state, key = function.arguments
        step = jax.jit(function.function)
        # The second rollout starts within episodes.
        for _ in range(2):
            state, progress = step(state, key)
        assert progress.replay_error <= recurrent_ppo.REPLAY_TOLERANCE, label


def test_a_commit_with_changes_is_marked(monkeypatch):
    monkeypatch.setattr(records.provenance, "git_commit", lambda: f"{'a' * 40}+")
    assert records.commit() == "aaaaaaa+"


def test_flax_layer_of_ppo_starts_anew_at_a_reset():
    layer, resets = programs.ResettingRNN(nn.GRUCell(4)), np.arange(5) == [[2], [2]]
    x = np.random.default_rng(0).normal(size=(2, 5, 3))
    key, ones = jax.random.key(0), np.ones((2, 4))
    (_, y), params = layer.init_with_output(key, x, ones, resets, True)
    begin = np.zeros((2, 4)), resets[:, 2:], True
    _, again = layer.apply(params, x[:, 2:], *begin)
    np.testing.assert_array_equal(y[:, 2:], again)


@pytest.mark.slow
def test_the_loop_is_compared_with_the_step(tmp_path, monkeypatch):
    def smoke(variant):
        return config_file.read("configs/mnist.py:smoke")

    monkeypatch.setattr(engine.mnist, "get_config", smoke)
    monkeypatch.setattr(engine, "STEPS", {"paper": 40})
    path = tmp_path / "engine.json"
    bench.main(["engine", "--rounds", "1", "--seconds", "0", "--json", str(path)])
    record = json.loads(path.read_text())
    run, twice, bare = (row["ms"] for row in record["details"]["paper"].values())
    (ratio,) = record["ratios"].values()
    assert ratio == pytest.approx((twice - run) / bare)
    assert bare > 0
