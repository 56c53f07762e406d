"""Files are told by their first bytes; what is wrong with them is one line."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import numpy as np
import pytest

from lnrepro.data import files
from lnrepro.errors import DataError
from tests.data.reading import refused

CONTENT = b"one line\nand another\n" * 200
PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
# Text with characters that Windows-1252 has too.
TEXT = "it isn\u2019t late \u2014 caf\u00e9\nplain\n"


def tar(path, contents, mode="w"):
    """Write a tar archive with these files, and return its path."""
    with tarfile.open(path, mode) as archive:
        for name, content in contents:
            info = tarfile.TarInfo(name)
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


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("name", ["file", "file.txt", "file.gz", "file.xz"])
def test_any_packing_is_read_under_any_name(tmp_path, packing, name):
    path = tmp_path / name
    path.write_bytes(PACK[packing](CONTENT))
    assert files.read(path) == CONTENT
    with files.plain_file(path) as plain:
        assert plain != path
        assert plain.read_bytes() == CONTENT
    assert not plain.exists()
    # A browser may have unpacked the file and kept its name.
    path.write_bytes(CONTENT)
    assert files.read(path) == CONTENT
    with files.plain_file(path) as plain:
        assert plain == path


def read_members(path):
    return dict(files.members(path, ""))


READERS = (files.read, text_of, files.load_npy, read_members)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n<!DOCTYPE html><html><h1>404</h1>", "a web page, such as an error or"),
        (b"\xef\xbb\xbf<HTML>\n<body>Sign in", "a web page"),
        (zipped(), "a zip archive; unpack it"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n",
            "a Git LFS pointer .*git lfs pull",
        ),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_another_file_in_place_of_the_right_one_is_named(
    tmp_path, content, message, pack
):
    path = tmp_path / "file"
    path.write_bytes(pack(content))
    for read in READERS:
        with refused(f"file: {message}"):
            read(path)


def test_what_cannot_be_opened_is_one_line(tmp_path):
    for read in READERS:
        with refused(r"none: cannot be read \(No such file"):
            read(tmp_path / "none")
        with refused(r"cannot be read \(Is a directory\)"):
            read(tmp_path)


def test_a_full_temporary_folder_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.npy.gz").write_bytes(gzip.compress(CONTENT))
    # Writing to this device fails as on a full disk.
    full = open("/dev/full", "wb")
    monkeypatch.setattr("tempfile.NamedTemporaryFile", lambda prefix: full)
    with refused("a.npy.gz: no space in .* set TMPDIR"):
        files.load_npy(tmp_path / "a.npy.gz")


def test_arrays_are_mapped_and_nothing_else_is(tmp_path):
    path = tmp_path / "a.npy"
    wanted = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    np.save(path, wanted)
    whole = path.read_bytes()
    for content in (whole, gzip.compress(whole)):
        path.write_bytes(content)
        found = files.load_npy(path)
        assert isinstance(found, np.memmap)
        np.testing.assert_array_equal(found, wanted)
    np.save(path, np.array([{}], object))
    for content in (path.read_bytes(), whole[:-9], b"\x93NUMPY\x01\x00v\x00{", b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a.npy: not a plain .npy array") as e:
            files.load_npy(path)
        assert str(e.value).isprintable()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_members_of_an_archive(tmp_path, mode):
    path = tar(tmp_path / "a.tar", [("x/a.txt", b"1"), ("b.bin", b"2")], mode)
    assert read_members(path) == {"x/a.txt": b"1", "b.bin": b"2"}
    wanted = [("x/a.txt", b"1"), ("b.bin", None)]
    assert list(files.members(path, ".txt")) == wanted


def add_link(archive, name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    archive.addfile(info)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_links_of_an_archive_are_followed_within_it(tmp_path, mode):
    path = tmp_path / "a.tar"
    with tarfile.open(path, mode) as archive:
        add_link(archive, "x/early.txt", "one.txt")
        for name, content in (("x/one.txt", b"1"), ("x/in/two.txt", b"2")):
            info = tarfile.TarInfo(name)
            info.size = 1
            archive.addfile(info, io.BytesIO(content))
        add_link(archive, "y/hard.txt", "x/one.txt", tarfile.LNKTYPE)
        add_link(archive, "y/chain.txt", "../y/hard.txt")
        add_link(archive, "y/folder", "../x/in")
        add_link(archive, "x/in/circle", "..")
        add_link(archive, "z/a.txt", "b.txt")
        add_link(archive, "z/b.txt", "a.txt")
        add_link(archive, "z/passwd.txt", "/etc/passwd")
        add_link(archive, "z/passwd2.txt", "/etc/passwd", tarfile.LNKTYPE)
        add_link(archive, "z/up.txt", "../../../etc/passwd")
        add_link(archive, "pipe.txt", "", tarfile.FIFOTYPE)
    assert dict(files.members(path, ".txt")) == {
        "x/one.txt": b"1",
        "x/in/two.txt": b"2",
        "x/early.txt": b"1",
        "y/hard.txt": b"1",
        "y/chain.txt": b"1",
        # Linked folders are not followed, and named as what is left out.
        **dict.fromkeys(("y/folder", "x/in/circle", "pipe.txt")),
        **dict.fromkeys(f"z/{n}.txt" for n in ("a", "b", "passwd", "passwd2", "up")),
    }


ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "cp1252")


@pytest.mark.filterwarnings("ignore:.*Windows-1252")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_text_is_decoded(tmp_path, encoding, monkeypatch):
    content = TEXT.encode(encoding)
    assert files.decode(content, "f") == TEXT
    for block in (1 << 20, 7):
        monkeypatch.setattr(files, "BLOCK", block)
        for name, pack in (("f", bytes), ("f.gz", gzip.compress)):
            (tmp_path / name).write_bytes(pack(content))
            assert text_of(tmp_path / name) == TEXT


def test_big_endian_utf16_is_decoded():
    assert files.decode(b"\xfe\xff" + TEXT.encode("utf-16-be"), "f") == TEXT


def test_lines_that_are_not_utf8_are_windows_1252_and_named_once():
    content = TEXT.encode() + b"don\x92t\n" + "é\n".encode() + b"caf\xe9"
    with pytest.warns(UserWarning, match="Windows-1252") as found:
        text = files.decode(content, "f")
    assert text == TEXT + "don\u2019t\né\ncafé"
    (warning,) = found
    message = "f, line 3: not UTF-8, read as Windows-1252 (2 such places)"
    assert str(warning.message) == message


def test_lines_end_at_newlines_only():
    text = "a\x0cb\u2028c\x85d\r\ne"
    assert files.decode(text.encode(), "f") == text


@pytest.mark.parametrize("block", [1 << 20, 7])
def test_line_ends_of_old_macs_and_marks_of_joined_files(monkeypatch, block):
    monkeypatch.setattr(files, "BLOCK", block)
    old_mac = TEXT.replace("\n", "\r") * 3
    for text in (old_mac, old_mac + "end\n", "\ufeff" + old_mac):
        assert files.decode(text.encode(), "f").removesuffix("end\n") == TEXT * 3
    # A carriage return in a line of other files is no line end.
    assert files.decode(b"a\rb\nc\nd\r\n", "f") == "a\rb\nc\nd\r\n"
    joined = f"\ufeff{TEXT}\ufeff{TEXT}".encode()
    assert files.decode(joined, "f") == TEXT + TEXT


def test_blocks_consist_of_whole_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 50)
    lines = [*(f"line {i}\n" for i in range(100)), "end"]
    (tmp_path / "f").write_text("".join(lines))
    blocks = list(files.text_blocks(tmp_path / "f"))
    assert len(blocks) > 10
    for number, text in blocks:
        whole = text.splitlines(keepends=True)
        assert whole == lines[number - 1 : number - 1 + len(whole)]
    assert "".join(text for _, text in blocks) == "".join(lines)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TEXT.encode("utf-16-le"), "f, line 1: a NUL byte; save the file as UTF-8"),
        (b"a\nb\0\n", "f, line 2: a NUL byte"),
        (b"\xff\xfea\x00\x00\xd8", "f: not UTF-8, UTF-16 or Windows-1252 text"),
        (b"a\x81\x8d\n", "f: not UTF-8, UTF-16 or Windows-1252 text"),
    ],
)
def test_what_is_no_text_is_refused(content, message):
    with refused(message):
        files.decode(content, "f")
