"""Folders and archives of official files: the same files out of each, and hostile archives refused."""

import io
import tarfile

import pytest

from lnrepro.data import raw
from lnrepro.data.raw import Raw
from lnrepro.errors import DataError

FILES = {"lines/a/1.xml": b"one", "lines/a/2.xml": b"", "lines/b.xml": b"three", "lines/b.txt": b"no", "x/c.xml": b"no"}
FOUND = {"a/1.xml": b"one", "a/2.xml": b"", "b.xml": b"three"}


def write(path, files, mode="w", **fields):
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(content))
    return path


def tree(folder, **options):
    return dict(Raw("set", folder).tree("lines", ("lines-all",), suffix=".xml", **options))


def test_a_folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert tree(tmp_path) == FOUND
    with pytest.raises(DataError, match=r"lines/b.xml: is larger than the 4 bytes it may be"):
        tree(tmp_path, limit=4)


@pytest.mark.parametrize(
    ("packing", "mode"), [(".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar.xz", "w:xz")]
)
@pytest.mark.parametrize("top", ["", "./", "data/"])
def test_an_archive(tmp_path, packing, mode, top):
    write(tmp_path / f"lines-all{packing}", {top + name: content for name, content in FILES.items()}, mode)
    assert tree(tmp_path) == FOUND


@pytest.mark.parametrize("name", ["/lines/a.xml", "../lines/a.xml", "lines/../../a.xml"])
def test_names_that_point_out_of_the_archive(tmp_path, name):
    write(tmp_path / "lines-all.tar", {name: b"x"})
    with pytest.raises(DataError, match="points out of the archive"):
        tree(tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices(tmp_path, kind):
    write(tmp_path / "lines-all.tar", {"lines/a.xml": b""}, type=kind, linkname="/etc/passwd")
    with pytest.raises(DataError, match="is a link or a device"):
        tree(tmp_path)


def test_bombs(tmp_path, monkeypatch):
    write(tmp_path / "lines-all.tar.gz", {"lines/a.xml": bytes(10**6)}, "w:gz")
    with pytest.raises(DataError, match="larger than the 1,000 bytes"):
        tree(tmp_path, limit=1000)
    monkeypatch.setattr(raw, "TREE_LIMIT", 10**5)
    with pytest.raises(DataError, match="larger than"):
        tree(tmp_path)


def test_damaged_archives(tmp_path):
    path = write(tmp_path / "lines-all.tar.gz", {"lines/a.xml": b"0123456789" * 10_000}, "w:gz")
    whole = path.read_bytes()
    for content in (whole[:-30], whole[:40], b"not an archive", b"", whole[:30] + b"\xff" * 40 + whole[70:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"lines-all.tar.gz: (damaged|truncated)"):
            tree(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(
        DataError, match=r"lines: there is no such folder and no lines-all.tar, .*prepare.py set --list"
    ):
        tree(tmp_path)
