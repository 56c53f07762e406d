"""Texts in UTF-8, UTF-16 and Windows-1252, whole and in blocks, and what is no text."""

import io
from collections import Counter

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data import encodings
from lnrepro.data.encodings import blocks, decode, visible
from lnrepro.data.official import caption_files, iam_ondb, question, sentences
from lnrepro.errors import DataError

# Typographic marks, which Windows-1252 has between 128 and 159.
TEXT = "I don\u2019t know \u2026 \u201cyes\u201d \u2014 caf\u00e9\nna\u00efve\n"
ENCODINGS = ("utf-8", "utf-8-sig", "cp1252", "utf-16")


@pytest.mark.parametrize("encoding", [*ENCODINGS, "utf-16-be"])
@pytest.mark.parametrize("block", [1, 3, 7, 1 << 20])
def test_a_text_is_the_same_in_every_encoding(encoding, block, monkeypatch):
    monkeypatch.setattr(encodings, "BLOCK", block)
    content = TEXT.encode(encoding)
    if encoding == "utf-16-be":
        content = b"\xfe\xff" + content
    assert decode(content, "f") == TEXT
    parts = list(blocks(io.BytesIO(content).read, "f"))
    assert "".join(text for _, text in parts) == TEXT
    for number, text in parts:
        assert (
            TEXT.split("\n")[number - 1 :][: text.count("\n")] == text.split("\n")[:-1]
        )


def test_one_bad_byte_does_not_change_other_lines():
    lines = [f"caf\u00e9 {i} \u2014 na\u00efve".encode() for i in range(100)]
    lines[40] = b"it\x92s"
    notes = Counter()
    found = decode(b"\n".join(lines), "f", notes).split("\n")
    assert found[40] == "it\u2019s"
    del found[40], lines[40]
    assert found == [line.decode() for line in lines]
    assert notes == {"lines read as Windows-1252": 1}


def test_what_cannot_be_seen_is_counted_by_its_code_point():
    notes = Counter()
    text = "a\x1b[2J b\u0085c \u0085 d\x7f" + "e" * 100
    assert decode(text.encode(), "f", notes) == text
    assert notes == {
        "character U+001B": 1,
        "character U+0085": 2,
        "character U+007F": 1,
    }
    notes.clear()
    decode(b"a\x81" + b"e" * 100, "f", notes)
    assert notes == {"lines read as Windows-1252": 1, "character U+FFFD": 1}
    assert visible("\u00e9\x92\u200b\u00a0\u0301\ufeff") == (
        "\u00e9U+0092U+200BU+00A0U+0301U+FEFF"
    )


RUSSIAN = "\u0431\u044b\u043b\u043e \u043f\u043e\u0437\u0434\u043d\u043e\n" * 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes(range(1, 256)) * 20, "f: mostly not UTF-8, UTF-16 or Windows-1252"),
        (RUSSIAN.encode("cp1251"), "f: mostly not UTF-8"),
        (TEXT.encode("utf-16-le"), "f, line 1: a NUL byte; save the file as UTF-8"),
        (b"a\nb\0\n", "f, line 2: a NUL byte"),
        (b"\xff\xfea\x00\x00\xd8", "f: begins like UTF-16 text, but is none"),
    ],
)
def test_what_is_no_text_is_refused(content, message):
    with pytest.raises(DataError, match=message):
        decode(content, "f")
    with pytest.raises(DataError, match=message):
        list(blocks(io.BytesIO(content).read, "f"))
    assert decode(RUSSIAN.encode(), "f") == RUSSIAN


ASKED = "a\n\n@entity1 isn\u2019t here\n\n@placeholder was\n\n@entity1\n"
READERS = {
    "captions": (TEXT, caption_files.parse_text),
    "sentences": (TEXT, sentences.parse_lines),
    "handwriting": (f"CSR:\n{TEXT}", iam_ondb.transcription),
    "SICK": (
        "\t".join(sentences.HEADER) + "\n1\tcaf\u00e9\tisn\u2019t\t2\tNEUTRAL\n",
        sentences.parse_sick,
    ),
    "question": (ASKED, question.parse),
    "Karpathy's JSON": (
        '{"images": ['
        + ",".join(
            f'{{"split": "{s}", "sentences": [{{"tokens": ["caf\u00e9", "\u2014"]}}]}}'
            for s in ("train", "val", "test")
        )
        + "]}",
        lambda content, where: {
            split: found.captions
            for split, found in caption_files.parse_karpathy(content, where).items()
        },
    ),
    "COCO's JSON": (
        '{"annotations": [{"image_id": 1, "id": 2, "caption": "caf\u00e9 \u2014"}]}',
        caption_files.parse_coco,
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_text_decodes_alike(reader):
    text, parse = READERS[reader]
    found = [parse(text.encode(encoding), "f") for encoding in ENCODINGS]
    assert "\ufffd" not in repr(found[0])
    assert all(other == found[0] for other in found)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_books_in_any_encoding_are_one_set(tmp_path, encoding):
    text = "it isn\u2019t late \u2014 \u2026 .\ncaf\u00e9 b\nc d\n"
    found = []
    for name, content in (("a", text.encode(encoding)), ("b", text.encode())):
        (tmp_path / name).mkdir()
        (tmp_path / name / "book.txt").write_bytes(content)
        data.prepare("gutenberg", tmp_path / name, tmp_path / f"data-{name}")
        found.append(data.fingerprint("gutenberg", tmp_path / f"data-{name}"))
    assert found[0] == found[1]
    assert "caf\u00e9" in data.facts("gutenberg", tmp_path / "data-a")["words"]


def test_a_transcription_names_what_is_odd(tmp_path, capsys):
    from scripts import prepare
    from tests.data.test_iam_ondb import own

    own(tmp_path / "raw")
    path = tmp_path / "raw/ascii/my form.0.txt"
    path.write_bytes(path.read_bytes() + b"\x92\x1b\n")
    # The added line belongs to a second stroke file.
    strokes = tmp_path / "raw/lineStrokes/my form.0-1.xml"
    (strokes.parent / "my form.0-2.xml").write_bytes(strokes.read_bytes())
    where = f"--data_dir={tmp_path / 'data'}"
    prepare.main(["iam_ondb", f"--raw={tmp_path / 'raw'}", "--as=mine", where])
    out = capsys.readouterr().out
    assert "lines read as Windows-1252: 1" in out
    assert "character U+001B: 1" in out
    assert "U+001B: 1" in out.partition("other: ")[2]
    assert "\x1b" not in out
    assert np.isfinite(data.facts("mine", tmp_path / "data")["std"]).all()
