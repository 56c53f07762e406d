"""Parsers of IAM-OnDB, and how forms, lists, texts and strokes come together."""

import unicodedata

import numpy as np
import pytest

from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.readers import handwriting
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
    """The text of each line by its id, for each split. Compares the strokes."""
    splits = {}
    for split, columns in read(IAM_ONDB, folder, is_official).splits.items():
        ids = as_texts(columns["id"])
        for line, line_id in zip(columns["strokes"], ids, strict=True):
            wanted = iam.offsets(iam.points(xml(strokes(int(line_id[-2:]))), "f"))
            np.testing.assert_array_equal(line, wanted, strict=True)
        splits[split] = dict(zip(ids, as_texts(columns["transcription"]), strict=True))
    return splits


# -- parsers


def test_points_and_offsets_are_the_files_numbers():
    wanted = strokes(3, 4)
    line = iam.points(xml(wanted), "f")
    assert line.dtype == np.int32
    np.testing.assert_array_equal(line[:, :2], np.concatenate(wanted))
    ends = np.flatnonzero(line[:, 2]) + 1
    np.testing.assert_array_equal(ends, np.cumsum([len(s) for s in wanted]))
    offsets = iam.offsets(line)
    back = line[0, :2] + np.cumsum(offsets[:, :2], axis=0)
    np.testing.assert_array_equal(back, line[1:, :2])
    np.testing.assert_array_equal(offsets[:, 2], line[1:, 2])
    decimals = iam.points(xml([[("0.5", "-1.25"), (3, "1e1")]]), "f")
    np.testing.assert_array_equal(decimals, [[0.5, -1.25, 0], [3, 10, 1]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (xml(strokes())[:-20], r"f: .* line \d+, column"),
        (xml([]), "f: strokes of .. points; a line needs"),
        (xml([[(1, 2)]]), "f: strokes of .1. points; a line needs"),
        (xml([[(1, 2)], [], [(3, 4)]]), "f: strokes of .1, 0, 1. points"),
        (xml([[(1, 2), (3, 4)]]).replace(b'y="2"', b""), "f: .*KeyError.'y'"),
        (xml([[(1, 2), (10**9, 4)]]), "f, point 2: .1000000000.0, 4.0. are not two"),
        (
            xml([[(1, 2), (3, "nan")]]),
            "f, point 2: .3.0, nan. are not two numbers below",
        ),
    ],
)
def test_wrong_strokes_are_named(content, message):
    with refused(message):
        iam.points(content, "f")


@pytest.mark.parametrize(
    ("content", "count", "lines"),
    [
        ("OCR:\nx\n\nCSR:\n\nankle %%%%% pinned.\n\n", 2, ["ankle", "pinned."]),
        ("CSR:\n\nthe first\r\nthe CSR: one\n", 3, ["the first", "the CSR: one"]),
        ("CSR:\nL\u00e9ne\nit\u2019s late", 2, ["L\u00e9ne", "it's late"]),
        ("CSR:\nankle 5% bone %%%% pinned.", 2, ["ankle 5% bone", "pinned."]),
        ("CSR:\n50% off\n100%% of it", 2, ["50% off", "100%% of it"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252"])
def test_the_corrected_lines_are_taken(content, count, lines, encoding):
    assert iam.transcription(content.encode(encoding), "f", count) == lines


def test_a_text_without_corrected_lines_is_named():
    with refused("f: no line says 'CSR:'"):
        iam.transcription(b"OCR:\n\nabc", "f", 1)


def test_57_symbols_and_what_is_none_of_them():
    assert len(handwriting.SYMBOLS) == len(set(handwriting.SYMBOLS)) == 57
    tokens = handwriting.encode("It's 7, \N{SNOWMAN}.")
    assert "".join(handwriting.SYMBOLS[t] if t else "?" for t in tokens) == "It's ?, ?."


# -- sets


def test_official_lists_give_the_splits_and_facts(tmp_path):
    write(tmp_path, official())
    assert list(read_lines(tmp_path, True)["train"]) == [
        *("a01-000u-01", "a01-000u-02", "a01-000u-03"),
        *("c01-000x-01", "d01-000z-01", "d01-000z-02"),
    ]
    content = read(IAM_ONDB, tmp_path, official=True)
    assert as_texts(content.splits["valid"]["id"]) == ["b01-000-01", "b01-000-02"]
    train, facts = content.splits["train"], content.facts
    assert [iam.LISTS[k] for k in train["list"][2:5]] == list(FORMS)[:1] + list(FORMS)[
        2:
    ]
    np.testing.assert_array_equal(
        train["text"][1], handwriting.encode("Line 1 of-a01-000u")
    )
    steps = np.concatenate(train["strokes"])[:, :2]
    np.testing.assert_allclose(facts["mean"], steps.mean(0), rtol=1e-12)
    np.testing.assert_allclose(facts["std"], steps.std(0), rtol=1e-12)
    assert facts["lines"] == {name: SIZES[form] for name, form in FORMS.items()}
    assert facts["skipped"] == []
    assert facts["other"]["-"] == 2 * 8
    assert content.counts == {"forms": 4}


@pytest.mark.parametrize(
    ("lines", "numbers"),
    [
        (["a", "b", "c"], (1, 2)),
        (["a", "b"], (1, 3)),
        (["50% off"], (1, 2)),
    ],
)
def test_texts_are_never_shifted_against_strokes(tmp_path, lines, numbers):
    for i in range(3):
        write(tmp_path, form(f"good{i}", ["one", "two"]))
    write(tmp_path, form("odd", lines, numbers))
    message = rf"left out: odd \({len(lines)} and {len(numbers)}\)"
    with pytest.warns(UserWarning, match=message):
        content = read(IAM_ONDB, tmp_path)
    assert content.facts["skipped"] == ["odd"]
    ids = as_texts(content.splits["train"]["id"]) + as_texts(
        content.splits["valid"]["id"]
    )
    assert sorted(ids) == [f"good{i}-0{k}" for i in range(3) for k in (1, 2)]


def test_own_forms_are_called_by_their_paths(tmp_path):
    names = ("alice/page1", "bob/page1", "carol/page1", "alice/page2")
    for name in names:
        write(tmp_path, form(name, [f"by {name[:3]}"]))
    found = read_lines(tmp_path)
    wanted = {f"{name}-01": f"by {name[:3]}" for name in names}
    assert found["train"] | found["valid"] == wanted
    # A list has paths, or names that no two forms have.
    write(tmp_path, {"testset_v.txt": "bob/page1\npage2\n"})
    assert sorted(read_lines(tmp_path)["valid"]) == ["alice/page2-01", "bob/page1-01"]
    write(tmp_path, {"testset_v.txt": "page1\n"})
    with refused("testset_v.txt: 3 forms .* are called 'page1'.* write the path"):
        read(IAM_ONDB, tmp_path)


def test_own_forms_need_no_lists(tmp_path):
    names = sorted(f"my form.{i}" for i in range(12))
    for name in names:
        write(tmp_path, form(name, ["x"]))
    found = read_lines(tmp_path)
    assert list(found["valid"]) == [f"{names[9]}-01"]
    assert sorted([*found["train"], names[9] + "-01"]) == [f"{n}-01" for n in names]
    # An empty list is like none.
    write(tmp_path, {"testset_v.txt": ""})
    assert read_lines(tmp_path) == found


def test_decimals_of_one_form_make_all_strokes_float32(tmp_path):
    for name in ("a", "b", "c"):
        write(tmp_path, form(name, ["x"]))
    decimals = xml([[(0.5, 1), (2.25, 3)]])
    write(tmp_path, {"lineStrokes/a-01.xml": decimals})
    strokes = read(IAM_ONDB, tmp_path).splits["train"]["strokes"]
    assert {line.dtype for line in strokes} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(strokes[0], [[1.75, 2, 1]])


def test_own_lists_are_followed_where_they_are(tmp_path):
    write(tmp_path, official() | form("Ada_7", ["x"]))
    write(tmp_path, {"testset_v.txt": "Ada_7"})
    found = read_lines(tmp_path)
    assert list(found["valid"]) == ["Ada_7-01"]
    # b01-000 is in no list.
    assert not any("b01-000" in line for line in found["train"])
    (tmp_path / "trainset.txt").unlink()
    assert any("b01-000" in line for line in read_lines(tmp_path)["train"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainset.txt": "z99-999"}, "trainset.txt: 0 forms .* are called 'z99-999'"),
        ({"trainset.txt": None}, "trainset.txt: there is no such file"),
        ({"ascii/b01/b01-000/b01-000.txt": None}, "b01-000.txt: is missing"),
        (
            {"lineStrokes/a01/a01-000/a01-000u-02.xml": "<a>"},
            "lineStrokes/a01/a01-000/a01-000u-02.xml: .*line 1",
        ),
        (
            form("copy/a01-000u", ["x"]),
            "trainset.txt: 2 forms with strokes are called 'a01-000u'",
        ),
    ],
)
def test_wrong_folders_are_named(tmp_path, changes, message):
    files = {**official(), **changes}
    write(tmp_path, {name: file for name, file in files.items() if file is not None})
    with refused(message):
        read(IAM_ONDB, tmp_path, official=True)


def test_a_text_in_another_alphabet_is_named(tmp_path):
    for i in range(3):
        write(tmp_path, form(f"form{i}", ["\N{CYRILLIC SMALL LETTER DE}\u0430", "a 7"]))
    with pytest.warns(UserWarning, match=r"9 of 15 characters .*\\u0430.* as <other>"):
        read(IAM_ONDB, tmp_path)


def test_names_of_forms_may_be_composed_differently(tmp_path):
    """macOS stores accents as characters of their own."""
    forms = [f"jos\N{LATIN SMALL LETTER E WITH ACUTE}{i}" for i in range(3)]
    for name in forms:
        for path, content in form(name, ["one"]).items():
            is_text = path.startswith("ascii")
            kind = "NFD" if is_text else "NFC"
            write(tmp_path, {unicodedata.normalize(kind, path): content})
    listed = unicodedata.normalize("NFD", forms[0])
    write(tmp_path, {"testset_v.txt": listed})
    assert list(read_lines(tmp_path)["valid"]) == [f"{forms[0]}-01"]


def test_forms_and_files_that_are_not_used_are_counted(tmp_path):
    write(tmp_path, official() | form("b02", ["x"]) | {"ascii/b03.txt": "CSR:"})
    write(tmp_path, {"lineStrokes/line.xml": xml(strokes())})
    raw = RawFolder("iam_ondb", tmp_path, {}, official=False)
    IAM_ONDB.read(raw)
    summary = raw.summary()
    assert summary["files read"] == 17
    left_out = "ascii/b02.txt, ascii/b03.txt, lineStrokes/line.xml"
    assert summary["such as"] == left_out
