"""Parsers of IAM-OnDB, and the generated strokes."""

import io
import tarfile

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.generated import pen_strokes
from lnrepro.data.official import iam_ondb as iam
from lnrepro.errors import DataError

LAUGHS = (
    '<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">'
    '<!ENTITY laughs "&c;&c;&c;&c;&c;&c;&c;">]>'
)
FORMS = {
    "trainset": "a01-000u",
    "testset_v": "b01-000",
    "testset_t": "c01-000x",
    "testset_f": "d01-000z",
}
LINES = {"a01-000u": 3, "b01-000": 2, "c01-000x": 1, "d01-000z": 2}


def strokes(seed=0, count=3):
    rng = np.random.RandomState(seed)
    return [rng.randint(0, 5000, (rng.randint(1, 6), 2)) for _ in range(count)]


def xml(strokes, head='<?xml version="1.0" encoding="ISO-8859-1"?>\n'):
    body = ""
    for stroke in strokes:
        body += '<Stroke colour="black" start_time="1.0" end_time="2.0">\n'
        body += (
            "".join(f'<Point x="{x}" y="{y}" time="1.0"/>\n' for x, y in stroke)
            + "</Stroke>\n"
        )
    text = (
        f"{head}<WhiteboardCaptureSession>\n<StrokeSet>\n{body}</StrokeSet>\n"
        "</WhiteboardCaptureSession>\n"
    )
    return text.encode("latin-1")


def ascii_file(lines):
    return ("OCR:\n\nsomething Else\n\nCSR:\n\n" + "\n".join(lines) + "\n\n").encode(
        "latin-1"
    )


def official(folder, lines=LINES, lists=FORMS):
    """The files of a tiny IAM-OnDB below `folder`."""
    for k, (form, count) in enumerate(lines.items()):
        for name in ("ascii", "lineStrokes"):
            (folder / name / form[:3] / form[:7]).mkdir(parents=True, exist_ok=True)
        texts = [f"Line {i} of-{form}" for i in range(count)]
        (folder / "ascii" / form[:3] / form[:7] / f"{form}.txt").write_bytes(
            ascii_file(texts)
        )
        for i in range(count):
            path = (
                folder / "lineStrokes" / form[:3] / form[:7] / f"{form}-{i + 1:02}.xml"
            )
            path.write_bytes(xml(strokes(10 * k + i)))
    for name, form in lists.items():
        (folder / f"{name}.txt").write_text(f" {form}\n")
    return folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    raw, target = (
        official(tmp_path_factory.mktemp("raw")),
        tmp_path_factory.mktemp("data"),
    )
    data.prepare("iam_ondb", raw, target)
    return raw, target


def test_points_and_offsets_are_the_files_numbers():
    wanted = strokes(3, 4)
    line = iam.points(xml(wanted), "f")
    np.testing.assert_array_equal(line[:, :2], np.concatenate(wanted))
    np.testing.assert_array_equal(
        np.flatnonzero(line[:, 2]) + 1, np.cumsum([len(s) for s in wanted])
    )
    back = line[0, :2] + np.cumsum(iam.offsets(line)[:, :2], axis=0)
    np.testing.assert_array_equal(back, line[1:, :2])
    np.testing.assert_array_equal(iam.offsets(line)[:, 2], line[1:, 2])


def test_coordinates_may_have_decimals():
    line = iam.points(xml([[("0.5", "-1.25"), (3, "1e1")]]), "f")
    np.testing.assert_array_equal(line, [[0.5, -1.25, 0], [3, 10, 1]])
    assert iam.points(xml([[(1, 2), (3, 4)]]), "f").dtype == np.int32
    for bad in ("nan", "inf", "-1e9", "1e400"):
        with pytest.raises(DataError, match=f"a Point at 1, {bad}; coordinates are"):
            iam.points(xml([[(1, bad), (3, 4)]]), "f")


def form(folder, name, texts, numbers=None):
    """A form below ascii/ and lineStrokes/; the strokes are those of the number."""
    numbers = range(1, len(texts) + 1) if numbers is None else numbers
    for kind in ("ascii", "lineStrokes"):
        (folder / kind / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / f"ascii/{name}.txt").write_bytes(ascii_file(texts))
    for number in numbers:
        path = folder / f"lineStrokes/{name}-{number:02}.xml"
        path.write_bytes(xml(strokes(number)))


def lines_of(data_dir):
    """{id: text} of a prepared set of own forms."""
    found = {}
    for split in ("train", "valid"):
        columns = data.open_columns("own", split, data_dir)
        for i, text in enumerate(columns["transcription"]):
            found[bytes(columns["id"][i]).decode()] = bytes(text).decode()
            number = int(bytes(columns["id"][i])[-2:])
            wanted = iam.offsets(iam.points(xml(strokes(number)), "f"))
            np.testing.assert_array_equal(columns["strokes"][i], wanted)
    return found


def test_a_percent_sign_in_a_line_is_no_line_break(tmp_path):
    texts = ["it is 50% off today", "the second line", "100%% of it"]
    for i in range(3):
        form(tmp_path / "raw", f"page{i}", texts)
    data.prepare("iam_ondb", tmp_path / "raw", tmp_path / "data", own_name="own")
    wanted = {f"page{i}-{k + 1:02}": texts[k] for i in range(3) for k in range(3)}
    assert lines_of(tmp_path / "data") == wanted
    content = ascii_file(["ankle 5% bone %%%%%% pinned."])
    assert iam.transcription(content, "f", 2) == ["ankle 5% bone", "pinned."]
    assert iam.transcription(content, "f", 3) == ["ankle 5% bone", "pinned."]


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["a", "b", "c"], (1, 2)),
        (["a", "b"], (1, 2, 3)),
        (["a", "b"], (1, 3)),
        (["a", "b", "c"], (1, 3)),
        (["50% off"], (1, 2)),
    ],
)
def test_texts_are_never_shifted_against_strokes(tmp_path, texts, numbers):
    for i in range(3):
        form(tmp_path / "raw", f"good{i}", ["one", "two"])
    form(tmp_path / "raw", "odd", texts, numbers)
    message = rf"left out: odd \({len(texts)} and {len(numbers)}\)"
    with pytest.warns(UserWarning, match=message):
        data.prepare("iam_ondb", tmp_path / "raw", tmp_path / "data", own_name="own")
    found = lines_of(tmp_path / "data")
    assert sorted({name.rpartition("-")[0] for name in found}) == [
        f"good{i}" for i in range(3)
    ]
    assert data.facts("own", tmp_path / "data")["skipped"] == ["odd"]


SAME_NAMES = ("alice/page1", "bob/page1", "carol/page1", "alice/page2")


def test_forms_of_one_name_are_told_apart_by_their_paths(tmp_path):
    for name in SAME_NAMES:
        form(tmp_path / "raw", name, [f"by {name[:3]}"])
    data.prepare("iam_ondb", tmp_path / "raw", tmp_path / "a", own_name="own")
    wanted = {f"{name}-01": f"by {name[:3]}" for name in SAME_NAMES}
    assert lines_of(tmp_path / "a") == wanted

    # A list has paths, or names that no two forms have.
    (tmp_path / "raw/testset_v.txt").write_text("bob/page1\npage2\n")
    _, valid = prepare_own(tmp_path / "raw", tmp_path / "b")
    assert sorted(valid) == ["alice/page2-01", "bob/page1-01"]
    (tmp_path / "raw/testset_v.txt").write_text("page1\n")
    with pytest.raises(DataError, match=r"page1 is the name of several forms \(alice"):
        prepare_own(tmp_path / "raw", tmp_path / "c")


def test_an_official_form_is_not_there_twice(tmp_path):
    raw = official(tmp_path / "raw")
    (raw / "ascii/copy").mkdir()
    path = raw / "ascii/a01/a01-000/a01-000u.txt"
    (raw / "ascii/copy/a01-000u.txt").write_bytes(path.read_bytes())
    with pytest.raises(DataError, match="a01-000u is the name of several forms"):
        data.prepare("iam_ondb", raw, tmp_path / "data")


def test_the_corrected_lines_may_come_first():
    assert iam.transcription(b"CSR:\n\nthe first\nthe CSR: one\n", "f") == [
        "the first",
        "the CSR: one",
    ]


OWN_FORMS = [f"my form.{i}" for i in range(12)]


def own(folder, forms=OWN_FORMS):
    """The files of a set of own forms, without lists."""
    for i, form in enumerate(forms):
        for name in ("ascii", "lineStrokes"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / f"ascii/{form}.txt").write_bytes(ascii_file([f"Line {i}"]))
        line = [[(0.5 * x, y) for x, y in stroke] for stroke in strokes(i)]
        (folder / f"lineStrokes/{form}-1.xml").write_bytes(xml(line))
    return folder


def prepare_own(folder, data_dir):
    """The ids of the training and the validation lines, and the data set."""
    data.prepare("iam_ondb", folder, data_dir, own_name="own")
    splits = [data.open_columns("own", split, data_dir) for split in ("train", "valid")]
    return [[name.tobytes().decode() for name in split["id"]] for split in splits]


def test_own_forms_need_no_lists(tmp_path):
    raw = own(tmp_path / "raw")
    train, valid = prepare_own(raw, tmp_path / "a")
    by_name = sorted(OWN_FORMS)
    assert valid == [f"{by_name[9]}-01"]
    assert sorted(train + valid) == [f"{form}-01" for form in by_name]
    columns = data.open_columns("own", "train", tmp_path / "a")
    assert columns["strokes"].values.dtype == np.float32
    number = OWN_FORMS.index(train[3].removesuffix("-01"))
    wanted = np.concatenate(strokes(number)) * [0.5, 1]
    np.testing.assert_allclose(columns["strokes"][3][:, :2], np.diff(wanted, axis=0))

    # Lists that are there are followed.
    (raw / "testset_v.txt").write_text("")
    assert prepare_own(raw, tmp_path / "b") == [train, valid]


def test_own_lists_may_have_any_ids_without_spaces(tmp_path):
    raw = official(tmp_path / "raw")
    for path in sorted(raw.rglob("b01-000*")):
        if path.is_file():
            path.rename(path.with_name(path.name.replace("b01-000", "Ada_7")))
    (raw / "testset_v.txt").write_text("Ada_7")
    (raw / "testset_t.txt").unlink()
    train, valid = prepare_own(raw, tmp_path / "data")
    assert valid == ["Ada_7-01", "Ada_7-02"]
    # c01-000x is in no list.
    forms = {line.rpartition("-")[0] for line in train}
    assert forms == {"a01-000u", "d01-000z"}
    (raw / "trainset.txt").unlink()
    train, _ = prepare_own(raw, tmp_path / "data2")
    forms = {line.rpartition("-")[0] for line in train}
    assert forms == {"a01-000u", "c01-000x", "d01-000z"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (xml(strokes())[:-20], r"f, line \d+: broken XML"),
        (b"", r"f, line 1: broken XML \(no element found\)"),
        (b"<A><StrokeSet></StrokeSet></A>", "f: 0 points in 0 strokes"),
        (b"<WhiteboardCaptureSession/>", "f: no StrokeSet"),
        (xml([]).replace(b"StrokeSet", b"Other"), "f: no StrokeSet"),
        (xml([[(1, 2)], [], [(3, 4)]]), "f, line 8: a Stroke without points"),
        (
            xml([[("1.5", "nine"), (3, 4)]]),
            "f, line 5: a Point at '1.5', 'nine', which are not numbers",
        ),
        (xml([[(1, "")]]), "f, line 5: a Point at '1', '', which are not numbers"),
        (xml([[(1, 2)]]).replace(b'y="2"', b""), "f, line 5: a Point without y"),
        (
            xml([[(1, 2), (10**9, 4)]]),
            "f, line 6: a Point at 1000000000, 4; coordinates are numbers below 100000",
        ),
        (xml([[(1, 2)]]), "f: 1 points in 1 strokes are not a line"),
        (
            xml(strokes(), head='<!DOCTYPE a [<!ENTITY b "cc">]>'),
            "f, line 1: a document type",
        ),
        (
            xml(strokes(), head='<!DOCTYPE a SYSTEM "file:///etc/passwd">'),
            "f, line 1: a document type",
        ),
        (xml(strokes(), head=LAUGHS), "f, line 1: a document type"),
        (xml(strokes(), head="&laughs;"), "f, line 1: broken XML"),
        (
            xml(strokes(), head='<?xml version="1.0" encoding="ISO-8859-q"?>'),
            "f, line 1: unknown encoding",
        ),
        (
            xml(strokes(), head='<?xml version="1.0" encoding="shift_jis"?>'),
            "f, line 1: unknown encoding",
        ),
        (xml([[("a", 2)]]).replace(b'y="2"', b""), "f, line 5: a Point without y"),
        (
            xml([[(1, "9" * 4000)]]),
            "f, line 5: a Point at 1, 9{12}; coordinates are numbers below 100000",
        ),
    ],
)
def test_bad_strokes_are_one_line(content, message):
    with pytest.raises(DataError, match=message) as e:
        iam.points(content, "f")
    assert "\n" not in str(e.value)


def test_transcription_takes_the_corrected_lines_and_breaks_them_at_percent_signs():
    content = b"OCR:\n\nwrong\n\nCSR:\n\nankle bone %%%%%% pinned.\n\nLast \xe9ne \n"
    assert iam.transcription(content, "f") == ["ankle bone", "pinned.", "Last éne"]
    utf8 = "CSR:\n\nLast \u00e9ne\nit\u2019s late".encode("utf-8-sig")
    assert iam.transcription(b"OCR:\n" + utf8[3:], "f") == ["Last éne", "it's late"]
    assert iam.transcription(content.replace(b"\n", b"\r\n"), "f") == [
        "ankle bone",
        "pinned.",
        "Last éne",
    ]
    with pytest.raises(DataError, match="f: no line says 'CSR:'"):
        iam.transcription(b"OCR:\n\nabc", "f")


def test_57_symbols_and_what_is_none_of_them():
    assert len(iam.SYMBOLS) == len(set(iam.SYMBOLS)) == 57
    tokens, unknown = iam.encode("It's 7, \N{SNOWMAN}.")
    assert unknown == ["7", "\N{SNOWMAN}"]
    assert "".join(iam.SYMBOLS[t] if t else "?" for t in tokens) == "It's ?, ?."
    assert len(iam.encode("")[0]) == 0


def test_prepared_and_read_back(prepared):
    _, target = prepared
    train, valid = (
        data.open_columns("iam_ondb", split, target) for split in ("train", "valid")
    )
    names = lambda columns: [bytes(v).decode() for v in columns["id"]]  # noqa: E731
    assert names(train) == [
        *(f"a01-000u-0{i}" for i in (1, 2, 3)),
        "c01-000x-01",
        "d01-000z-01",
        "d01-000z-02",
    ]
    assert names(valid) == ["b01-000-01", "b01-000-02"]
    assert [iam.LISTS[k] for k in train["list"]] == ["trainset"] * 3 + ["testset_t"] + [
        "testset_f"
    ] * 2
    np.testing.assert_array_equal(
        train["strokes"][1], iam.offsets(iam.points(xml(strokes(1)), "f"))
    )
    np.testing.assert_array_equal(train["text"][1], iam.encode("Line 1 of-a01-000u")[0])
    assert bytes(train["transcription"][1]) == b"Line 1 of-a01-000u"

    facts = data.facts("iam_ondb", target)
    steps = np.concatenate([train["strokes"][i] for i in range(len(train["strokes"]))])[
        :, :2
    ]
    np.testing.assert_allclose(
        [facts["mean"], facts["std"]], [steps.mean(0), steps.std(0)], rtol=1e-12
    )
    assert facts["lines"] == {
        "trainset": 3,
        "testset_v": 2,
        "testset_t": 1,
        "testset_f": 2,
    }
    assert facts["skipped"] == []
    assert facts["other"]["-"] == 2 * 8
    assert facts["symbols"] == list(iam.SYMBOLS)


def test_archives_hold_the_same_set(prepared, tmp_path):
    raw, target = prepared
    packed = tmp_path / "raw"
    packed.mkdir()
    for name in FORMS:
        (packed / f"{name}.txt").write_bytes((raw / f"{name}.txt").read_bytes())
    for name, packing in (("lineStrokes", "xz"), ("ascii", "gz")):
        with tarfile.open(packed / f"{name}-all.tar.{packing}", f"w:{packing}") as tar:
            tar.add(raw / name, f"original/{name}")
    data.prepare("iam_ondb", packed, tmp_path / "data")
    assert data.fingerprint("iam_ondb", tmp_path / "data") == data.fingerprint(
        "iam_ondb", target
    )


@pytest.mark.parametrize(
    "name",
    ["/lineStrokes/a01/a01-000/a01-000u-01.xml", "lineStrokes/../../a01-000u-01.xml"],
)
def test_archive_members_outside_are_refused(tmp_path, name):
    raw = official(tmp_path)
    (raw / "lineStrokes").rename(raw / "elsewhere")
    with tarfile.open(raw / "lineStrokes-all.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo(name)
        content = xml(strokes())
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    with pytest.raises(DataError, match="points out of the archive"):
        data.prepare("iam_ondb", raw, tmp_path / "data")


def test_fewer_lines_of_text_than_of_strokes_are_skipped_counted_and_said(tmp_path):
    raw = official(tmp_path, LINES | {"e01-000": 3}, FORMS)
    (raw / "trainset.txt").write_text(" a01-000u\n e01-000\n")
    (raw / "ascii/e01/e01-000/e01-000.txt").write_bytes(ascii_file(["Only one"]))
    with pytest.warns(
        UserWarning,
        match="1 forms have other numbers of lines of text than of stroke files and "
        r"are left out: e01-000 \(1 and 3\)",
    ):
        data.prepare("iam_ondb", raw, tmp_path / "data")
    facts = data.facts("iam_ondb", tmp_path / "data")
    assert facts["skipped"] == ["e01-000"]
    assert facts["lines"]["trainset"] == 3


@pytest.mark.filterwarnings("ignore:.* forms have other numbers")
@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_split_without_lines_is_one_line(tmp_path, split):
    raw = official(tmp_path / "raw")
    for name, form in FORMS.items():
        if (name == iam.VALID) == (split == "valid"):
            (raw / "ascii" / form[:3] / form[:7] / f"{form}.txt").write_bytes(
                ascii_file([])
            )
    with pytest.raises(
        DataError, match=f"raw: the files hold no example of the split {split}"
    ):
        data.prepare("iam_ondb", raw, tmp_path / "data")


@pytest.mark.parametrize(
    ("break_", "message"),
    [
        (
            lambda raw: (raw / "trainset.txt").write_text(" a01-000u\n z99-999\n"),
            "trainset.txt lists z99-999, which has no stroke file",
        ),
        (
            lambda raw: (raw / "trainset.txt").write_text(" hello\n"),
            "'hello' is not an id of a form, such as a01-000u",
        ),
        (
            lambda raw: (raw / "trainset.txt").write_text(" a01-000u\n x/a01-000u\n"),
            "trainset.txt, line 2: 'x/a01-000u' is",
        ),
        (
            lambda raw: (raw / "lineStrokes/a01/a01-000/a01-000u-02.xml").rename(
                raw / "lineStrokes/a01/a01-000/a01-000u-00.xml"
            ),
            "a01-000u-00.xml: lines are numbered from 01",
        ),
        (
            lambda raw: (raw / "ascii/a01/a01-000/a01-000u.txt").write_text(
                "\nCSR:\n" + "\u0442\u0435\u043a\u0441\u0442 " * 20 + "\nb\nc"
            ),
            "140 of 209 characters are not among the 56 symbols, such as \u0442 ",
        ),
        (
            lambda raw: (raw / "trainset.txt").write_text("\n"),
            "trainset.txt: lists no form",
        ),
        (
            lambda raw: (raw / "testset_v.txt").unlink(),
            "testset_v.txt: there is no such file",
        ),
        (
            lambda raw: (raw / "ascii/b01/b01-000/b01-000.txt").unlink(),
            "lists b01-000, which has no transcription",
        ),
        (
            lambda raw: (raw / "ascii").rename(raw / "b"),
            "ascii: there is no such folder and no ascii-all.tar",
        ),
        (
            lambda raw: (raw / "lineStrokes/a01/a01-000/a01-000u-02.xml").write_bytes(
                b"<a>"
            ),
            "a01-000u-02.xml, line 1",
        ),
    ],
)
def test_wrong_folders_are_one_line_and_leave_nothing(tmp_path, break_, message):
    raw = official(tmp_path / "raw")
    break_(raw)
    with pytest.raises(DataError, match=message) as e:
        data.prepare("iam_ondb", raw, tmp_path / "data")
    assert "\n" not in str(e.value)
    assert not data.prepared("iam_ondb", tmp_path / "data")


# -- generated strokes


def test_generated_lines_are_the_same_ones_again_and_of_known_symbols():
    lines = list(pen_strokes.generate(20, 7))
    again = list(pen_strokes.generate(20, 7))
    assert [text for text, _ in lines] == [text for text, _ in again]
    for (text, line), (_, other) in zip(lines, again, strict=True):
        np.testing.assert_array_equal(line, other)
        assert not iam.encode(text)[1]
        assert pen_strokes.MIN_CHARACTERS - 1 <= len(text) <= pen_strokes.MAX_CHARACTERS
        assert line[-1, 2] == 1
        assert line[:, 2].sum() == sum(
            len(pen_strokes.glyph(c)[0]) for c in text if c != " "
        )


def test_every_symbol_has_a_glyph_on_the_base_line():
    for character in iam.SYMBOLS[2:]:
        strokes, width = pen_strokes.glyph(character)
        points = np.concatenate(strokes)
        assert 0 <= points[:, 0].min() <= points[:, 0].max() <= width
        assert -22 <= points[:, 1].min() <= points[:, 1].max() <= 8


def test_resampled_paths_keep_ends_and_corners_and_equal_distances():
    path = np.array([[0, 0], [10, 0], [10, 0], [10, 20]], float)
    found = pen_strokes.resample(path, 3.0)
    np.testing.assert_allclose(found[[0, -1]], path[[0, -1]])
    assert (found == [10, 0]).all(1).any()
    np.testing.assert_allclose(
        np.hypot(*np.diff(found, axis=0).T), [10 / 3] * 3 + [20 / 7] * 7
    )
    assert len(pen_strokes.resample(np.ones((3, 2)), 2.0)) == 1
