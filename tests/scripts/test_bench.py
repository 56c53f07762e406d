"""Records of benchmarks, and the picture of their history."""

import json
import re

import pytest
from PIL import Image

from lnrepro.engine.errors import UserError
from scripts import bench
from scripts.benches import history, records


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
    from scripts.benches import cells

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
