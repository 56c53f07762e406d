"""Folders of official files."""

import gzip
import hashlib
import re
import unicodedata

import pytest

from lnrepro.data.raw_folder import RawFolder
from lnrepro.errors import DataError
from tests.data.reading import refused, write
from tests.data.test_files import tar

FILES = {
    "lines/a/1.xml": b"one",
    "lines/a/2.xml": b"",
    "lines/b.xml": b"three",
    "lines/b.txt": b"no",
    "x/c.xml": b"no",
    "lines/._d.xml": b"no",
}
XML = re.compile(r".+\.xml")
FOUND = [("a/1.xml", b"one"), ("a/2.xml", b""), ("b.xml", b"three")]


def tree(folder):
    return list(
        RawFolder("set", folder, {}).tree("lines", ("lines-all",), XML.fullmatch)
    )


def test_a_tree_of_files(tmp_path):
    write(tmp_path, FILES)
    assert tree(tmp_path) == FOUND
    write(tmp_path, {"lines/b.xml.gz": gzip.compress(b"three")})
    with refused(r"lines: b.xml is there more than once"):
        tree(tmp_path)
    (tmp_path / "lines/b.xml").unlink()
    assert tree(tmp_path) == FOUND


@pytest.mark.parametrize(
    ("packing", "mode", "top"),
    [(".tar", "w", ""), (".tar.gz", "w:gz", "./"), (".tgz", "w:xz", "data/")],
)
def test_a_tree_in_an_archive(tmp_path, packing, mode, top):
    contents = [(top + name, content) for name, content in FILES.items()]
    tar(tmp_path / f"lines-all{packing}", contents, mode)
    assert tree(tmp_path) == FOUND
    tar(tmp_path / f"lines-all{packing}", [*contents, *contents], mode)
    with refused(r"lines: a/1.xml is there more than once"):
        tree(tmp_path)


def test_what_cannot_be_printed_in_one_line_is_escaped():
    assert str(DataError("f\n\x1b\u2028 caf\u00e9")) == r"f\n\x1b\u2028 caf" + "\u00e9"


def test_what_is_missing_says_where_to_get_it(tmp_path):
    advice = r"`python scripts/prepare.py set --list`"
    with refused(rf"no such folder, and no archive lines-all; {advice}"):
        tree(tmp_path)
    (tmp_path / "mine.zip").write_bytes(b"PK")
    for folder, message in (
        (tmp_path, rf"no such file.*; unpack mine.zip there; {advice}"),
        (tmp_path / "none", f"none: not a folder; give .* files; {advice}"),
    ):
        with refused(message):
            RawFolder("set", folder, {}).path("a.txt")


def test_an_official_file_has_its_checksum(tmp_path):
    (tmp_path / "file.gz").write_bytes(gzip.compress(b"x"))
    right, wrong = (hashlib.sha256(text).hexdigest() for text in (b"x", b"y"))
    for checksum, official in ((right, True), (None, True), (wrong, False)):
        raw = RawFolder("set", tmp_path, {"file": checksum}, official)
        assert raw.read("file") == b"x"
    with refused(r"file.gz: checksum differs, .*pass --as NAME"):
        RawFolder("set", tmp_path, {"file": wrong}).read("file")


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


@pytest.mark.parametrize("is_packed", [False, True])
def test_what_was_read_and_left_out_is_counted(tmp_path, is_packed):
    composed = "jos\N{LATIN SMALL LETTER E WITH ACUTE}.xml"
    left_out = ["#recycle.txt", ".#one.xml", ".ipynb/one.xml", "__MACOSX/a.xml"]
    left_out = [f"lines/{name}" for name in [*left_out, "desktop.ini", "notes.txt"]]
    names = ["ONE.XML", "one (1).xml", "dir.xml/inner.xml"]
    files = {f"lines/{name}": b"one" for name in names}
    files[f"lines/{unicodedata.normalize('NFD', composed)}"] = b"x"
    files |= dict.fromkeys(left_out, b"-")
    if is_packed:
        tar(tmp_path / "lines-all.tar", files.items())
    else:
        write(tmp_path, files)
    raw = RawFolder("set", tmp_path, {})
    found = dict(raw.tree("lines", ("lines-all",), XML.fullmatch))
    assert found.keys() == {"ONE.xml", "one (1).xml", "dir.xml/inner.xml", composed}
    counts = {"files read": 4, "files left out": 6}
    assert raw.summary() == counts | {"such as": ", ".join(left_out[:5])}
