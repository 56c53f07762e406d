"""Files are told by their first bytes; what is wrong with them is one line."""

import bz2
import gzip
import io
import lzma
import tarfile
import unicodedata
import zipfile

import numpy as np
import pytest

from lnrepro.data import files
from tests.data.reading import refused

CONTENT = b"one line\nand another\n" * 200
PACK = (bytes, gzip.compress, lzma.compress, bz2.compress)
# Text with characters that Windows-1252 has too.
TEXT = "it isn\u2019t late \u2014 caf\u00e9\nplain\n"


def tar(path, contents, mode="w"):
    """Write a tar archive, and return its path.

    Contents that are no bytes are a type of member, and the target of a link.
    """
    with tarfile.open(path, mode) as archive:
        for name, content in contents:
            info = tarfile.TarInfo(name)
            if not isinstance(content, bytes):
                info.type, info.linkname = content
                content = b""
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.txt", CONTENT)
    return out.getvalue()


def text_of(path):
    return "".join(text for _, text in files.text_blocks(path))


def read_members(path):
    return dict(files.members(path))


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("name", ["file", "file.gz", "file.xz"])
def test_any_packing_is_read_under_any_name(tmp_path, pack, name):
    path = tmp_path / name
    path.write_bytes(pack(CONTENT))
    assert files.read(path) == CONTENT
    with files.plain_file(path) as plain:
        assert (plain == path) == (pack is bytes)
        assert plain.read_bytes() == CONTENT
    assert plain.exists() == (pack is bytes)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"


@pytest.mark.parametrize("read", [files.read, text_of, files.load_npy, read_members])
def test_another_file_in_place_of_the_right_one_is_named(tmp_path, read):
    path = tmp_path / "file"
    for content, message in (
        (b"\n<!DOCTYPE html><html><h1>404</h1>", "a web page, such as an error or"),
        (b"\xef\xbb\xbf<HTML>\n<body>Sign in", "a web page"),
        (zipped(), "a zip archive; unpack it"),
        (LFS, "a Git LFS pointer .*git lfs pull"),
        (gzip.compress(LFS), "a Git LFS pointer"),
    ):
        path.write_bytes(content)
        with refused(f"file: {message}"):
            read(path)
    with refused(r"none: cannot be read \(No such file"):
        read(tmp_path / "none")
    with refused(r"cannot be read \(Is a directory\)"):
        read(tmp_path)


def test_bytes_that_are_not_utf8_are_windows_1252_and_named_once(monkeypatch):
    # The first block has two lines.
    monkeypatch.setattr(files, "BLOCK", 30)
    content = TEXT.encode() + b"don\x92\x92t\n" + "é\n".encode() + b"caf\xe9"
    with pytest.warns(UserWarning, match="Windows-1252") as found:
        text = files.decode(content, "f")
    assert text == TEXT + "don\u2019\u2019t\né\ncafé"
    (warning,) = found
    message = "f, line 3: not UTF-8, read as Windows-1252 (2 such places)"
    assert str(warning.message) == message


def test_line_ends_of_old_macs_and_marks_of_joined_files():
    old_mac = TEXT.replace("\n", "\r") * 3
    for text in (old_mac, "\ufeff" + old_mac, old_mac.replace("\r", "\r\n", 2)):
        assert files.decode(text.encode(), "f") == TEXT * 3
    # Other characters, and a carriage return in a line of other files, are no line end.
    text = "a\rb\nc\n\x0cb\u2028c\x85d\r\ne"
    assert files.decode(text.encode(), "f") == text
    assert files.decode(f"{TEXT}\ufeff{TEXT}".encode(), "f") == TEXT + TEXT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TEXT.encode("utf-16-le"), "f, line 1: a NUL byte; save the file as UTF-8"),
        (b"\nb\0\n", "f, line 2: a NUL byte"),
        (b"\xff\xfea\x00\x00\xd8", "f: not UTF-8, UTF-16 or Windows-1252 text"),
        (b"a\x81\x8d\n", "f: not UTF-8, UTF-16 or Windows-1252 text"),
    ],
)
def test_what_is_no_text_is_refused(content, message):
    with refused(message):
        files.decode(content, "f")


def test_arrays_are_mapped_and_nothing_else_is(tmp_path):
    path = tmp_path / "a.npy"
    wanted = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    np.save(path, wanted)
    whole = path.read_bytes()
    for pack in PACK[:2]:
        path.write_bytes(pack(whole))
        found = files.load_npy(path)
        assert isinstance(found, np.memmap)
        np.testing.assert_array_equal(found, wanted)
    np.save(path, np.array([{}], object))
    for content in (path.read_bytes(), whole[:-9], b""):
        path.write_bytes(content)
        with refused("a.npy: not a plain .npy array"):
            files.load_npy(path)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_links_of_an_archive_are_followed_within_it(tmp_path, mode):
    soft, hard = tarfile.SYMTYPE, tarfile.LNKTYPE
    members = {
        "x/early.txt": (soft, "one.txt"),
        "y/chain.txt": (soft, "hard.txt"),
        "x/one.txt": b"1",
        "y/hard.txt": (hard, "x/one.txt"),
        "circle.txt": (soft, "circle.txt"),
        "passwd.txt": (soft, "/etc/passwd"),
        "hard.txt": (hard, "/etc/passwd"),
        "up.txt": (soft, "../../etc/passwd"),
        "pipe.txt": (tarfile.FIFOTYPE, ""),
        "folder": (tarfile.DIRTYPE, ""),
    }
    path = tar(tmp_path / "a.tar", members.items(), mode)
    inside = dict.fromkeys(list(members)[:4], b"1")
    outside = dict.fromkeys(list(members)[4:-1])
    assert dict(files.members(path)) == inside | outside


@pytest.mark.filterwarnings("ignore:.*Windows-1252")
@pytest.mark.parametrize("block", [files.BLOCK, 7])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_text_is_decoded(tmp_path, encoding, block, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", block)
    (tmp_path / "f").write_bytes(gzip.compress(TEXT.encode(encoding)))
    assert text_of(tmp_path / "f") == TEXT
    if (block, encoding) == (7, "utf-8"):
        lines = enumerate(TEXT.splitlines(keepends=True), 1)
        assert list(files.text_blocks(tmp_path / "f")) == list(lines)
    if encoding != "cp1252":
        apart = unicodedata.normalize("NFD", TEXT)
        assert files.decode(apart.encode(encoding), "f") == TEXT
    big_endian = b"\xfe\xff" + TEXT.encode("utf-16-be")
    assert files.decode(big_endian, "f") == TEXT
