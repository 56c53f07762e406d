"""Folders and archives of official files; hostile archives are refused."""

import io
import tarfile

import pytest

from lnrepro.data import archives
from lnrepro.data import old_files as files
from lnrepro.data.raw import Raw
from lnrepro.errors import DataError

FILES = {
    "lines/a/1.xml": b"one",
    "lines/a/2.xml": b"",
    "lines/b.xml": b"three",
    "lines/b.txt": b"no",
    "x/c.xml": b"no",
}
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
    return dict(
        Raw("set", folder).tree("lines", ("lines-all",), suffix=".xml", **options)
    )


def test_a_folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert tree(tmp_path) == FOUND
    with pytest.raises(
        DataError, match=r"lines/b.xml: holds more than the 4 bytes it may"
    ):
        tree(tmp_path, limit=4)


@pytest.mark.parametrize(
    ("packing", "mode"),
    [(".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar.xz", "w:xz")],
)
@pytest.mark.parametrize("top", ["", "./", "data/"])
def test_an_archive(tmp_path, packing, mode, top):
    write(
        tmp_path / f"lines-all{packing}",
        {top + name: content for name, content in FILES.items()},
        mode,
    )
    assert tree(tmp_path) == FOUND


@pytest.mark.parametrize(
    "name", ["/lines/a.xml", "../lines/a.xml", "lines/../../a.xml"]
)
def test_names_that_point_out_of_the_archive(tmp_path, name):
    write(tmp_path / "lines-all.tar", {name: b"x"})
    with pytest.raises(DataError, match="points out of the archive"):
        tree(tmp_path)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices(tmp_path, kind):
    write(
        tmp_path / "lines-all.tar",
        {"lines/a.xml": b""},
        type=kind,
        linkname="/etc/passwd",
    )
    with pytest.raises(DataError, match="is a link or a device"):
        tree(tmp_path)


def test_bombs(tmp_path, monkeypatch):
    write(tmp_path / "lines-all.tar.gz", {"lines/a.xml": bytes(10**6)}, "w:gz")
    with pytest.raises(DataError, match="larger than the 1,000 bytes"):
        tree(tmp_path, limit=1000)
    monkeypatch.setattr(archives, "TREE_LIMIT", 10**5)
    with pytest.raises(DataError, match="larger than"):
        tree(tmp_path)


def test_archives_that_grow_without_end(tmp_path, monkeypatch):
    """Archives full of other members, names, extended headers or sparse pieces."""
    monkeypatch.setattr(files, "ALWAYS", 10**6)
    write(tmp_path / "lines-all.tar.gz", {"other/a.bin": bytes(3 * 10**6)}, "w:gz")
    with pytest.raises(
        DataError,
        match=r"lines-all.tar.gz: holds more than the 1,000,000 bytes it may",
    ):
        tree(tmp_path)
    for fields in (
        {"name": "lines/" + "a" * 10**5 + ".xml"},
        {"pax_headers": {"comment": "a" * 10**5}},
    ):
        form = tarfile.PAX_FORMAT if "pax_headers" in fields else tarfile.GNU_FORMAT
        with tarfile.open(tmp_path / "lines-all.tar.gz", "w:gz", format=form) as tar:
            info = tarfile.TarInfo("lines/a.xml")
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info)
        with pytest.raises(
            DataError, match=r"lines-all.tar.gz: damaged, .*a header of 100,"
        ):
            tree(tmp_path)


def test_sparse_members_and_sizes_below_zero(tmp_path):
    sparse = write(
        tmp_path / "lines-all.tar", {"lines/a.xml": b"x"}, type=tarfile.GNUTYPE_SPARSE
    ).read_bytes()
    header = bytearray(tarfile.TarInfo("lines/a.xml").tobuf(tarfile.GNU_FORMAT))
    header[124:136], header[148:156] = b"\xff" * 12, b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    for content, message in (
        (sparse, "a sparse member"),
        (bytes(header) + bytes(1024), "a header of -1 bytes"),
    ):
        (tmp_path / "lines-all.tar").write_bytes(content)
        with pytest.raises(DataError, match=rf"lines-all.tar: damaged, .*{message}"):
            tree(tmp_path)
    pax = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "x",
        "GNU.sparse.realsize": str(10**12),
    }
    for headers in (pax, {"GNU.sparse.map": "0,1"}, {"GNU.sparse.size": "9"}):
        with tarfile.open(
            tmp_path / "lines-all.tar", "w", format=tarfile.PAX_FORMAT
        ) as tar:
            info = tarfile.TarInfo("lines/a.xml")
            info.size, info.pax_headers = 1024, headers
            tar.addfile(info, io.BytesIO(b"1000000000\n" + bytes(1013)))
        with pytest.raises(
            DataError, match=r"lines-all.tar: damaged, .*a sparse member"
        ):
            tree(tmp_path)


def test_names_that_cannot_be_printed(tmp_path):
    write(tmp_path / "lines-all.tar", {"lines/a\n: all is well.xml": b"x"})
    with pytest.raises(
        DataError,
        match=r"lines-all.tar: the name 'lines/a.n: all is well.xml' cannot be printed",
    ) as e:
        tree(tmp_path)
    assert str(e.value).isprintable()


def test_an_archive_is_what_it_begins_with(tmp_path):
    write(tmp_path / "lines-all.tar", FILES, "w:xz")
    assert tree(tmp_path) == FOUND


def test_damaged_archives(tmp_path):
    path = write(
        tmp_path / "lines-all.tar.gz", {"lines/a.xml": b"0123456789" * 10_000}, "w:gz"
    )
    whole = path.read_bytes()
    for content in (
        whole[:-30],
        whole[:40],
        b"not an archive",
        b"",
        whole[:30] + b"\xff" * 40 + whole[70:],
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"lines-all.tar.gz: (damaged|truncated)"):
            tree(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(
        DataError,
        match=r"lines: there is no such folder and no lines-all.tar, .*prepare.py set "
        r"--list",
    ):
        tree(tmp_path)
