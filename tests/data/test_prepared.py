"""Tests of preparing data sets and opening them by name."""

import json
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data import prepared_set
from lnrepro.data.builder import Builder
from lnrepro.data.raw import RawFile
from lnrepro.errors import DataError, UserError
from scripts import prepare
from tests.data import idx, unchecked


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder of raw files and a data dir with `mnist` prepared from them."""
    root = tmp_path_factory.mktemp("prepared")
    raw = idx.write(root / "raw", idx.files())
    unchecked.prepare("mnist", raw, root / "data")
    return raw, root / "data"


@pytest.mark.parametrize("name", sorted(data.TABLE))
def test_every_builder_is_complete(name):
    cls = data.builder_class(name)
    assert issubclass(cls, Builder)
    assert cls.name == name
    assert cls.version.count(".") == 2
    for text in (cls.__doc__, cls.source, cls.licence, cls.size):
        assert text.strip()
    assert cls.features(cls)
    assert cls.embedded != bool(cls.files), "a set is embedded or has official files"
    assert len({file.name for file in cls.files}) == len(cls.files)
    for file in cls.files:
        assert isinstance(file, RawFile)
        assert not file.name.startswith("/")
        assert ".." not in file.name.split("/")
        assert file.sha256 is None or len(bytes.fromhex(file.sha256)) == 32
        assert all(url.startswith(("https://", "http://")) for url in file.urls)


def test_unknown_names():
    message = (
        r"no data set is called 'minst'; did you mean 'mnist'\? there are: .*digits"
    )
    with pytest.raises(DataError, match=message):
        data.open_source("minst", "train")
    with pytest.raises(DataError, match=r"no data set is called '\.\./mnist'"):
        data.set_folder("../mnist")


def test_unknown_split(small):
    for open_split in (data.open_source, data.open_columns):
        with pytest.raises(
            DataError, match="mnist has no split 'dev'; it has: test, train, valid"
        ):
            open_split("mnist", "dev", small[1])


def test_the_error_for_a_missing_set_names_the_command(tmp_path):
    message = r"mnist is not prepared: .*python scripts/prepare.py mnist --raw DIR"
    with pytest.raises(DataError, match=message):
        data.fingerprint("mnist", tmp_path)
    with pytest.raises(DataError, match=message):
        data.open_columns("mnist", "train", tmp_path)


def test_preparing_again_changes_nothing(small):
    seal = data.set_folder("mnist", small[1]) / data.SEAL
    before = seal.stat().st_mtime_ns
    data.prepare("mnist", "/nowhere", small[1])
    assert seal.stat().st_mtime_ns == before


def lose_seal(folder):
    (folder / data.SEAL).unlink()


def lose_records(folder):
    next(folder.glob("*-train.array_record*")).unlink()


def cut_records(folder):
    path = next(folder.glob("*-train.array_record*"))
    path.write_bytes(path.read_bytes()[:-1000])


def cut_seal(folder):
    path = folder / data.SEAL
    path.write_text(path.read_text()[:-10])


def odd_seal(folder):
    (folder / data.SEAL).write_text("[]")


def empty_folder(folder):
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize(("name", "can"), [("mnist", True), ("iam_ondb", False)])
def test_a_set_that_is_missing_names_the_download_where_there_is_one(
    name, can, tmp_path
):
    with pytest.raises(DataError, match=f"{name} is not prepared") as error:
        data.open_columns(name, "train", tmp_path)
    assert ("--download" in str(error.value)) == can


DAMAGES = [lose_seal, lose_records, cut_records, cut_seal, odd_seal, empty_folder]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_set_is_not_prepared_and_can_be_prepared_again(damage, tmp_path):
    raw = idx.write(tmp_path / "raw", idx.files())
    folder = unchecked.prepare("mnist", raw, tmp_path)
    whole = data.fingerprint("mnist", tmp_path)
    damage(folder)
    assert not data.prepared("mnist", tmp_path)
    command = "run `python scripts/prepare.py mnist"
    with pytest.raises(
        DataError, match=f"{folder} is half-written or damaged; {command}"
    ):
        data.open_columns("mnist", "train", tmp_path)
    unchecked.prepare("mnist", raw, tmp_path)
    assert data.fingerprint("mnist", tmp_path) == whole
    assert len(data.open_source("mnist", "train", tmp_path)) == 33
    assert [path.name for path in (tmp_path / "mnist").iterdir()] == [folder.name]


def test_preparing_leaves_nothing_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    data.prepare("digits", None, tmp_path / "data")
    assert not list((tmp_path / "tmp").iterdir())


def test_damaged_records_are_a_data_error(tmp_path):
    folder = unchecked.prepare(
        "mnist", idx.write(tmp_path / "raw", idx.files()), tmp_path
    )
    path = next(folder.glob("*-train.array_record*"))
    size = path.stat().st_size
    path.write_bytes(np.random.default_rng(0).bytes(size))
    with pytest.raises(
        DataError, match=r"mnist/.* \(train\): cannot be read .*prepare the set again"
    ) as failure:
        data.open_source("mnist", "train", tmp_path)[0]
    assert "\n" not in str(failure.value)


def flip_bytes(path):
    """Change some bytes in the middle of a file, whose size stays."""
    content = bytearray(path.read_bytes())
    for i in range(len(content) // 2, len(content) // 2 + 64):
        content[i] ^= 255
    path.write_bytes(content)


def test_changed_bytes_are_found_when_small_columns_are_opened(tmp_path):
    raw = idx.write(tmp_path / "raw", idx.files())
    folder = unchecked.prepare("mnist", raw, tmp_path)
    prepare.main(["mnist", "--verify", f"--data_dir={tmp_path}"])
    flip_bytes(folder / "columns/train/image.npy")
    with pytest.raises(DataError, match=r"train/image.npy has changed since .*again"):
        data.open_columns("mnist", "train", tmp_path)
    data.open_columns("mnist", "test", tmp_path)


def test_verify_names_every_changed_file_of_any_size(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(prepared_set, "CHECKED_BYTES", 0)
    raw = idx.write(tmp_path / "raw", idx.files())
    folder = unchecked.prepare("mnist", raw, tmp_path)
    flags = ["mnist", "--verify", f"--data_dir={tmp_path}"]
    prepare.main(flags)
    expected = f"{data.fingerprint('mnist', tmp_path)}: every file in {folder} is"
    assert expected in capsys.readouterr().out
    records = next(folder.glob("*-train.array_record*"))
    for path in (folder / "columns/train/image.npy", records):
        flip_bytes(path)
    # Columns of this size are not read as a whole when they are opened.
    data.open_columns("mnist", "train", tmp_path)
    with pytest.raises(
        UserError, match=rf"columns/train/image.npy, {records.name}: changed since .*"
    ):
        prepare.main(flags)
    (folder / "columns/train/image.npy").unlink()
    with pytest.raises(UserError, match=r"is not prepared in .*, or a file is missing"):
        prepare.main(flags)


def test_verify_needs_checksums(tmp_path):
    raw = idx.write(tmp_path / "raw", idx.files())
    folder = unchecked.prepare("mnist", raw, tmp_path)
    seal = json.loads((folder / data.SEAL).read_text())
    # As an older version wrote it.
    del seal["checksums"]
    (folder / data.SEAL).write_text(json.dumps(seal))
    data.open_columns("mnist", "train", tmp_path)
    with pytest.raises(UserError, match=f"{folder} holds no checksums .*again"):
        prepare.main(["mnist", "--verify", f"--data_dir={tmp_path}"])


def test_the_error_for_an_unwritable_data_dir(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"digits: cannot write to .*LNREPRO_DATA"):
        data.open_columns("digits", "train", tmp_path / "file")


def python(code: str, *args: object) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def output(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


def test_a_killed_process_leaves_no_prepared_set(tmp_path):
    raw = idx.write(tmp_path / "raw", idx.files())
    killed = python(
        """
        import os, signal, sys
        from tests.data import unchecked
        def die(what, done, total):
            if what == "checking train":
                os.kill(os.getpid(), signal.SIGKILL)
        unchecked.prepare("mnist", sys.argv[1], sys.argv[2], progress=die)
        """,
        raw,
        tmp_path,
    )
    killed.communicate(timeout=120)
    assert killed.returncode == -9
    assert list(tmp_path.glob("unfinished-*/*")), (
        "it was killed before it wrote anything"
    )
    assert not data.prepared("mnist", tmp_path)
    unchecked.prepare("mnist", raw, tmp_path)
    assert len(data.open_columns("mnist", "train", tmp_path)["label"]) == 33


@pytest.mark.slow
def test_processes_that_start_together_share_one_preparation(tmp_path):
    first_use = """
        import sys
        from lnrepro import data
        columns = data.open_columns("digits", "train", sys.argv[1])
        print(len(columns["label"]), data.fingerprint("digits", sys.argv[1]))
        """
    outputs = {
        output(process) for process in [python(first_use, tmp_path) for _ in range(3)]
    }
    assert outputs == {f"1437 {data.fingerprint('digits', tmp_path)}"}
    assert [path.name for path in (tmp_path / "digits").iterdir()] == ["1.0.0"]


def test_nothing_heavy_is_imported_before_it_is_needed(small):
    stages = """
        import json, sys
        packages = {"jax", "grain", "tensorflow_datasets", "tensorflow", "sklearn"}
        def heavy():
            return sorted(packages & set(sys.modules))
        from lnrepro import data
        from lnrepro.data import batches
        for name in data.TABLE:
            data.builder_class(name)
        seen = [heavy()]
        columns = data.open_columns("mnist", "train", sys.argv[1])
        data.fingerprint("mnist", sys.argv[1])
        seen.append(heavy())
        data.open_source("mnist", "train", sys.argv[1])[0]
        seen.append(heavy())
        next(batches.train_batches(columns, batches.Plan(33, 4, 0)))
        seen.append(heavy())
        print(json.dumps(seen))
        """
    seen = json.loads(output(python(stages, small[1])))
    assert seen[:3] == [[], [], ["tensorflow_datasets"]]
    assert "tensorflow" not in seen[3]


def test_a_prepared_set_that_names_a_module_is_not_opened(tmp_path):
    folder = unchecked.prepare(
        "mnist", idx.write(tmp_path / "raw", idx.files()), tmp_path
    )
    path = folder / "features.json"
    right = "tensorflow_datasets.core.features.features_dict"
    # The file keeps its size, which is in the seal.
    wrong = "antigravity".ljust(len(right), "_")
    path.write_text(path.read_text().replace(right, wrong))
    message = r"features\.json: names 'antigravity_*\.FeaturesDict', which TFDS"
    with pytest.raises(DataError, match=message):
        data.open_source("mnist", "train", tmp_path)
    assert "antigravity" not in sys.modules


def test_the_records_are_kept_only_where_they_are_asked_for(tmp_path, small):
    """The examples are the same, and so is the fingerprint."""
    folder = unchecked.prepare("mnist", small[0], tmp_path, records=False)
    assert sorted(path.name for path in folder.iterdir()) == ["columns", data.SEAL]
    assert data.fingerprint("mnist", tmp_path) == data.fingerprint("mnist", small[1])
    with pytest.raises(DataError, match=r"columns only.*prepare mnist with --records"):
        data.open_source("mnist", "train", tmp_path)


def test_a_set_is_read_once_in_a_process(small, monkeypatch):
    data.open_columns("mnist", "train", small[1])

    def read(folder):
        raise AssertionError(f"{folder} is read again")

    monkeypatch.setattr(prepared_set.seal, "read", read)
    first = data.open_columns("mnist", "train", small[1])
    first.clear()
    columns = data.open_columns("mnist", "train", small[1])
    assert set(columns) == {"image", "label"}
    assert data.fingerprint("mnist", small[1]).startswith("mnist/1.0.0/")


def test_own_files_get_a_name_of_their_own(tmp_path):
    raw = idx.write(tmp_path / "raw", idx.files())
    root = tmp_path / "data"
    data.prepare("mnist", raw, root, own_name="my_digits")
    assert not data.prepared("mnist", root)
    assert data.prepared("my_digits", root)
    assert data.fingerprint("my_digits", root).startswith("my_digits/1.0.0/")
    assert data.builder_class("my_digits", root) is data.builder_class("mnist")
    assert len(data.open_columns("my_digits", "train", root)["label"]) == 33


@pytest.mark.parametrize(
    ("own_name", "message"),
    [
        ("mnist", "'mnist' is an official set; choose another name"),
        ("../mnist", "'../mnist' cannot be the name of a set; use letters"),
        ("taken", "taken is prepared already; choose another name, or remove"),
    ],
)
def test_names_that_own_files_cannot_have(tmp_path, own_name, message):
    raw = idx.write(tmp_path / "raw", idx.files())
    data.prepare("mnist", raw, tmp_path / "data", own_name="taken")
    with pytest.raises(DataError, match=message):
        data.prepare("mnist", raw, tmp_path / "data", own_name=own_name)


def test_the_newest_version_is_that_of_the_largest_number(tmp_path):
    folder = unchecked.prepare(
        "mnist", idx.write(tmp_path / "raw", idx.files()), tmp_path
    )
    for version in ("1.9.0", "1.10.0"):
        shutil.copytree(folder, folder.parent / version)
    assert prepared_set.newest(folder.parent).folder.name == "1.10.0"
