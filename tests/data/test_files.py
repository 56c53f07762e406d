"""Files are told by their first bytes, and what no reader takes is named."""

import bz2
import functools
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data import file_kinds
from lnrepro.data import old_files as files
from lnrepro.data.file_kinds import is_system_file
from lnrepro.data.official.word2vec import Word2Vec
from lnrepro.data.old_files import mappable, unpack
from lnrepro.data.raw import Raw
from lnrepro.errors import DataError
from tests.data import idx, unchecked
from tests.runs import ROOT, environment

CONTENT = b"one line\nand another\n" * 200
PACK = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}
if file_kinds.ZSTD is not None:
    # Without a checksum, damage to what could not be packed would not be seen.
    options = {file_kinds.ZSTD.CompressionParameter.checksum_flag: 1}
    PACK["zst"] = functools.partial(file_kinds.ZSTD.compress, options=options)
SYSTEM_FILES = (
    "._a.txt",
    ".DS_Store",
    "Thumbs.db",
    "desktop.ini",
    "__MACOSX/._a.txt",
    "__MACOSX/a.txt",
    "a.txt:Zone.Identifier",
)


def zipped(name="a.txt"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, CONTENT)
    return out.getvalue()


def tarred():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("a.txt")
        info.size = len(CONTENT)
        tar.addfile(info, io.BytesIO(CONTENT))
    return out.getvalue()


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("name", ["file", "file.txt", "file.gz", "file.xz", "file.bin"])
def test_any_packing_is_read_under_any_name(tmp_path, packing, name):
    path = tmp_path / name
    path.write_bytes(PACK[packing](CONTENT))
    assert unpack(path) == CONTENT
    with mappable(path, 1 << 20) as plain:
        assert plain != path
        assert plain.read_bytes() == CONTENT
    assert not plain.exists()


@pytest.mark.parametrize("suffix", file_kinds.SUFFIXES)
def test_what_a_browser_has_unpacked_is_read(tmp_path, suffix):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(CONTENT)
    assert unpack(path) == CONTENT
    with mappable(path, 1 << 20) as plain:
        assert plain == path


def test_zstd_without_a_library_is_one_line(tmp_path, monkeypatch):
    without = [packing._replace(open=None) for packing in files.PACKINGS]
    monkeypatch.setattr(files, "PACKINGS", without)
    (tmp_path / "file").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    with pytest.raises(DataError, match=r"file: packed with zstd, .* or unpack it"):
        unpack(tmp_path / "file")


@pytest.mark.parametrize("packing", PACK)
def test_a_truncated_or_damaged_file_is_one_line(tmp_path, packing):
    path = tmp_path / "file"
    whole = PACK[packing](os.urandom(5000))
    middle = len(whole) // 2
    for content in (whole[:-20], whole[:middle] + b"\xff" * 9 + whole[middle + 9 :]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"file: (truncated|damaged), ") as e:
            unpack(path)
        assert str(e.value).isprintable()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n<!DOCTYPE html><html><h1>404</h1>", "a web page, such as an error or"),
        (b"\xef\xbb\xbf<HTML>\n<body>Sign in", "a web page"),
        (
            b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied',
            "a web page",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n",
            "a Git LFS pointer .*git lfs pull",
        ),
        (b"/annex/objects/SHA256E-s9--ab\n", "a git-annex pointer"),
        (
            b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512) + b"\x89HDF\r\n\x1a\n",
            r"a MATLAB 7.3 file \(HDF5\); save it in MATLAB with the option -v7",
        ),
        (b"\x89HDF\r\n\x1a\n" + bytes(90), "an HDF5 file"),
        (zipped(), "a zip archive; unpack it"),
        (zipped("x.npy"), r"an archive of arrays \(.npz\); save its array"),
        (tarred(), "a tar archive; unpack it"),
        (gzip.compress(tarred(), mtime=0), "a tar archive; unpack it"),
        (b"Rar!\x1a\x07\x01\x00", "a RAR or 7z archive; unpack it"),
        (b"%PDF-1.7\n", "a PDF or RTF document; save it as plain text"),
        (
            gzip.compress(gzip.compress(CONTENT, mtime=0), mtime=0),
            "packed twice; unpack it once",
        ),
    ],
)
def test_what_no_reader_takes_is_named_by_every_reader(tmp_path, content, message):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    readers = (
        unpack,
        Word2Vec,
        lambda _: unchecked.prepare("mnist", tmp_path, tmp_path / "data"),
    )
    for read in readers:
        with pytest.raises(DataError, match=f"ubyte: {message}") as e:
            read(path)
        assert str(e.value).isprintable()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")
def test_devices_and_fifos_are_refused_at_once(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    device = tmp_path / "train-images-idx3-ubyte"
    device.symlink_to("/dev/zero")
    for path in (fifo, device):
        for read in (unpack, Word2Vec):
            with pytest.raises(DataError, match="a device, FIFO or socket; a regular"):
                read(path)
    with pytest.raises(DataError, match="ubyte: a device, FIFO or socket"):
        unchecked.prepare("mnist", tmp_path, tmp_path / "data")
    (tmp_path / "ascii").mkdir()
    os.mkfifo(tmp_path / "ascii/a.txt")
    with pytest.raises(DataError, match=r"a.txt: a device, FIFO or socket"):
        dict(Raw("iam_ondb", tmp_path).tree("ascii", suffix=".txt"))
    with pytest.raises(DataError, match="ascii: a folder; a regular file is needed"):
        unpack(tmp_path / "ascii")


def test_system_files_are_left_out_and_counted(tmp_path):
    texts = tmp_path / "ascii"
    for name in ("a.txt", "b/c.txt", *SYSTEM_FILES):
        (texts / name).parent.mkdir(parents=True, exist_ok=True)
        (texts / name).write_bytes(b"x")
    assert all(map(is_system_file, SYSTEM_FILES))
    assert not any(map(is_system_file, ("a.txt", "b/db")))
    raw = Raw("iam_ondb", tmp_path)
    assert [name for name, _ in raw.tree("ascii", suffix=".txt")] == [
        "a.txt",
        "b/c.txt",
    ]
    assert raw.notes == {"files of the operating system left out": len(SYSTEM_FILES)}
    with tarfile.open(tmp_path / "ascii-all.tar.bz2", "w:bz2") as tar:
        tar.add(texts, "ascii")
    texts.rename(tmp_path / "elsewhere")
    raw = Raw("iam_ondb", tmp_path)
    found = raw.tree("ascii", ("ascii-all",), suffix=".txt")
    assert sorted(name for name, _ in found) == ["a.txt", "b/c.txt"]
    assert raw.notes["files of the operating system left out"] == 3


def test_a_file_is_not_there_twice(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t/a.txt").write_bytes(b"x")
    (tmp_path / "t/a.txt.gz").write_bytes(gzip.compress(b"x", mtime=0))
    with pytest.raises(DataError, match=r"a.txt is there more than once"):
        dict(Raw("x", tmp_path).tree("t"))
    with tarfile.open(tmp_path / "u.tar", "w") as tar:
        for content in (b"old", b"new"):
            info = tarfile.TarInfo("u/a.txt")
            info.size = 3
            tar.addfile(info, io.BytesIO(content))
    with pytest.raises(DataError, match=r"u.tar: a.txt is there more than once"):
        dict(Raw("x", tmp_path).tree("u", ("u",)))


def test_an_archive_in_place_of_the_folder_is_named(tmp_path):
    path = tmp_path / "mine.zip"
    path.write_bytes(zipped())
    with pytest.raises(
        DataError, match=r"mine.zip: a zip archive; unpack it, and give"
    ):
        data.prepare("mnist", path, tmp_path / "data", own_name="mine")
    with pytest.raises(DataError, match=r"no such file.*; unpack 'mine.zip' there"):
        data.prepare("mnist", tmp_path, tmp_path / "data", own_name="mine")


def test_headers_of_headers_are_one_line(tmp_path):
    header = tarfile.TarInfo("x")
    header.type = tarfile.XHDTYPE
    (tmp_path / "t.tar").write_bytes(header.tobuf() * 5000)
    with pytest.raises(DataError, match=r"t.tar: damaged, .*recursion depth"):
        dict(Raw("x", tmp_path).tree("t", ("t",)))


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.slow
@pytest.mark.parametrize("locale", [{}, ASCII], ids=["utf-8", "ascii"])
def test_folders_and_locales_that_are_not_utf8(tmp_path, locale):
    """A folder in Latin-1 and a terminal in ASCII give no traceback."""
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.rename(idx.write(tmp_path / "good", idx.files()), folder)

    def prepare(data_dir):
        env = environment(tmp_path) | locale | {"LNREPRO_DATA": os.fsdecode(data_dir)}
        command = [sys.executable, "scripts/prepare.py", "mnist", "--as=mine", "--raw"]
        return subprocess.run(
            [*command, folder], cwd=ROOT, env=env, capture_output=True
        )

    done = prepare(tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert b"is prepared in" in done.stdout
    done = prepare(os.fsencode(tmp_path) + b"/\xe9")
    assert done.returncode == 2
    assert b"is not in UTF-8; choose another data dir" in done.stderr
    assert b"Traceback" not in done.stderr
    command = "from lnrepro.errors import ended; ended(lambda _: print(chr(233)), '')"
    done = subprocess.run(
        [sys.executable, "-c", command], env=environment(tmp_path) | locale
    )
    assert done.returncode == 0


def test_packed_features_are_read(tmp_path):
    from lnrepro.data.npy import open_npy

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "y.npy").write_bytes(
        gzip.compress((tmp_path / "x.npy").read_bytes(), mtime=0)
    )
    np.testing.assert_array_equal(open_npy(tmp_path / "y.npy"), x)
