"""Folders of official files."""

import gzip
import hashlib
import os
import unicodedata

import pytest

from lnrepro.data.raw_folder import RawFolder
from tests.data.reading import refused, write
from tests.data.test_files import tar

CONTENT = bytes(range(256)) * 40
WRONG = {"file": hashlib.sha256(b"x").hexdigest()}
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
    return list(RawFolder("set", folder, {}).tree("lines", ("lines-all",), ".xml"))


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
    with refused(r"lines: a/1.xml is there more than once"):
        tree(tmp_path)


def test_names_that_cannot_be_printed(tmp_path):
    tar(tmp_path / "lines-all.tar", [("lines/a\n: all is well.xml", b"x")])
    with refused(r"the name 'a.n: all is well.xml' can"):
        tree(tmp_path)


def test_what_is_missing_says_where_to_get_it(tmp_path):
    advice = r"`python scripts/prepare.py set --list`"
    with refused(rf"no such folder, and no archive lines-all; {advice}"):
        tree(tmp_path)
    (tmp_path / "mine.zip").write_bytes(b"PK")
    for folder, message in (
        (tmp_path, rf"no such file.*; unpack 'mine.zip' there; {advice}"),
        (tmp_path / "none", f"none: not a folder; give .* files; {advice}"),
        (tmp_path / "mine.zip", "mine.zip: not a folder; give the folder of the unp"),
    ):
        with refused(message):
            RawFolder("set", folder, {}).path("a.txt")


def test_an_official_file_has_its_checksum(tmp_path):
    (tmp_path / "file.gz").write_bytes(gzip.compress(CONTENT))
    right = {"file": hashlib.sha256(CONTENT).hexdigest()}
    for checksums, official in ((right, True), ({"file": None}, True), (WRONG, False)):
        raw = RawFolder("set", tmp_path, checksums, official)
        assert raw.read("file") == CONTENT
    with refused(r"file.gz: checksum differs, .*pass --as NAME"):
        RawFolder("set", tmp_path, WRONG).read("file")


def test_linked_folders_are_followed_once(tmp_path):
    write(tmp_path / "disk", {"c/1.xml": b"linked", "c/d/2.xml": b"deep"})
    write(tmp_path / "raw", {"lines/a.xml": b"a"})
    lines = tmp_path / "raw/lines"
    (lines / "more").symlink_to(tmp_path / "disk/c")
    (lines / "b.xml").symlink_to("a.xml")
    (tmp_path / "disk/c/d/circle").symlink_to(tmp_path / "disk")
    (lines / "back").symlink_to("..")
    wanted = [("a.xml", b"a"), ("b.xml", b"a"), ("more/1.xml", b"linked")]
    assert tree(tmp_path / "raw") == [*wanted, ("more/d/2.xml", b"deep")]
    (lines / "gone.xml").symlink_to("nowhere")
    with refused(r"gone.xml: cannot be read \(No such file"):
        tree(tmp_path / "raw")


def test_what_was_read_and_left_out_is_counted(tmp_path):
    accented = unicodedata.normalize("NFD", "jos\N{LATIN SMALL LETTER E WITH ACUTE}")
    names = {
        "ONE.XML": b"one",
        "one (1).xml": b"one",
        f"{accented}.xml": b"x",
        ".#one.xml": b"one",
        ".ipynb_checkpoints/one-checkpoint.xml": b"one",
        "notes.txt": b"-",
        "dir.xml/inner.xml": b"inner",
    }
    write(tmp_path, {f"lines/{name}": content for name, content in names.items()})
    os.mkfifo(tmp_path / "lines/pipe.xml")
    raw = RawFolder("set", tmp_path, {})
    found = dict(raw.tree("lines", ("lines-all",), ".xml"))
    composed = unicodedata.normalize("NFC", accented)
    wanted = {"ONE.xml", "one (1).xml", f"{composed}.xml", "dir.xml/inner.xml"}
    assert found.keys() == wanted
    left_out = [".#one.xml", ".ipynb_checkpoints/one-checkpoint.xml"]
    left_out += ["notes.txt", "pipe.xml"]
    assert raw.summary() == {
        "files read": 4,
        "copies among them": 1,
        "files left out": 4,
        "such as": ", ".join(f"lines/{name}" for name in left_out),
    }


def test_members_of_an_archive_are_counted(tmp_path):
    contents = [("lines/a.xml", b"1"), ("lines/B.XML", b"1"), ("lines/.c.xml", b"2")]
    tar(tmp_path / "lines-all.tar", contents)
    raw = RawFolder("set", tmp_path, {})
    assert dict(raw.tree("lines", ("lines-all",), ".xml")).keys() == {"a.xml", "B.xml"}
    assert list(raw.summary().values()) == [2, 1, 1, "lines/.c.xml"]
