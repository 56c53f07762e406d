"""Parsers of IAM-OnDB, and how forms, lists, texts and strokes come together."""

import numpy as np
import pytest

from lnrepro.data.readers import iam_ondb as iam
from lnrepro.data.readers.iam_ondb import IAM_ONDB
from lnrepro.data.text import as_texts
from tests.data.reading import read, refused, write

FORMS = {
    "trainset": "a01-000u",
    "testset_v": "b01-000",
    "testset_t": "c01-000x",
    "testset_f": "d01-000z",
}
SIZES = {"a01-000u": 3, "b01-000": 2, "c01-000x": 1, "d01-000z": 2}


def strokes(seed=0, count=3):
    rng = np.random.RandomState(seed)
    return [rng.randint(0, 5000, (rng.randint(1, 6), 2)) for _ in range(count)]


def xml(strokes, head='<?xml version="1.0" encoding="ISO-8859-1"?>\n'):
    body = ""
    for stroke in strokes:
        points = "".join(f'<Point x="{x}" y="{y}" time="1"/>\n' for x, y in stroke)
        body += f'<Stroke colour="black">\n{points}</Stroke>\n'
    return f"{head}<Session>\n<StrokeSet>\n{body}</StrokeSet>\n</Session>\n".encode()


def ascii_file(lines):
    return "OCR:\n\nsomething else\n\nCSR:\n\n" + "\n".join(lines) + "\n\n"


def form(path, lines, numbers=None):
    """The files of a form; the strokes of line k are `strokes(k)`."""
    files = {f"ascii/{path}.txt": ascii_file(lines)}
    for number in numbers or range(1, len(lines) + 1):
        files[f"lineStrokes/{path}-{number:02}.xml"] = xml(strokes(number))
    return files


def official():
    """The files of a tiny IAM-OnDB."""
    files = {f"{name}.txt": f" {form}\n" for name, form in FORMS.items()}
    for name, count in SIZES.items():
        lines = [f"Line {i} of-{name}" for i in range(count)]
        files |= form(f"{name[:3]}/{name[:7]}/{name}", lines)
    return files


def read_lines(folder, is_official=False):
    """The text of each line by its id, for each split. Counts the points."""
    splits = {}
    for split, columns in read(IAM_ONDB, folder, is_official).splits.items():
        ids = as_texts(columns["id"])
        splits[split] = dict(zip(ids, as_texts(columns["transcription"]), strict=True))
        for line, line_id in zip(columns["strokes"], ids, strict=True):
            assert len(line) == sum(map(len, strokes(int(line_id[-2:])))) - 1
    return splits


@pytest.mark.parametrize(
    ("content", "count", "lines"),
    [
        ("OCR:\nx\n\nCSR:\n\nankle %%%%% pinned.\n\n", 2, ["ankle", "pinned."]),
        ("CSR:\n\nthe first\r\nthe CSR: one\n", 3, ["the first", "the CSR: one"]),
        ("CSR:\nL\u00e9ne\nit\u2019s late", 2, ["L\u00e9ne", "it's late"]),
        ("CSR:\n50% off\n100%% of it", 2, ["50% off", "100%% of it"]),
    ],
)
def test_the_corrected_lines_are_taken(content, count, lines):
    assert iam.transcription(content.encode("utf-8-sig"), "f", count) == lines


def test_official_lists_give_the_splits(tmp_path):
    write(tmp_path, official() | form("b02", ["x"]))
    lines = read_lines(tmp_path, True)
    train = "a01-000u-01 a01-000u-02 a01-000u-03 c01-000x-01 d01-000z-01 d01-000z-02"
    assert list(lines["train"]) == train.split()
    assert list(lines["valid"]) == ["b01-000-01", "b01-000-02"]
    content = read(IAM_ONDB, tmp_path, official=True)
    assert content.splits["train"]["list"].tolist() == [0, 0, 0, 2, 3, 3]
    assert list(content.facts["lines"].values()) == [3, 2, 1, 2]
    assert content.counts == {"forms": 4}
    # Of own files, b01-000 is in no list now.
    write(tmp_path, {"testset_v.txt": "b02"})
    found = read_lines(tmp_path)
    assert list(found["valid"]) == ["b02-01"]
    assert len(found["train"]) == 6
    # Without a list of training forms, all that are in no list are.
    (tmp_path / "trainset.txt").unlink()
    assert len(read_lines(tmp_path)["train"]) == 8


def test_own_forms_are_called_by_their_paths_and_need_no_lists(tmp_path):
    names = [f"{who}/my page{i}" for who in ("alice", "bob") for i in range(6)]
    for name in names:
        write(tmp_path, form(name, [f"by {name}"]))
    found = read_lines(tmp_path)
    wanted = {f"{name}-01": f"by {name}" for name in names}
    assert found["train"] | found["valid"] == wanted
    assert list(found["valid"]) == [f"{names[9]}-01"]
    write(tmp_path / "one", form("a", ["x"]))
    assert read_lines(tmp_path / "one") == {"train": {"a-01": "x"}, "valid": {}}
    # A list has paths, or names that no two forms have.
    write(
        tmp_path, form("carol/p1", ["x"]) | form("bob/p1", ["x"]) | form("d/p2", ["x"])
    )
    write(tmp_path, {"testset_v.txt": "bob/p1\np2\n"})
    assert list(read_lines(tmp_path)["valid"]) == ["bob/p1-01", "d/p2-01"]
    write(tmp_path, {"testset_v.txt": "p1\n"})
    with refused("testset_v.txt: 2 forms .* are called 'p1'.* write the path"):
        read(IAM_ONDB, tmp_path)


def test_decimals_of_one_form_make_all_strokes_float32(tmp_path):
    decimals = xml([[("0.5", "-1.25"), (3, "1e1")], [(4, 5)], [(4, 6), (5, 6)]])
    write(tmp_path, form("a", ["x"]) | form("b", ["x"]))
    write(tmp_path, {"lineStrokes/b-01.xml": decimals})
    splits = read(IAM_ONDB, tmp_path).splits
    wanted = np.array([[2.5, 11.25, 1], [1, -5, 1], [0, 1, 0], [1, 0, 1]], np.float32)
    np.testing.assert_array_equal(splits["valid"]["strokes"][0], wanted, strict=True)
    assert splits["train"]["strokes"][0].dtype == np.float32
