"""Every reader on damaged files, whose damage hypothesis draws.

A reader may take a file, or raise DataError with one printable line that names the
folder or the file. Any other exception is a fault, of which hypothesis shows the
smallest file. A prepared set is whole, or nothing of it is left.
"""

import re
import resource
import shutil
import warnings

import hypothesis
import pytest
from hypothesis import strategies as st

from lnrepro import data
from lnrepro.errors import DataError
from tests.data.reading import write
from tests.hardening.formats import FORMATS, SETS

# Inputs of a format, in the quick and in the slow tests.
COUNTS = [60, pytest.param(500, marks=pytest.mark.slow)]
# Limit in characters of a message, without the path of the folder.
LONGEST_MESSAGE = 600
# Bytes that reading a damaged file may take: a pickle of a few bytes can ask for 64 GB.
MEMORY = 1 << 31
# Texts in place of a number: extreme, not finite, too long for int(), unusual digits.
NUMBERS = (
    *(b"0", b"-1", b"1e999", b"1e39", b"NaN", b"-Infinity", b"0x7f", b"4294967295"),
    *(b"9" * 30, b"7" * 5000, "\u0663".encode(), b"1_0", b"+1", b"1.5", b""),
)
# NUL, bytes that are not UTF-8, half of a surrogate pair, byte order marks, an escape
# sequence, unusual line ends, and binary numbers.
ODD = (
    *(
        b"\0",
        b"\xff",
        b"\xfe\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\x1b[2J",
    ),
    *(b"\x85", b"\x81", b"\x92", "\u2028".encode(), b"\r", b"\n\n", b" " * 70, b"\x0c"),
    *(b"\xff" * 8, b"\x00\x00\xc0\x7f", b"\x7f\xff\xff\xff", b"[" * 900, b"(" * 900),
)
ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "cp1252")


@st.composite
def damaged(draw, content, words):
    """Draw a file with up to three damages, sometimes with none."""
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2, 3)))):
        # Half of the time near the beginning, where headers are.
        end = draw(st.sampled_from((min(len(content), 200), len(content))))
        start = draw(st.integers(0, end))
        kind = draw(st.sampled_from(("replace", "replace", "repeat", "number", "text")))
        if kind == "replace":
            stop = start + draw(st.sampled_from((0, 1, 4, len(content))))
            new = draw(st.binary(max_size=8) | st.sampled_from(words + ODD))
        elif kind == "repeat":
            stop = draw(st.integers(start, len(content)))
            new = content[start:stop] * draw(st.sampled_from((0, 2, 50)))
        elif kind == "number":
            digits = re.compile(rb"\d+").search(content, start)
            start, stop = digits.span() if digits else (len(content),) * 2
            new = draw(st.sampled_from(NUMBERS))
        else:
            start, stop = 0, len(content)
            text = content.decode("utf-8", "replace")
            new = text.encode(draw(st.sampled_from(ENCODINGS)), "replace")
        content = (content[:start] + new + content[stop:])[: 1 << 17]
    return content


def tries(count):
    """Settings of a test that draws `count` inputs, the same ones each time."""
    return hypothesis.settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


@pytest.fixture
def limited_memory():
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def is_taken(run, folder):
    """Call a function. Check the error by which it refuses the files of a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run()
        except DataError as e:
            message = str(e)
            assert message.isprintable()
            assert len(message) - len(str(folder)) <= LONGEST_MESSAGE
            # That there is no triple in all books concerns no single file.
            assert str(folder) in message or "sentences in" in message
            return False
    return True


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", FORMATS)
def test_a_reader_takes_or_refuses_files(name, count, tmp_path, limited_memory):
    form = FORMATS[name]
    write(tmp_path, form.files)
    results = []

    @tries(count)
    @hypothesis.given(damaged(form.files[form.file], form.words))
    def attempt(content):
        (tmp_path / form.file).write_bytes(content)
        shutil.rmtree(tmp_path / "columns", ignore_errors=True)
        results.append(is_taken(lambda: form.read(tmp_path), tmp_path))

    attempt()
    # Damage must leave some files readable, and others not.
    assert set(results) == {True, False}


@pytest.mark.parametrize("count", [5, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SETS)
def test_a_set_is_prepared_whole_or_leaves_nothing(name, count, tmp_path):
    files = SETS[name]
    raw, target = tmp_path / "raw", tmp_path / "data"

    @tries(count)
    @hypothesis.given(st.data())
    def attempt(drawn):
        file = drawn.draw(st.sampled_from(sorted(files)))
        content = drawn.draw(damaged(files[file], ()))
        write(raw, {**files, file: content})
        shutil.rmtree(target, ignore_errors=True)
        if not is_taken(lambda: data.prepare(name, raw, target, own_name="own"), raw):
            assert not list(target.glob("*"))
            return
        opened = data.open_set("own", target)
        for split in opened.splits:
            for column in opened.columns(split).values():
                assert len(column)

    attempt()
