"""Raw books to tokenised sentences, and from there to a prepared set."""

import gzip

import pytest

from experiments.skip_thoughts import encoding
from scripts import convert_books
from tests.refused import refused

BOOK = """The Project Gutenberg EBook of A Walk, by Nobody

This eBook is for the use of anyone. Read the licence.

*** START OF THIS PROJECT GUTENBERG EBOOK A WALK ***


A WALK

CHAPTER I.

Mr. Ames went _out_. "It's late," he said. He did not
come back until 3.5 hours
later!

\u201cWhere were you?\u201d asked Ada \u2014 nobody answered.

       *       *       *

The End of it.

End of Project Gutenberg's A Walk, by Nobody

*** END OF THIS PROJECT GUTENBERG EBOOK A WALK ***

Section 1. General terms of use.
"""
WANTED = """\
mr . ames went out .
" it 's late , " he said .
he did not come back until 3.5 hours later !
`` where were you ? \'\' asked ada -- nobody answered .
the end of it .
"""


def convert(tmp_path, content, name="walk.txt"):
    (tmp_path / name).write_bytes(content)
    convert_books.main([str(tmp_path / name), f"--out={tmp_path / 'out'}"])
    return (tmp_path / "out" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "content",
    [
        BOOK.encode(),
        BOOK.replace("\n", "\r\n").encode("utf-8-sig"),
        BOOK.replace("START OF THIS", "START OF THE").encode(),
        # A book without licence.
        BOOK[BOOK.index("A WALK\n") : BOOK.index("End of Pro")].encode(),
    ],
)
def test_a_book_becomes_tokenised_sentences(tmp_path, content):
    assert convert(tmp_path, content) == WANTED
    # As those that are encoded.
    for line in WANTED.splitlines():
        assert encoding.tokens_of(line, lowercase=True) == line.split()


MARKS = """It was late. He said \u2014 and left\u2026 She didn\u2019t.

The caf\u00e9 was closed.
"""
MARKED = """\
it was late .
he said -- and left ...
she did n't .
the caf\u00e9 was closed .
"""


def test_marks_of_any_encoding_and_packing(tmp_path):
    (tmp_path / "._x.txt").write_bytes(b"\0\5")
    (tmp_path / "packed.txt").write_bytes(gzip.compress(MARKS.encode("utf-16")))
    files = [str(tmp_path / name) for name in ("._x.txt", "packed.txt")]
    convert_books.main([*files, f"--out={tmp_path / 'out'}"])
    assert (tmp_path / "out/packed.txt").read_text("utf-8") == MARKED
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["packed.txt"]
    with refused("packed.txt is there already; remove it"):
        convert(tmp_path, MARKS.encode(), "packed.txt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BOOK.partition("End of Pro")[0], "END OF THE"),
        (BOOK.partition("EBOOK A WALK")[2], "*** START"),
        ("made by Project Gutenberg.", "remove the licence by hand"),
        ("A\n\n***\n", "walk.txt: contains no sentence"),
        ("a\0b", "walk.txt, line 1: a NUL byte"),
    ],
)
def test_what_is_no_book_is_one_line_and_leaves_nothing(tmp_path, content, message):
    with refused(message):
        convert(tmp_path, content.encode())
    assert not list((tmp_path / "out").iterdir())
