"""Sets with a reader of one's own, and scripts/prepare.py."""

import dataclasses
import gzip
import hashlib
from importlib import metadata

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data import table
from lnrepro.data.raw_folder import RawFile
from lnrepro.data.reader import Content, Reader
from lnrepro.errors import DataError
from scripts import prepare
from tests.data import small
from tests.refused import refused


def read_constant(raw):
    return Content({"train": {"x": np.array([7])}})


CONSTANT = Reader(title="One number.", read=read_constant, embedded=True)


@pytest.fixture(autouse=True)
def _no_registered_sets(monkeypatch):
    monkeypatch.setattr(table, "_REGISTERED", {})


def test_names_that_cannot_be_registered():
    for name in ("mnist", "a/b", ""):
        with pytest.raises(DataError, match=r"choose another name|cannot be the name"):
            data.register(name, CONSTANT)


def test_a_registered_set_is_prepared_at_its_first_use(tmp_path):
    data.register("constant", CONSTANT)
    assert data.open_columns("constant", "train", tmp_path)["x"].tolist() == [7]
    assert data.split_sizes("constant", tmp_path) == {"train": 1}
    # Another process has not registered it, and finds what was prepared.
    table._REGISTERED.clear()
    assert data.open_columns("constant", "train", tmp_path)["x"].tolist() == [7]
    with pytest.raises(DataError, match=r"no data set is called 'constants'; .*mnist"):
        data.open_columns("constants", "train", tmp_path)


def test_an_entry_point_names_a_reader(tmp_path, monkeypatch):
    point = metadata.EntryPoint("constant", f"{__name__}:CONSTANT", table.ENTRY_POINTS)

    def entry_points(group, name):
        wanted = (point.group, point.name)
        return (point,) if (group, name) == wanted else ()

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert data.reader_of("constant") is CONSTANT
    assert not data.prepared("constant", tmp_path)
    data.prepare("constant", data_dir=tmp_path)
    assert data.prepared("constant", tmp_path)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """The small set with checksums and addresses; the flags of its data dir."""
    files = []
    for name, text in (("train.txt", small.TRAIN), ("test.txt", small.TEST)):
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(text.encode()))
        checksum = hashlib.sha256(text.encode()).hexdigest()
        files.append(RawFile(name, checksum, (path.as_uri(),)))
    reader = dataclasses.replace(small.READER, files=tuple(files))
    monkeypatch.setattr(small, "READER", reader)
    monkeypatch.setitem(data.TABLE, "numbers", "tests.data.small:READER")
    return f"--data_dir={tmp_path / 'data'}"


def test_the_script_downloads_prepares_and_lists(served, tmp_path, capsys):
    root = tmp_path / "data"
    prepare.main(["--list", served])
    listed = capsys.readouterr().out
    for name in data.TABLE:
        assert name in listed
        assert data.reader_of(name).licence in listed
    assert str(root / "raw" / "numbers") in listed
    assert not (root / "numbers").exists()
    prepare.main(["numbers", "--download", served])
    fingerprint = data.fingerprint("numbers", root)
    out = capsys.readouterr().out
    assert f"{fingerprint} is prepared in {root / 'numbers'}" in out
    assert "train: 5" in out
    assert r'words: ["\u00e4", "b"]' in out
    found = sorted(path.name for path in (root / "raw" / "numbers").iterdir())
    assert found == ["test.txt.gz", "train.txt.gz"]
    prepare.main(["numbers", served])
    assert "prepared already" in capsys.readouterr().out
    with refused("was not read", "pass --as OWN_NAME"):
        prepare.main(["numbers", f"--raw={tmp_path}", served])
    prepare.main(["numbers", "--list", served])
    assert fingerprint in capsys.readouterr().out


def test_an_own_set_is_listed_from_its_folder(served, tmp_path, capsys):
    raw = small.write(tmp_path / "raw", test="1 2 3")
    prepare.main(["numbers", f"--raw={raw}", "--as=mine", served])
    capsys.readouterr()
    prepare.main(["mine", "--list", served])
    out = capsys.readouterr().out
    assert out.startswith("mine  mine/")
    assert str(tmp_path / "data/mine") in out


@pytest.mark.parametrize(
    ("named", "flags"),
    [
        ("--as=mine needs --raw", ["--as=mine"]),
        ("the folder does not exist", ["--raw=/nowhere"]),
    ],
)
def test_mistakes_of_the_script_are_one_line(tmp_path, named, flags):
    with refused(named):
        prepare.main(["mnist", *flags, f"--data_dir={tmp_path / 'data'}"])
    assert not (tmp_path / "data").exists()
