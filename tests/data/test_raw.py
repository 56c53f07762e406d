"""Folders of official files, and their downloads."""

import gzip
import hashlib
import pathlib

import pytest

from lnrepro.data.download import download
from lnrepro.data.raw_folder import RawFile, RawFolder
from lnrepro.errors import DataError
from tests.data.reading import refused, write
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
    write(tmp_path, FILES)
    assert tree(tmp_path) == FOUND
    (tmp_path / "lines/b.xml").rename(tmp_path / "lines/b.xml.gz")
    assert tree(tmp_path) == FOUND
    write(tmp_path, FILES)
    with refused(r"lines: b.xml is there more than once"):
        tree(tmp_path)


@pytest.mark.parametrize(
    ("packing", "mode"),
    [(".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar", "w:xz")],
)
@pytest.mark.parametrize("top", ["", "./", "data/"])
def test_a_tree_in_an_archive(tmp_path, packing, mode, top):
    contents = [(top + name, content) for name, content in FILES.items()]
    tar(tmp_path / f"lines-all{packing}", contents, mode)
    assert tree(tmp_path) == FOUND
    tar(tmp_path / f"lines-all{packing}", [*contents, *contents], mode)
    with refused(r"lines-all.*: a/1.xml is there more"):
        tree(tmp_path)


def test_names_that_cannot_be_printed(tmp_path):
    tar(tmp_path / "lines-all.tar", [("lines/a\n: all is well.xml", b"x")])
    with refused(r"the name 'a.n: all is well.xml' can"):
        tree(tmp_path)


def test_what_is_missing_says_where_to_get_it(tmp_path):
    advice = r"`python scripts/prepare.py set --list`"
    with refused(rf"no such folder and no lines-all.* {advice}"):
        tree(tmp_path)
    raw = RawFolder("set", tmp_path / "none")
    with refused(f"a.txt: there is no .*not exist; {advice}"):
        raw.path("a.txt")
    (tmp_path / "mine.zip").write_bytes(b"PK")
    with refused(r"no such file.*; unpack 'mine.zip' there"):
        RawFolder("set", tmp_path).path("a.txt")
    with refused(r"mine.zip: a file; unpack it, and give"):
        RawFolder("set", tmp_path / "mine.zip").path("a.txt")


def test_an_official_file_has_its_checksum(tmp_path):
    (tmp_path / "file.gz").write_bytes(gzip.compress(CONTENT))
    right, wrong = raw_file(), raw_file(content=b"x")
    assert RawFolder("set", tmp_path, [right]).read("file") == CONTENT
    assert RawFolder("set", tmp_path, [RawFile("file")]).read("file") == CONTENT
    own = RawFolder("set", tmp_path, [wrong], official=False)
    assert own.read("file") == CONTENT
    with refused(r"file.gz: checksum differs, .*pass --as NAME"):
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


def test_a_download_keeps_the_packing_and_tries_the_next_address(served, tmp_path):
    seen, packed = [], gzip.compress(CONTENT)
    wrong = served("wrong", CONTENT[:-1] + b"x")
    path = download(
        raw_file(REFUSED, wrong, served("a.gz", packed)),
        tmp_path / "raw",
        progress=lambda *at: seen.append(at),
        timeout=5,
    )
    assert path == tmp_path / "raw" / "file.gz"
    assert path.read_bytes() == packed
    assert seen[-1] == ("file", len(packed), len(packed))
    assert download(raw_file(served("a", CONTENT)), tmp_path / "raw").name == "file"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", CONTENT[:-1] + b"x", "checksum differs"),
        ("a.gz", gzip.compress(CONTENT)[:-9], "truncated"),
        ("a.gz", b"<html>", "a web page"),
    ],
)
def test_a_bad_download_leaves_no_file(served, tmp_path, name, content, message):
    with refused(f"cannot download file .*{message}.*name its folder with --raw"):
        download(raw_file(served(name, content)), tmp_path / "raw")
    assert list((tmp_path / "raw").iterdir()) == []


def test_no_network_and_no_address(tmp_path):
    message = f"cannot download file .{REFUSED}: .*refused.*fetch it by hand"
    with refused(message):
        download(raw_file(REFUSED), tmp_path, timeout=5)
    with refused(r"cannot download file .no public address is"):
        download(raw_file(), tmp_path)


def test_a_full_disk_is_no_failed_download(served, tmp_path, monkeypatch):
    url, opened = served("a", CONTENT), pathlib.Path.open

    def open_full(path, mode="r", **options):
        # Writing to this device fails as on a full disk.
        return open("/dev/full", mode) if mode == "wb" else opened(path, mode)

    monkeypatch.setattr(pathlib.Path, "open", open_full)
    with pytest.raises(DataError, match=r"raw: cannot be written \(No space left"):
        download(raw_file(url), tmp_path / "raw")
