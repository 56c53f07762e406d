"""Tests of official files, their downloads, and scripts/prepare.py."""

import gzip
import hashlib
import importlib.util
import lzma
import pathlib
import subprocess
import sys

import pytest

from lnrepro import data
from lnrepro.data import old_files as files
from lnrepro.data.download import download
from lnrepro.data.old_files import unpack
from lnrepro.data.raw import RawFile
from lnrepro.errors import DataError, UserError
from tests.data import idx

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "prepare.py"
# Nothing listens on the discard port.
REFUSED = "http://127.0.0.1:9/file.gz"
CONTENT = bytes(range(256)) * 40


def raw_file(*urls, content=CONTENT):
    return RawFile("file", len(content), hashlib.sha256(content).hexdigest(), urls)


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
    assert seen[-1] == (len(packed), len(packed))
    assert download(raw_file(served("a", CONTENT)), tmp_path / "raw").name == "file"


def test_the_next_address_is_tried(served, tmp_path):
    wrong = served("wrong", CONTENT[:-1] + b"x")
    path = download(
        raw_file(REFUSED, wrong, served("b.gz", gzip.compress(CONTENT))),
        tmp_path / "raw",
        timeout=5,
    )
    assert gzip.decompress(path.read_bytes()) == CONTENT


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", CONTENT[:-1] + b"x", "checksum differs"),
        ("a", CONTENT + b"x", "holds more than the 10,240 bytes"),
        ("a", bytes(3 << 20), "sends more than the 10,240 bytes"),
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


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_decompression_bombs_are_refused(tmp_path, monkeypatch, suffix, pack):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(pack(bytes(10**6)))
    assert unpack(path) == bytes(10**6)
    monkeypatch.setattr(files, "ALWAYS", 10**5)
    with pytest.raises(
        DataError,
        match=rf"file{suffix}: holds more than the [0-9]+,[0-9]+ bytes it may",
    ):
        unpack(path)


def test_no_network_and_no_address(tmp_path):
    with pytest.raises(
        DataError, match=f"cannot download file .{REFUSED}: .*refused.*fetch it by hand"
    ):
        download(raw_file(REFUSED), tmp_path, timeout=5)
    with pytest.raises(
        DataError, match=r"cannot download file .no public address is known"
    ):
        download(raw_file(), tmp_path)


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("prepare_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def test_the_script_downloads_prepares_and_lists(
    script, served, tmp_path, monkeypatch, capsys
):
    contents = idx.files()
    files = [
        RawFile(
            name,
            len(content),
            hashlib.sha256(content).hexdigest(),
            (served(f"{name}.gz", gzip.compress(content)),),
        )
        for name, content in contents.items()
    ]
    monkeypatch.setattr(data.builder_class("mnist"), "files", files)
    where = ["--data_dir", str(tmp_path / "data")]
    script(["--list", *where])
    listed = capsys.readouterr().out
    for name in data.TABLE:
        cls = data.builder_class(name)
        assert all(text in listed for text in (name, cls.source, cls.licence, cls.size))
    assert str(tmp_path / "data" / "raw" / "mnist") in listed

    script(["mnist", "--download", *where])
    fingerprint = data.fingerprint("mnist", tmp_path / "data")
    assert (
        f"{fingerprint} is prepared in {tmp_path / 'data' / 'mnist'}"
        in capsys.readouterr().out
    )
    assert sorted(
        p.name for p in (tmp_path / "data" / "raw" / "mnist").iterdir()
    ) == sorted(f"{n}.gz" for n in contents)
    script(["mnist", *where])
    assert "prepared already" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"--raw was not read.*pass --as OWN_NAME"):
        script(["mnist", "--raw", str(tmp_path), *where])
    script(["mnist", "--list", *where])
    assert fingerprint in capsys.readouterr().out


def test_the_script_fails_with_one_line_and_exit_code_2(tmp_path):
    idx.write(tmp_path / "raw", idx.files())
    for args, line in [
        (["mnist", "--as", "mine"], "--as=mine needs --raw"),
        (["minst"], "error: no data set is called 'minst'; did you mean 'mnist'?"),
        (
            ["mnist", "--raw", tmp_path / "none"],
            "no such file, plain or .gz, .xz, .bz2 or .zst; the folder does not exist",
        ),
        (
            ["mnist", "--raw", tmp_path / "raw"],
            "train-images-idx3-ubyte.gz: checksum differs",
        ),
    ]:
        command = [sys.executable, SCRIPT, *args, "--data_dir", tmp_path / "data"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1, done.stderr
        assert line in done.stderr


def test_the_list_says_what_is_not_there_yet(script, tmp_path, capsys):
    where = ["--data_dir", str(tmp_path)]
    script(["--list", "digits", *where])
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "digits  prepares itself at first use"
    rows = dict(line.split(maxsplit=1) for line in lines)
    assert "prepared" not in rows
    assert not pathlib.Path(rows["goes"].removeprefix("to").strip()).exists()
    script(["digits", *where])
    capsys.readouterr()
    script(["--list", "digits", *where])
    rows = dict(
        line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:]
    )
    assert pathlib.Path(rows["prepared"]).exists()
