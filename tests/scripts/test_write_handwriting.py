"""scripts/write_handwriting.py on a small run: pictures of a text, and bad input."""

import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from configs import handwriting as config_file
from lnrepro import data
from lnrepro.engine import json_files
from lnrepro.engine.run_config import as_json
from lnrepro.engine.train import train
from lnrepro.errors import UserError
from scripts import write_handwriting


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    config = config_file.get_config("smoke")
    config.data.dir = str(tmp_path_factory.mktemp("data"))
    config.steps, config.evals.final = 2, "never"
    train(config, folder)
    return folder


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """A run of which there is only its config."""
    folder = tmp_path_factory.mktemp("untrained")
    json_files.write(
        folder / "config.json",
        {"config": as_json(config_file.get_config("smoke"))},
    )
    return folder


def call(folder, *flags):
    write_handwriting.main([f"--workdir={folder}", *flags])


@pytest.mark.slow
def test_a_run_writes_the_same_without_its_data(run, tmp_path, monkeypatch):
    def call_in(folder, name):
        call(folder, "--text=abc", f"--out={tmp_path / name}", "--steps=50")
        return (tmp_path / name).read_text()

    here = call_in(run, "a.svg")
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)

    def no_data(*args):
        raise AssertionError("the data was opened")

    monkeypatch.setattr(data, "open_set", no_data)
    assert call_in(moved, "b.svg") == here


@pytest.mark.slow
def test_a_style_from_other_data_is_refused(run, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)
    about = json.loads((moved / "config.json").read_text())
    about["data"]["fingerprint"] = "generated_strokes/1.0.0/0123456789abcdef"
    (moved / "config.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"was trained on .*0123456789abcdef, but"):
        call(moved, "--text=abc", "--style=x", f"--out={tmp_path / 'a.svg'}")


@pytest.mark.slow
def test_text_becomes_svg_and_pictures(run, tmp_path, capsys):
    names = {name: tmp_path / f"{name}.png" for name in ("density", "alignment")}
    flags = [f"--{name}={path}" for name, path in names.items()]
    call(
        run,
        "--text=ab cd 7",
        f"--out={tmp_path / 'a.svg'}",
        "--lines=4",
        "--steps=50",
        *flags,
    )
    drawing = (tmp_path / "a.svg").read_text()
    assert drawing.startswith("<svg ")
    assert drawing.count("<path") == 2  # "ab", "cd 7"
    assert all(
        np.isfinite(float(number))
        for number in re.findall(r"[ML ](-?\d+\.\d+),", drawing)
    )
    assert all(Image.open(path).size > (10, 10) for path in names.values())
    assert "not among the 57 symbols, written as 'other': 7" in capsys.readouterr().err
    first = (tmp_path / "a.svg").read_bytes()
    call(
        run, "--text=ab cd 7", f"--out={tmp_path / 'a.svg'}", "--lines=4", "--steps=50"
    )
    assert (tmp_path / "a.svg").read_bytes() == first
    call(
        run,
        "--text=ab",
        f"--out={tmp_path / 'b.png'}",
        "--style=valid-00003",
        "--steps=50",
    )
    assert Image.open(tmp_path / "b.png").mode == "RGB"
    with pytest.raises(
        UserError,
        match="--style=zzz: generated_strokes has no line of this id; --styles lists "
        "some",
    ):
        call(run, "--text=a", "--style=zzz", f"--out={tmp_path / 'c.png'}")


@pytest.mark.slow
def test_ids_to_write_like(run, capsys):
    call(run, "--styles")
    first, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"valid-00000  [A-Za-z ,.']+", first)


def test_long_text_is_broken_between_words():
    lines = write_handwriting.break_lines(
        "the quick brown fox\njumps over " + "x" * 30, 12
    )
    assert lines == [
        "the quick",
        "brown fox",
        "jumps over x",
        "x" * 12,
        "x" * 12,
        "x" * 5,
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--text="], "--text is empty"),
        (["--text=  "], "--text is empty"),
        ([], "--text is empty"),
        (["--text=" + "a" * 10_000], "--text has 10,000 characters: at most 1,000"),
        (["--text=a", "--out=a.jpg"], r"a.jpg: the name must end in .png or .svg"),
        (["--text=a", "--density=a.svg"], r"a.svg: the name must end in .png$"),
        (["--text=a", "--out=nowhere/a.svg"], "there is no folder nowhere"),
        (["--text=a", "--bias=-1"], "bias = -1.0: it must lie between"),
        (["--text=a", "--steps=-1"], "steps = -1: at least 1"),
        (["--text=a", "--lines=-1"], "--lines=-1: at least 1"),
    ],
)
def test_bad_flags_are_one_line(untrained, tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as e:
        call(untrained, *flags)
    assert "\n" not in str(e.value)
    assert not list(tmp_path.iterdir())


def test_folders_that_hold_no_such_run(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        call(tmp_path, "--text=a")
    (tmp_path / "config.json").write_text(
        '{"config": {"experiment": "experiments.mnist", "norm": "none", '
        '"data": {"name": "digits"}}}'
    )
    with pytest.raises(
        UserError,
        match=r"holds a run of experiments\.mnist, not of experiments\.handwriting",
    ):
        call(tmp_path, "--text=a")
