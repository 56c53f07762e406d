"""Tests of preparing data sets, of their proofs, and of opening them by name."""

import dataclasses
import errno
import functools
import hashlib
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data import ragged, set_folder
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import ColumnSpec, Content, Reader, leave_out
from lnrepro.errors import UserError
from scripts import prepare
from tests.data import small
from tests.data.reading import refused

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
    return small.write(tmp_path / "raw")


def put_reader(monkeypatch, **fields):
    """Put an embedded set called `made` into the table."""
    reader = Reader(title="Made up.", embedded=True, **fields)
    monkeypatch.setattr(small, "MADE", reader, raising=False)
    monkeypatch.setitem(data.TABLE, "made", "tests.data.small:MADE")


@pytest.mark.parametrize("name", sorted(data.TABLE))
def test_every_reader_is_complete(name):
    reader = data.reader_of(name)
    assert (reader.read is None) != (reader.write is None)
    assert reader.version.count(".") == 2
    # A set without one of them is not prepared.
    assert reader.columns
    texts = (reader.title, reader.source, reader.licence, reader.size)
    assert all(text.strip() not in ("", "not stated") for text in texts)
    assert reader.embedded != bool(reader.files)
    has_checksums = all(reader.files.values())
    assert has_checksums or reader.published, "nothing shows that a set is official"


def expected_sha256(columns, facts):
    """The checksum of a set, by its definition. `columns` are by split and name."""
    content = b""
    for split, of_split in sorted(columns.items()):
        content += f"{split}:{len(of_split['value'])};".encode()
        for row in zip(*(of_split[name] for name in sorted(of_split)), strict=True):
            for name, value in zip(sorted(of_split), row, strict=True):
                content += f"{name}:{value.dtype.str}:{value.shape};".encode()
                content += value.tobytes()
    content += json.dumps(facts, ensure_ascii=False, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def test_a_set_holds_what_its_reader_returns(numbers, raw, tmp_path):
    folder = data.prepare("numbers", raw, tmp_path)
    assert folder == tmp_path / "numbers/1.0.0" == data.folder_of("numbers", tmp_path)
    opened = data.open_set("numbers", tmp_path)
    wanted = small.read(RawFolder("numbers", raw, {}))
    assert opened.splits == {"train": 5, "test": 2}
    for split, columns in wanted.splits.items():
        found = opened.columns(split)
        np.testing.assert_array_equal(found["value"], columns["value"], strict=True)
        assert not found["value"].flags.writeable
        assert isinstance(found["digits"], ragged.Ragged)
        for row, digits in zip(found["digits"], columns["digits"], strict=True):
            np.testing.assert_array_equal(row, digits, strict=True)
    assert opened.facts == wanted.facts
    assert opened.sha256 == expected_sha256(wanted.splits, wanted.facts)
    assert opened.fingerprint == f"numbers/1.0.0/{opened.sha256[:16]}"


def test_a_reader_may_write_its_columns_itself(monkeypatch, tmp_path):
    def write(raw, folder):
        (folder / "train").mkdir(parents=True)
        for name, size in (("a", 6), ("b", 2)):
            np.save(folder / "train" / f"{name}.npy", np.arange(size))
        return Content({"train": 6})

    put_reader(monkeypatch, write=write)
    opened = data.open_set("made", tmp_path)
    assert opened.facts == {}
    content = b""
    for file in (opened.folder / f"columns/train/{name}.npy" for name in "ab"):
        content += f"{file.name}:{file.stat().st_size};".encode() + file.read_bytes()
    assert opened.sha256 == hashlib.sha256(content).hexdigest()
    opened.verify()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": np.zeros(2), "b": np.zeros(3)}, "there are {'a': 2, 'b': 3}"),
        ({"a": np.zeros(0)}, "made: the split train needs examples"),
        ({"a": np.array(["x"])}, "a: values of type <U1; columns hold numbers"),
        ({"a": np.zeros(2, np.longdouble)}, "a: values of type float128; .* 64 bits"),
        ({"a": MASKED}, "a: a value is masked; leave out its example, or fill it in"),
        ({"a": [np.ones(2), MASKED]}, "a: a value is masked"),
    ],
)
def test_columns_that_are_none(monkeypatch, tmp_path, columns, message):
    put_reader(monkeypatch, read=lambda raw: Content({"train": columns}))
    with refused(message):
        data.open_set("made", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_columns_are_stored_in_the_byte_order_that_jax_has(monkeypatch, tmp_path):
    swapped = np.arange(3.0).astype(">f4")
    columns = {"a": swapped, "b": [swapped, swapped[:1], np.ma.array([4, 5])]}
    put_reader(monkeypatch, read=lambda raw: Content({"train": columns}))
    found = data.open_set("made", tmp_path).columns("train")
    np.testing.assert_array_equal(found["a"], np.arange(3, dtype="=f4"), strict=True)
    assert found["b"].values.dtype == np.dtype("=f8")
    assert found["b"].values.tolist() == [0, 1, 2, 0, 4, 5]


def test_columns_that_a_reader_writes_are_checked_too(monkeypatch, tmp_path):
    def write(raw, folder):
        (folder / "train").mkdir(parents=True)
        np.save(folder / "train/a.npy", np.arange(3.0).astype(">f4"))
        return Content({"train": 3})

    put_reader(monkeypatch, write=write)
    with refused("made: a: values of type >f4; columns hold .* byte order"):
        data.open_set("made", tmp_path)


def test_unknown_names(numbers, raw, tmp_path):
    message = r"no data set is called 'minst'; did you mean 'mnist'\? there are: .*digi"
    with refused(message):
        data.open_columns("minst", "train")
    with refused(r"no data set is called '\.\./mnist'"):
        data.folder_of("../mnist")
    data.prepare("numbers", raw, tmp_path)
    with refused("has no split 'dev'; it has: train, test"):
        data.open_columns("numbers", "dev", tmp_path)


def test_a_set_that_is_missing_names_the_command(tmp_path):
    with refused(r"mnist is not prepared in .*scripts/prepare.py mnist --raw DIR"):
        data.open_columns("mnist", "train", tmp_path)


def test_preparing_again_changes_nothing(numbers, raw, tmp_path):
    file = data.prepare("numbers", raw, tmp_path) / set_folder.SET_FILE
    whole, before = file.read_bytes(), file.stat().st_mtime_ns
    data.prepare("numbers", "/nowhere", tmp_path)
    assert file.stat().st_mtime_ns == before
    # A folder without its description is no set.
    file.unlink()
    assert not set_folder.open_folder(data.folder_of("numbers", tmp_path))
    data.prepare("numbers", raw, tmp_path)
    assert file.read_bytes() == whole
    assert [path.name for path in (tmp_path / "numbers").iterdir()] == ["1.0.0"]


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


# What happens to the folder of a set, and how the error names it.
DAMAGES = [
    (lambda f: cut(f / "set.json"), "set.json cannot be read"),
    (lambda f: (f / "set.json").write_text("[]"), "set.json cannot be read"),
    (
        lambda f: (f / "columns/train/value.npy").unlink(),
        "train/value.npy has 0 bytes instead of 148",
    ),
    (lambda f: cut(f / "columns/test/digits.npy"), "has 125 bytes instead of 130"),
]


@pytest.mark.parametrize(("damage", "problem"), DAMAGES)
def test_a_damaged_set_names_the_file_and_the_remedy(
    numbers, raw, tmp_path, damage, problem
):
    folder = data.prepare("numbers", raw, tmp_path, own_name="mine")
    damage(folder)
    message = f"{folder}: damaged, .*{problem}; remove it and prepare it again"
    for use in (
        lambda: data.open_set("mine", tmp_path),
        lambda: set_folder.open_folder(data.folder_of("mine", tmp_path)),
        lambda: data.prepare("numbers", raw, tmp_path, own_name="mine"),
    ):
        with refused(message):
            use()


def test_verify_finds_changed_bytes(numbers, raw, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(set_folder, "VERIFIED_BYTES", 0)
    folder = data.prepare("numbers", raw, tmp_path)
    flags = ["numbers", "--verify", f"--data_dir={tmp_path}"]
    prepare.main(flags)
    fingerprint = data.open_set("numbers", tmp_path).fingerprint
    assert f"{fingerprint}: the content of {folder} is" in capsys.readouterr().out
    path = folder / "columns/train/digits.npy"
    path.write_bytes(path.read_bytes().replace(b"1000", b"1001"))
    with pytest.raises(UserError, match="damaged, its content has another checksum"):
        prepare.main(flags)


def test_small_files_and_facts_are_verified_when_a_set_is_opened(
    numbers, raw, tmp_path
):
    folder = data.prepare("numbers", raw, tmp_path)
    path, set_file = folder / "columns/train/digits.npy", folder / "set.json"
    for file, old, new in ((path, b"1000", b"1001"), (set_file, b'"b"', b'"c"')):
        data.open_set("numbers", tmp_path)
        whole = file.read_bytes()
        file.write_bytes(whole.replace(old, new))
        with refused(f"damaged, .*{file.name} has another checksum; remove it and pre"):
            data.open_set("numbers", tmp_path)
        file.write_bytes(whole)
    # A set of an older version has no checksums of files.
    content = json.loads(set_file.read_text())
    del content["digests"]
    set_file.write_text(json.dumps(content))
    data.open_set("numbers", tmp_path)


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


def output(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


def test_a_killed_process_leaves_no_prepared_set(numbers, raw, tmp_path):
    killed = python(
        """
        import os, signal, sys
        from lnrepro import data
        from tests.data import small
        def die(what, done, total):
            os.kill(os.getpid(), signal.SIGKILL)
        options = {"reader": small.READER, "progress": die}
        data.prepare("numbers", sys.argv[1], sys.argv[2], **options)
        """,
        raw,
        tmp_path,
    )
    killed.communicate(timeout=120)
    assert killed.returncode == -9
    assert list(tmp_path.glob("unfinished-*/set/columns/*/*"))
    assert not set_folder.open_folder(data.folder_of("numbers", tmp_path))
    data.prepare("numbers", raw, tmp_path)
    assert len(data.open_columns("numbers", "train", tmp_path)["value"]) == 5


@pytest.mark.slow
def test_processes_that_start_together_share_one_preparation(tmp_path):
    first_use = """
        import sys
        from lnrepro import data
        opened = data.open_set("digits", sys.argv[1])
        print(len(opened.columns("train")["label"]), opened.fingerprint)
        """
    outputs = {
        output(process) for process in [python(first_use, tmp_path) for _ in range(3)]
    }
    assert outputs == {f"1437 {data.open_set('digits', tmp_path).fingerprint}"}
    assert [path.name for path in (tmp_path / "digits").iterdir()] == ["1.0.0"]


def test_nothing_heavy_is_imported_before_it_is_needed(tmp_path):
    data.prepare("story_mr", data_dir=tmp_path)
    stages = """
        import json, sys
        packages = {"jax", "grain", "tensorflow_datasets", "tensorflow", "sklearn"}
        def heavy():
            return sorted(packages & set(sys.modules))
        from lnrepro import data
        from lnrepro.data import batches, plan
        for name in data.TABLE:
            data.reader_of(name)
        columns = data.open_columns("story_mr", "sentences", sys.argv[1])
        seen = [heavy()]
        next(batches.train_batches(columns, plan.Plan(200, 4, 0), pad={"text": 99}))
        seen.append(heavy())
        print(json.dumps(seen))
        """
    seen = json.loads(output(python(stages, tmp_path)))
    assert seen[0] == []
    assert "tensorflow_datasets" not in seen[1]


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


CHECKED = {"train.txt": sha256(small.TRAIN), "test.txt": sha256(small.TEST)}


@pytest.mark.parametrize(
    ("proof", "message"),
    [
        ({"files": CHECKED}, r"test.txt: checksum differs, .*pass --as NAME"),
        ({"published": {"test": 2}}, "the official numbers: test 3 instead of 2; get"),
        ({"published": {"numbers": 7}}, "numbers 8 instead of 7; .* pass --as NAME"),
        ({"sha256": "5a5a"}, "its content has another checksum"),
    ],
)
def test_only_the_official_content_has_the_name_of_the_set(
    numbers, raw, tmp_path, proof, message
):
    numbers(**{"published": {}} | proof)
    other = small.write(tmp_path / "other", test="8 8 8")
    with refused(message):
        data.prepare("numbers", other, tmp_path / "data")
    assert not set_folder.open_folder(data.folder_of("numbers", tmp_path / "data"))
    data.prepare("numbers", other, tmp_path / "data", own_name="mine")
    found = data.open_set("mine", tmp_path / "data")
    assert found.splits["test"] == 3
    if "sha256" in proof:
        numbers(sha256=found.sha256[:16])
    whole = other if "sha256" in proof else raw
    data.prepare("numbers", whole, tmp_path / "data")
    assert set_folder.open_folder(data.folder_of("numbers", tmp_path / "data"))


def test_own_files_get_a_name_of_their_own(numbers, raw, tmp_path):
    data.prepare("numbers", raw, tmp_path, own_name="mine")
    assert not set_folder.open_folder(data.folder_of("numbers", tmp_path))
    assert set_folder.open_folder(data.folder_of("mine", tmp_path))
    official = data.prepare("numbers", raw, tmp_path)
    mine = data.open_set("mine", tmp_path)
    assert mine.sha256 == set_folder.open_folder(official).sha256
    assert mine.fingerprint == f"mine/1.0.0/{mine.sha256[:16]}"
    data.prepare("mine", raw, tmp_path, own_name="mine_too")
    assert data.reader_of("mine_too", tmp_path) is small.READER
    assert mine.format == "numbers"


@pytest.mark.parametrize(
    ("own_name", "message"),
    [
        ("mnist", "'mnist' cannot be the name .* that `prepare.py --list` shows"),
        (
            "../mnist",
            "'../mnist' cannot be the name of a set of own files; choose letters",
        ),
        ("taken", "taken is prepared already; choose another name, or remove"),
    ],
)
def test_names_that_own_files_cannot_have(numbers, raw, tmp_path, own_name, message):
    data.prepare("numbers", raw, tmp_path, own_name="taken")
    with refused(message):
        data.prepare("numbers", raw, tmp_path, own_name=own_name)


def test_few_examples_are_left_out_and_many_are_an_error():
    with pytest.warns(UserWarning, match="f, line 3: 2 of 200 are empty lines, which"):
        leave_out("f", "empty lines", ["line 3", "line 9"], 200)
    with refused("f, line 3: 2 of 199 are empty lines, more th"):
        leave_out("f", "empty lines", ["line 3", "line 9"], 199)
    leave_out("f", "empty lines", [], 0)


OWN = {
    "image": ColumnSpec(0, 255, integer=True),
    "label": ColumnSpec(0, 9, integer=True, ndim=0),
}


def labelled(**of_test):
    """A set of images with a label each; columns of test may be others or None."""
    splits = {}
    for split in ("train", "test"):
        images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
        splits[split] = {"image": images, "label": np.array([9, 0, 3])}
        if "x" in of_test:
            splits[split]["x"] = np.zeros(3)
    splits["test"] |= of_test
    test = {k: v for k, v in splits["test"].items() if v is not None}
    return Content(splits | {"test": test})


@pytest.mark.parametrize(
    ("of_test", "message"),
    [
        ({}, ""),
        ({"label": np.array([0, -1, 0])}, "label of example 1 of test is -1; a whole"),
        ({"label": np.array([0, 9, 10])}, "label of example 2 of test is 10; .*0 to 9"),
        ({"label": np.array([0.0, 0.5, 1])}, "label of test has the type float64; a"),
        ({"label": None}, "the split test has no column 'label', only image"),
        ({"image": np.full((3, 2, 2), 300)}, "image of example 0 .* is 300; .* 255"),
        ({"image": np.zeros((3, 2, 3), int)}, r"of different shapes: .*2, 2.*2, 3"),
        ({"x": np.array([0, 1, np.nan])}, "x of example 2 of test is nan; a number"),
        ({"x": [np.zeros(2), np.ones(0), [np.nan]]}, "x of example 2 of test is nan"),
        ({"z": np.zeros(3)}, "the split train has no column 'z', only image, label"),
    ],
)  # fmt: skip
def test_every_column_is_in_its_range_in_all_splits(
    monkeypatch, tmp_path, of_test, message
):
    reader = Reader(title="Own.", read=lambda raw: labelled(**of_test), columns=OWN)
    for own_name, of_set in ((None, reader), ("mine", dataclasses.replace(reader))):
        call = functools.partial(
            data.prepare, "own", tmp_path, tmp_path, own_name=own_name, reader=of_set
        )
        if message:
            with refused(f"{message}.*correct the files"):
                call()
            assert not list(tmp_path.iterdir())
        else:
            call()


def test_prepare_stopped_by_sigterm_leaves_nothing(raw, tmp_path):
    code = """
        import os, signal, sys
        from lnrepro.data import preparation
        from lnrepro.errors import run_script
        from scripts import prepare
        from tests.data import small
        def publish(written, final):
            print([path.name for path in final.parents[1].iterdir()])
            os.kill(os.getpid(), signal.SIGTERM)
        preparation._publish = publish
        prepare.data.TABLE["numbers"] = "tests.data.small:READER"
        run_script(prepare.main, "preparing")
        """
    flags = ("numbers", "--raw", raw, "--data_dir", tmp_path / "data", "--as", "mine")
    stopped = python(code, *flags)
    out, err = stopped.communicate(timeout=120)
    assert (stopped.returncode, err) == (128 + 15, "")
    assert out.startswith("['unfinished-")
    assert not list((tmp_path / "data").iterdir())
