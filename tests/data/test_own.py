"""Sets with a reader of one's own, and scripts/prepare.py."""

import dataclasses
import hashlib
from importlib import metadata

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data import set_folder, table
from lnrepro.data.reader import Content, Reader
from scripts import prepare
from tests.data import small
from tests.refused import refused


def read_constant(raw):
    return Content({"train": {"x": np.array([7])}})


CONSTANT = Reader(title="One number.", read=read_constant, embedded=True)


def test_a_reader_of_ones_own_is_needed_for_preparing_only(tmp_path):
    data.prepare("constant", data_dir=tmp_path, reader=CONSTANT)
    opened = data.open_set("constant", tmp_path)
    assert opened.columns("train")["x"].tolist() == [7]
    assert opened.splits == {"train": 1}
    with refused("no data set is called 'constants'", "mnist"):
        data.open_set("constants", tmp_path)


def test_an_entry_point_names_a_reader(tmp_path, monkeypatch):
    point = metadata.EntryPoint("constant", f"{__name__}:CONSTANT", table.ENTRY_POINTS)

    def entry_points(group, name):
        wanted = (point.group, point.name)
        return (point,) if (group, name) == wanted else ()

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert data.reader_of("constant") is CONSTANT
    assert not set_folder.open_folder(data.folder_of("constant", tmp_path))
    data.prepare("constant", data_dir=tmp_path)
    assert set_folder.open_folder(data.folder_of("constant", tmp_path))


@pytest.fixture
def flags(tmp_path, monkeypatch):
    """The flag of the data dir; the small set has its checksums."""
    checksums = {}
    for name, text in (("train.txt", small.TRAIN), ("test.txt", small.TEST)):
        checksums[name] = hashlib.sha256(text.encode()).hexdigest()
    reader = dataclasses.replace(small.READER, files=checksums)
    monkeypatch.setattr(small, "READER", reader)
    monkeypatch.setitem(data.TABLE, "numbers", "tests.data.small:READER")
    return f"--data_dir={tmp_path / 'data'}"


def test_the_script_lists_and_prepares(flags, tmp_path, capsys):
    root = tmp_path / "data"
    prepare.main(["--list", flags])
    listed = capsys.readouterr().out
    for name in data.TABLE:
        assert name in listed
        assert data.reader_of(name).licence in listed
    assert str(root / "raw" / "numbers") in listed
    assert not (root / "numbers").exists()
    small.write(root / "raw" / "numbers")
    prepare.main(["numbers", flags])
    fingerprint = data.open_set("numbers", root).fingerprint
    out = capsys.readouterr().out
    assert f"{fingerprint} is prepared in {root / 'numbers'}" in out
    assert "  files read: 2\n" in out
    assert "train: 5" in out
    assert r'words: ["\u00e4", "b"]' in out
    prepare.main(["numbers", flags])
    assert "prepared already" in capsys.readouterr().out
    with refused("was not read", "pass --as OWN_NAME"):
        prepare.main(["numbers", f"--raw={tmp_path}", flags])
    prepare.main(["numbers", "--list", flags])
    assert fingerprint in capsys.readouterr().out


def test_an_own_set_is_listed_from_its_folder(flags, tmp_path, capsys):
    raw = small.write(tmp_path / "raw", test="1 2 3")
    prepare.main(["numbers", f"--raw={raw}", "--as=mine", flags])
    capsys.readouterr()
    prepare.main(["mine", "--list", flags])
    out = capsys.readouterr().out
    assert out.startswith("mine  mine/")
    assert str(tmp_path / "data/mine") in out


@pytest.mark.parametrize(
    ("named", "wrong"),
    [
        ("--as=mine needs --raw", ["--as=mine"]),
        ("/nowhere: not a folder", ["--raw=/nowhere"]),
    ],
)
def test_mistakes_of_the_script_are_one_line(tmp_path, named, wrong):
    with refused(named):
        prepare.main(["mnist", *wrong, f"--data_dir={tmp_path / 'data'}"])
    assert not (tmp_path / "data").exists()
