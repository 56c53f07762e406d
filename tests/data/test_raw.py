"""Folders of official files, and their downloads."""

import errno
import gzip
import hashlib
import os
import pathlib

import pytest

from lnrepro.data.download import download
from lnrepro.data.raw_folder import RawFile, RawFolder
from lnrepro.errors import DataError
from tests.data.test_files import tar

# Nothing listens on the discard port.
REFUSED = "http://127.0.0.1:9/file.gz"
CONTENT = bytes(range(256)) * 40
FILES = {
    "lines/a/1.xml": b"one",
    "lines/a/2.xml": b"",
    "lines/b.xml": b"three",
    "lines/b.txt": b"no",
    "x/c.xml": b"no",
    "lines/._d.xml": b"no",
}
FOUND = [("a/1.xml", b"one"), ("a/2.xml", b""), ("b.xml", b"three")]


def tree(folder):
    return list(RawFolder("set", folder).tree("lines", ("lines-all",), suffix=".xml"))


def test_a_tree_of_files(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert tree(tmp_path) == FOUND
    (tmp_path / "lines/b.xml").write_bytes(gzip.compress(b"three"))
    assert tree(tmp_path) == FOUND


@pytest.mark.parametrize(
    ("packing", "mode"),
    [(".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar", "w:xz")],
)
@pytest.mark.parametrize("top", ["", "./", "data/"])
def test_a_tree_in_an_archive(tmp_path, packing, mode, top):
    contents = [(top + name, content) for name, content in FILES.items()]
    tar(tmp_path / f"lines-all{packing}", contents, mode)
    assert tree(tmp_path) == FOUND


def test_a_file_is_not_there_twice(tmp_path):
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines/a.xml").write_bytes(b"x")
    (tmp_path / "lines/a.xml.gz").write_bytes(gzip.compress(b"x"))
    with pytest.raises(DataError, match=r"lines: a.xml is there more than once"):
        tree(tmp_path)
    twice = [("lines/a.xml", b"old"), ("lines/a.xml", b"new")]
    other = tmp_path / "other"
    other.mkdir()
    tar(other / "lines-all.tar", twice)
    with pytest.raises(DataError, match=r"lines-all.tar: a.xml is there more than on"):
        tree(other)


def test_names_that_cannot_be_printed(tmp_path):
    tar(tmp_path / "lines-all.tar", [("lines/a\n: all is well.xml", b"x")])
    with pytest.raises(DataError, match=r"the name 'a.n: all is well.xml' can") as e:
        tree(tmp_path)
    assert str(e.value).isprintable()


def test_what_is_missing_says_where_to_get_it(tmp_path):
    advice = r"`python scripts/prepare.py set --list`"
    with pytest.raises(DataError, match=rf"no such folder and no lines-all.* {advice}"):
        tree(tmp_path)
    raw = RawFolder("set", tmp_path / "none")
    with pytest.raises(DataError, match=f"a.txt: there is no .*not exist; {advice}"):
        raw.path("a.txt")
    (tmp_path / "mine.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"no such file.*; unpack 'mine.zip' there"):
        RawFolder("set", tmp_path).path("a.txt")
    with pytest.raises(DataError, match=r"mine.zip: a file; unpack it, and give"):
        RawFolder("set", tmp_path / "mine.zip").path("a.txt")


def test_an_official_file_has_its_checksum(tmp_path):
    (tmp_path / "file.gz").write_bytes(gzip.compress(CONTENT))
    right, wrong = raw_file(), raw_file(content=b"x")
    assert RawFolder("set", tmp_path, [right]).read("file") == CONTENT
    assert RawFolder("set", tmp_path, [RawFile("file")]).read("file") == CONTENT
    own = RawFolder("set", tmp_path, [wrong], official=False)
    assert own.read("file") == CONTENT
    with pytest.raises(DataError, match=r"file.gz: checksum differs, .*pass --as NAME"):
        RawFolder("set", tmp_path, [wrong]).read("file")


def raw_file(*urls, content=CONTENT):
    return RawFile("file", hashlib.sha256(content).hexdigest(), urls)


@pytest.fixture
def served(tmp_path):
    """A function (name, content) that returns the URL of a file."""

    def serve(name, content):
        path = tmp_path / "served" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path.as_uri()

    return serve


def test_a_download_keeps_the_packing_and_reports_progress(served, tmp_path):
    seen, packed = [], gzip.compress(CONTENT)
    path = download(
        raw_file(served("a.gz", packed)),
        tmp_path / "raw",
        progress=lambda *at: seen.append(at),
    )
    assert path == tmp_path / "raw" / "file.gz"
    assert path.read_bytes() == packed
    assert seen[-1] == ("file", len(packed), len(packed))
    assert download(raw_file(served("a", CONTENT)), tmp_path / "raw").name == "file"


def test_the_next_address_is_tried(served, tmp_path):
    wrong = served("wrong", CONTENT[:-1] + b"x")
    urls = (REFUSED, wrong, served("b.gz", gzip.compress(CONTENT)))
    path = download(raw_file(*urls), tmp_path / "raw", timeout=5)
    assert gzip.decompress(path.read_bytes()) == CONTENT


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", CONTENT[:-1] + b"x", "checksum differs"),
        ("a.gz", gzip.compress(CONTENT)[:-9], "truncated"),
        ("a.gz", b"<html>", "a web page"),
    ],
)
def test_a_bad_download_leaves_no_file(served, tmp_path, name, content, message):
    with pytest.raises(
        DataError, match=f"cannot download file .*{message}.*name its folder with --raw"
    ) as failure:
        download(raw_file(served(name, content)), tmp_path / "raw")
    assert "\n" not in str(failure.value)
    assert list((tmp_path / "raw").iterdir()) == []


def test_no_network_and_no_address(tmp_path):
    refused = f"cannot download file .{REFUSED}: .*refused.*fetch it by hand"
    with pytest.raises(DataError, match=refused):
        download(raw_file(REFUSED), tmp_path, timeout=5)
    with pytest.raises(DataError, match=r"cannot download file .no public address is"):
        download(raw_file(), tmp_path)


def test_a_full_disk_is_no_failed_download(served, tmp_path, monkeypatch):
    url = served("a", CONTENT)
    opened = pathlib.Path.open

    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def write(self, piece):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full(path, mode="r", **options):
        return Full() if mode == "wb" else opened(path, mode, **options)

    monkeypatch.setattr(pathlib.Path, "open", open_full)
    with pytest.raises(DataError, match=r"raw: cannot be written \(No space left"):
        download(raw_file(url), tmp_path / "raw")
