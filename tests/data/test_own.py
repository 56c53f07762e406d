"""Sets with a reader of one's own, and scripts/prepare.py."""

import dataclasses
from importlib import metadata

import numpy as np

from lnrepro import data
from lnrepro.data.reader import Content, Reader
from scripts import prepare
from tests.data import idx, small
from tests.data.reading import write
from tests.refused import refused


def read_constant(raw):
    return Content({"train": {"x": np.array([7])}})


CONSTANT = Reader(title="One number.", read=read_constant, embedded=True)


def test_an_entry_point_names_a_reader(tmp_path, monkeypatch):
    point = metadata.EntryPoint("constant", f"{__name__}:CONSTANT", "lnrepro.data")
    points = metadata.EntryPoints([point])
    monkeypatch.setattr(metadata, "entry_points", points.select)
    assert data.reader_of("constant") is CONSTANT
    data.prepare("constant", data_dir=tmp_path)
    opened = data.open_set("constant", tmp_path)
    assert opened.columns("train")["x"].tolist() == [7]
    assert opened.folder == data.folder_of("constant", tmp_path)


def test_the_script_lists_and_prepares(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(data.TABLE, "numbers", "tests.data.small:READER")
    proven = dataclasses.replace(small.READER, published={"train": 5})
    monkeypatch.setattr(small, "READER", proven)
    root = tmp_path / "data"

    def run(*flags):
        prepare.main([*flags, f"--data_dir={root}"])
        return capsys.readouterr().out

    listed = run("--list")
    for name in data.TABLE:
        assert name in listed
        assert data.reader_of(name).licence in listed
    assert f"train.txt, test.txt (plain or .gz, .xz or .bz2) in {root}/raw" in listed
    with refused("numbers: not a folder"):
        run("numbers")
    assert not root.exists()
    write(root / "raw" / "numbers", small.FILES)
    out = run("numbers")
    fingerprint = data.open_set("numbers", root).fingerprint
    assert f"{fingerprint} is prepared in {root / 'numbers'}" in out
    assert "  train: 5\n  test: 2\n  files read: 2\n" in out
    assert r'words: ["\u00e4", "b"]' in out
    assert run("numbers") == out
    with refused("was not read", "pass --as OWN_NAME"):
        run("numbers", f"--raw={tmp_path}")
    # Own files.
    raw = write(tmp_path / "raw", small.FILES | {"test.txt": "1 2 3"})
    run("numbers", f"--raw={raw}", "--as=mine")
    assert run("mine", "--list").startswith("mine  mine/")
    assert "mine/1.0.0" in run("mine", "--verify")


def test_the_script_names_the_commands_that_train(tmp_path, capsys):
    raw = write(tmp_path / "raw", idx.files())
    folder = tmp_path / "my data"
    flags = ["mnist", f"--raw={raw}", "--as=mine", f"--data_dir={folder}"]
    prepare.main(flags)
    out = capsys.readouterr().out
    command = (
        "python -m lnrepro.main --config=configs/mnist.py --config.data.name=mine "
    )
    command += f"'--config.data.dir={folder}' --config.data.train_examples=None "
    assert command in out
    assert "--workdir=runs/mnist/mine\n" in out
    assert prepare.training_command("mnist", "configs/mnist.py", None) == (
        "python -m lnrepro.main --config=configs/mnist.py:paper"
    )
    # One without the variant.
    config = "configs/sequential_mnist.py"
    command = prepare.training_command("mine", config, str(folder))
    assert f"--config={config} --config.data.name=mine " in command
