"""Records of benchmarks, and the picture of their history."""

import argparse
import dataclasses
import json
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from docs.examples import recurrent_ppo
from lnrepro.errors import RunError, UserError
from scripts import bench
from scripts.benches import cells, history, programs, records, switches
from scripts.benches.direct import cells_jax


def write(folder, name, date, **ratios):
    path = folder / f"{name}.json"
    records.write(path, "cells, lstm", ratios, details=[1, 2])
    record = json.loads(path.read_text()) | {"date": date}
    path.write_text(json.dumps(record))
    return path


def test_a_record_says_what_was_measured_where(tmp_path):
    path = tmp_path / "new" / "record.json"
    records.write(path, "engine", {"loop / bare": 1.04})
    record = json.loads(path.read_text())
    assert record["ratios"] == {"loop / bare": 1.04}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
    assert re.fullmatch(r"[0-9a-f]{7}|unknown", record["commit"])
    assert "jax" in record["versions"]
    assert record["device"] == records.device()
    records.write(None, "engine", {})


def test_history_draws_what_the_records_hold(tmp_path, capsys):
    write(tmp_path, "b", "2026-02-01", time=0.5, memory=0.3)
    write(tmp_path, "a", "2026-03-01", time=0.4)
    out = tmp_path / "history.png"
    assert [r["date"][5:7] for r in history.read([tmp_path])] == ["02", "03"]
    bench.main(["history", str(tmp_path), f"--out={out}"])
    assert "2 records of 1 benchmarks" in capsys.readouterr().out
    assert Image.open(out).size[0] > 500


def test_what_is_no_record_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"there is no record in .*--json FILE"):
        bench.main(["history", str(tmp_path)])
    broken = tmp_path / "broken.json"
    for text, message in (
        ("{", "not a record of a benchmark"),
        ("3", "not a record of a benchmark"),
        ("{}", "it has no 'benchmark'"),
    ):
        broken.write_text(text)
        with pytest.raises(UserError, match=message) as failure:
            bench.main(["history", str(tmp_path)])
        assert str(broken) in str(failure.value)
        assert "\n" not in str(failure.value)


@pytest.mark.slow
def test_cells_write_a_record(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(cells.SHAPES, "draw", cells.Shape(4, 2, 3, 8))
    monkeypatch.setattr(cells, "COMPILATIONS", 1)
    path = tmp_path / "cells.json"
    flags = ["--shapes", "draw", "--rounds", "2", "--seconds", "0", "--peers"]
    bench.main(["cells", *flags, "--json", str(path)])
    (record,) = history.read([path])
    assert record["benchmark"] == "cells, lstm"
    ratio = record["ratios"]["time, ours LN / Flax LN"]
    assert f"- time, ours LN / Flax LN: {ratio:.3f}\n" in capsys.readouterr().out
    rows = record["details"]["draw"]
    assert ratio == pytest.approx(rows["ours LN"]["ms"] / rows["Flax LN"]["ms"])


def test_launches_are_the_events_of_the_streams():
    def named(pid, tid, name):
        return {
            "ph": "M",
            "name": "thread_name",
            "pid": pid,
            "tid": tid,
            "args": {"name": name},
        }

    def lasting(pid, tid):
        return {"ph": "X", "name": "kernel", "pid": pid, "tid": tid, "dur": 1}

    events = [
        named(1, 13, "Stream #13(Compute)"),
        named(1, 20, "XLA Modules"),
        named(2, 13, "python"),
        *[lasting(1, 13)] * 5,
        lasting(1, 20),
        lasting(2, 13),
        {"ph": "C", "pid": 1, "tid": 13},
    ]
    assert cells.count_launches(events) == 5


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cells_with_resets_and_in_bfloat16(tmp_path, monkeypatch, dtype):
    monkeypatch.setitem(cells.RIVALS, "torchrl", cells.Shape(6, 2, 3, 8, resets=0.3))
    monkeypatch.setattr(cells, "COMPILATIONS", 1)
    path = tmp_path / "cells.json"
    flags = ["--shapes", "torchrl", "--rounds", "1", "--seconds", "0", "--cell", "gru"]
    bench.main(["cells", *flags, "--dtype", dtype, "--repeats", "2", f"--json={path}"])
    (record,) = history.read([path])
    rows = record["details"]["torchrl"]
    assert {"ours LN", "Flax LN", "Flax plain"} <= rows.keys()
    assert not any("torch" in name or "haiku" in name for name in rows)


def test_a_reset_of_the_compared_flax_cell_is_ours():
    cell = cells_jax.LayerNormLSTMCell(4)
    rnn = nn.RNN(cells_jax.Resetting(cell), time_major=True)
    x = jax.random.normal(jax.random.key(0), (5, 2, 3))
    resets = jnp.zeros((5, 2)).at[3, 1].set(1.0)
    together = jnp.concatenate([x, resets[..., None]], -1)
    variables = rnn.init(jax.random.key(1), together)
    outputs = rnn.apply(variables, together)
    # After its reset, the row goes on as a sequence that starts there.
    anew = rnn.apply(variables, together[3:])
    np.testing.assert_allclose(outputs[3:, 1], anew[:, 1], rtol=1e-6)
    assert not np.allclose(outputs[3:, 0], anew[:, 0])


@pytest.mark.slow
def test_switches(tmp_path, monkeypatch, capfd):
    # The processes with flags of XLA are children, which have the shapes of the file.
    flags = ["--shapes", "order", "--rounds", "1", "--seconds", "0"]
    path = tmp_path / "switches.json"
    monkeypatch.setitem(cells.SHAPES, "order", cells.Shape(6, 2, 3, 8))
    bench.main(["switches", *flags, "--xla_flags", "--json", str(path)])
    out = capfd.readouterr().out
    assert "| default | 1.000 |" in out
    (record,) = history.read([path])
    named = {name.partition(" / ")[0] for name in record["ratios"]}
    precisions = {f"products in {name}" for name in switches.PRECISIONS}
    assert named == switches.OPTIONS.keys() | precisions


@pytest.fixture
def small_programs(monkeypatch):
    sizes = {
        "ppo": {"features": 8, "environments": 4, "steps": 30, "epochs": 1},
        "seq2seq": {"features": 8, "digits": 2, "batch": 3},
    }
    for name, program in programs.PROGRAMS.items():
        settings = dataclasses.replace(program.settings, **sizes[name])
        small = program._replace(settings=settings)
        monkeypatch.setitem(programs.PROGRAMS, name, small)
    monkeypatch.setattr(programs, "COMPILATIONS", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("small_programs")
def test_programs_write_a_record(tmp_path, capsys):
    path = tmp_path / "programs.json"
    bench.main(["programs", "--rounds=1", "--seconds=0", f"--json={path}"])
    (record,) = history.read([path])
    rows = record["details"]["ppo"]
    ratio = rows["ours LN"]["ms"] / rows["Flax LN"]["ms"]
    assert record["ratios"]["time, ppo, ours LN / Flax LN"] == ratio
    assert len(record["ratios"]) == 12
    assert "| seq2seq | Flax LN | " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("small_programs")
def test_each_layer_of_ppo_learns_from_what_it_saw():
    for label, function in programs.implementations("ppo").items():
        state, key = function.arguments
        step = jax.jit(function.function)
        # The second rollout starts within episodes.
        for _ in range(2):
            state, progress = step(state, key)
        assert progress.replay_error <= recurrent_ppo.REPLAY_TOLERANCE, label


def test_a_process_that_fails_is_one_line(monkeypatch):
    class Failed:
        returncode, stdout, stderr = 1, "", "Traceback\nF1124 unknown flag"

    monkeypatch.setattr(switches.subprocess, "run", lambda *a, **k: Failed)
    args = argparse.Namespace(
        cell="lstm", dtype="float32", seconds=1, shapes=["draw"], repeats=None
    )
    with pytest.raises(RunError, match=r"XLA_FLAGS='--xla_no': the process .* unknown"):
        switches._in_child("--xla_no", args)


@pytest.mark.slow
def test_train_writes_a_record(tmp_path):
    path = tmp_path / "train.json"
    config = "--config=configs/draw.py:smoke"
    bench.main(["train", config, "--rounds", "2", "--json", str(path)])
    (record,) = history.read([path])
    assert record["ratios"].keys() == {
        "time, ours / direct, layer_cell",
        "temporary memory, ours / direct, layer_cell",
    }
