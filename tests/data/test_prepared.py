"""Tests of preparing data sets, of their proofs, and of opening them by name."""

import dataclasses
import errno
import hashlib
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data import set_folder
from lnrepro.data.reader import ColumnSpec, Content, Reader
from scripts import prepare
from tests.data import small
from tests.data.reading import refused, write
from tests.runs import ROOT

PAGE = (ROOT / "docs/data.md").read_text(encoding="utf-8")
MASKED = np.ma.array([1.0, 2.0], mask=[False, True])


@pytest.fixture
def numbers(monkeypatch):
    """A function (fields) that puts the small set with these fields into the table."""

    def put(**fields):
        reader = dataclasses.replace(small.READER, **fields)
        monkeypatch.setattr(small, "READER", reader)

    monkeypatch.setitem(data.TABLE, "numbers", "tests.data.small:READER")
    put(published={"train": 5, "numbers": 7})
    return put


@pytest.fixture
def raw(tmp_path):
    return write(tmp_path / "raw", small.FILES)


def open_made(root, columns=None, **fields):
    """Prepare and open an embedded set with these columns of training."""
    if columns is not None:
        fields["read"] = lambda raw: Content({"train": columns})
    reader = Reader(title="Made up.", embedded=True, **fields)
    data.prepare("made", data_dir=root, reader=reader)
    return data.open_set("made", root)


@pytest.mark.parametrize("name", data.TABLE)
def test_every_reader_is_complete(name):
    reader = data.reader_of(name)
    assert (reader.read is None) != (reader.write is None)
    assert reader.embedded != bool(reader.files)
    assert reader.columns
    for text in (reader.title, reader.source, reader.licence, reader.size):
        assert text.strip() not in ("", "not stated")
    has_checksums = all(reader.files.values())
    assert has_checksums or reader.published, "nothing shows that a set is official"
    for number in reader.published.values():
        assert f"{number:,}" in PAGE


def write_swapped(raw, folder):
    """Write columns of which one has another byte order."""
    (folder / "train").mkdir(parents=True)
    np.save(folder / "train/b.npy", np.arange(2))
    np.save(folder / "train/a.npy", np.arange(3.0).astype(">f4"))
    return Content({"train": 3})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": np.zeros(2), "b": np.zeros(3)}, "there are {'a': 2, 'b': 3}"),
        ({"a": np.zeros(0)}, "made: the split train needs examples"),
        ({"a": np.array(["x"])}, "a: values of type <U1; columns hold numbers"),
        ({"a": np.zeros(2, np.longdouble)}, "a: values of type float128; .* 64 bits"),
        ({"a": MASKED}, "a: a value is masked; leave out its example, or fill it in"),
        ({"a": [np.ones(2), MASKED]}, "a: a value is masked"),
        (None, "made: a: values of type >f4; columns hold .* byte order"),
    ],
)
def test_columns_that_are_none(tmp_path, columns, message):
    with refused(message):
        open_made(tmp_path, columns, write=write_swapped if columns is None else None)
    assert list(tmp_path.iterdir()) == []


def test_columns_are_stored_in_the_byte_order_that_jax_has(tmp_path):
    swapped = np.arange(3.0).astype(">f4")
    columns = {"a": swapped, "b": [swapped, swapped[:1], np.ma.array([4, 5])]}
    found = open_made(tmp_path, columns).columns("train")
    np.testing.assert_array_equal(found["a"], np.arange(3, dtype="=f4"), strict=True)
    values = np.array([0, 1, 2, 0, 4, 5], "=f8")
    np.testing.assert_array_equal(found["b"].values, values, strict=True)


def test_unknown_names(numbers, raw, tmp_path):
    with refused("'minst'; did you mean 'mnist'\\? there are: .*digi"):
        data.open_columns("minst", "train")
    with refused(r"no data set is called '\.\./mnist'"):
        data.folder_of("../mnist")
    with refused(
        "gutenberg is not prepared; run .*prepare.py bookcorpus --raw DIR --as"
    ):
        data.open_set("gutenberg", tmp_path)
    with refused(r"mnist is not prepared in .*scripts/prepare.py mnist --raw DIR"):
        data.open_columns("mnist", "train", tmp_path)
    data.prepare("numbers", raw, tmp_path)
    with refused("has no split 'dev'; it has: train, test"):
        data.open_columns("numbers", "dev", tmp_path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def change(path, old, new):
    path.write_bytes(path.read_bytes().replace(old, new))


TRAIN = "columns/train/{}.npy"
# What happens to the folder of a set, and how the error names it.
DAMAGES = [
    (lambda f: cut(f / "set.json"), "set.json cannot be read"),
    (lambda f: (f / "set.json").write_text("[]"), "set.json cannot be read"),
    (
        lambda f: (f / TRAIN.format("value")).unlink(),
        "train/value.npy has 0 bytes instead of 148",
    ),
    (lambda f: cut(f / "columns/test/digits.npy"), "has 125 bytes instead of 130"),
    (lambda f: change(f / TRAIN.format("digits"), b"00", b"01"), "digits.npy has ano"),
    (lambda f: change(f / "set.json", b'"b"', b'"c"'), "set.json has another checksum"),
]


@pytest.mark.parametrize(("damage", "problem"), DAMAGES)
def test_a_damaged_set_names_the_file_and_the_remedy(
    numbers, raw, tmp_path, damage, problem
):
    folder = data.prepare("numbers", raw, tmp_path, own_name="mine")
    data.open_set("mine", tmp_path)
    damage(folder)
    with refused(f"{folder}: damaged, .*{problem}.*; remove it and prepare it again"):
        data.open_set("mine", tmp_path)


def test_verify_finds_changed_bytes_of_large_files(numbers, raw, tmp_path, monkeypatch):
    monkeypatch.setattr(set_folder, "VERIFIED_BYTES", 0)
    folder = data.prepare("numbers", raw, tmp_path)
    # A set of an older version has no checksums of files at all.
    content = json.loads((folder / "set.json").read_text())
    del content["digests"], content["files"]
    (folder / "set.json").write_text(json.dumps(content))
    flags = ["numbers", "--verify", f"--data_dir={tmp_path}"]
    prepare.main(flags)
    change(folder / TRAIN.format("digits"), b"1000", b"1001")
    data.open_set("numbers", tmp_path)
    with refused("damaged, its content has another checksum"):
        prepare.main(flags)


def test_the_error_for_a_data_dir_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    with refused(r"digits: cannot write to .*LNREPRO_DATA"):
        data.open_columns("digits", "train", tmp_path / "file")

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "save", full)
    with refused(r"digits: cannot write to .*No space left on"):
        data.open_columns("digits", "train", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def python(code: str, *args: object) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
def test_a_stopped_process_leaves_no_prepared_set(numbers, raw, tmp_path, signal):
    code = """
        import os, signal, sys
        from lnrepro.data.set_folder import SetFolder
        from lnrepro.errors import run_script
        from scripts import prepare
        from tests.data import small
        number = getattr(signal, sys.argv.pop())
        def seal(self):
            os.kill(os.getpid(), number)
        SetFolder.seal = seal
        prepare.data.TABLE["numbers"] = "tests.data.small:READER"
        run_script(prepare.main, "preparing")
        """
    root = tmp_path / "data"
    flags = ("numbers", "--raw", raw, "--data_dir", root, "--as", "mine")
    stopped = python(code, *flags, signal)
    out, err = stopped.communicate(timeout=120)
    code = -9 if signal == "SIGKILL" else 128 + 15
    assert (stopped.returncode, out, err) == (code, "", "")
    left = list(root.glob("unfinished-*/set/columns/*/*"))
    assert bool(left) == (signal == "SIGKILL")
    data.prepare("numbers", raw, root, own_name="mine")
    assert len(data.open_columns("mine", "train", root)["value"]) == 5


def test_nothing_heavy_is_imported_and_an_open_stream_keeps_no_process_alive(tmp_path):
    open_made(tmp_path, {"x": np.zeros(100_000)})
    code = """
        import sys
        from lnrepro import data
        from lnrepro.data import batches, plan
        for name in data.TABLE:
            data.reader_of(name)
        columns = data.open_columns("made", "train", sys.argv[1])
        heavy = {"jax", "grain", "tensorflow_datasets", "tensorflow", "sklearn"}
        print(heavy & set(sys.modules))
        stream = batches.train_batches(columns, plan.Plan(100_000, 128, 0))
        next(stream)
        print("tensorflow_datasets" in sys.modules)
        """
    done = python(code, tmp_path)
    assert done.communicate(timeout=60) == ("set()\nFalse\n", "")
    assert done.returncode == 0


CHECKED = {
    name: hashlib.sha256(text.encode()).hexdigest()
    for name, text in small.FILES.items()
}


@pytest.mark.parametrize(
    ("proof", "message"),
    [
        ({"files": CHECKED}, r"test.txt: checksum differs, .*pass --as NAME"),
        ({"published": {"test": 2}}, "the official numbers: test 3 instead of 2; get"),
        ({"published": {"numbers": 7}}, "numbers 8 instead of 7; .* pass --as NAME"),
        ({"sha256": "6e7164f1b0c60613"}, "its content has another checksum"),
    ],
)
def test_only_the_official_content_has_the_name_of_the_set(
    numbers, raw, tmp_path, proof, message
):
    numbers(**{"published": {}} | proof)
    other = write(tmp_path / "other", small.FILES | {"test.txt": "8 8 8"})
    with refused(message):
        data.prepare("numbers", other, tmp_path / "data")
    assert not list(tmp_path.glob("data/*"))
    data.prepare("numbers", other, tmp_path / "data", own_name="mine")
    assert data.open_set("mine", tmp_path / "data").splits["test"] == 3
    data.prepare("numbers", raw, tmp_path / "data")
    assert data.open_set("numbers", tmp_path / "data").splits["test"] == 2


def test_own_files_get_a_name_of_their_own(numbers, raw, tmp_path):
    data.prepare("numbers", raw, tmp_path, own_name="mine")
    assert not set_folder.open_folder(data.folder_of("numbers", tmp_path))
    data.prepare("numbers", raw, tmp_path)
    # A prepared set never changes.
    data.prepare("numbers", "/nowhere", tmp_path)
    mine = data.open_set("mine", tmp_path)
    assert mine.sha256 == data.open_set("numbers", tmp_path).sha256
    assert mine.fingerprint == f"mine/1.0.0/{mine.sha256[:16]}"
    assert data.reader_of("mine", tmp_path) is small.READER
    for name, message in (
        ("mnist", "'mnist' cannot be the name .* that `prepare.py --list` shows"),
        ("../mnist", "'../mnist' cannot be the name of a set of own files; choose"),
        ("mine", "mine is prepared already; choose another name, or remove"),
    ):
        with refused(message):
            data.prepare("numbers", raw, tmp_path, own_name=name)


def test_of_two_preparations_at_once_one_stays(tmp_path):
    def read(raw):
        # Another process is faster.
        open_made(tmp_path, {"x": np.arange(2)})
        return Content({"train": {"x": np.arange(3)}})

    assert open_made(tmp_path, read=read).splits == {"train": 2}


OWN = {
    "image": ColumnSpec(0, 255, integer=True),
    "label": ColumnSpec(0, 9, integer=True, ndim=0, ragged=False),
}


def labelled(**of_test):
    """A set of images with a label each; columns of test may be others or None."""
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    train = {"image": images, "label": np.array([9, 0, 3]), "x": np.zeros(3)}
    test = {k: v for k, v in {**train, **of_test}.items() if v is not None}
    return {"train": train, "test": test}


@pytest.mark.parametrize(
    ("of_test", "message"),
    [
        ({"label": np.array([0, -1, 0])}, "label of example 1 of test is -1; a whole"),
        ({"label": np.array([0, 9, 10])}, "label of example 2 of test is 10; .*0 to 9"),
        ({"label": np.array([0.0, 0.5, 1])}, "label of test has the type float64; a"),
        (
            {"label": np.zeros((3, 1), int)},
            r"label of test has the shape \(3, 1\); exam",
        ),
        ({"label": None}, "the split test has no column 'label', only image, x"),
        ({"image": np.zeros((3, 2, 3), int)}, r"of different shapes: .*2, 2.*2, 3"),
        ({"x": np.array([0, 1, np.nan])}, "x of example 2 of test is nan; a number"),
        ({"x": [np.zeros(2), np.ones(0), [np.nan]]}, "x of example 2 of test is nan"),
    ],
)
def test_every_column_is_in_its_range_in_all_splits(tmp_path, of_test, message):
    with refused(f"{message}.*correct the files"):
        small.prepare_own(tmp_path, labelled(**of_test), columns=OWN)
    assert not list(tmp_path.iterdir())
    small.prepare_own(tmp_path, labelled(), columns=OWN)
