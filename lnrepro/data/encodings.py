"""Text files as text, whatever their encoding.

A file is in UTF-8, or in UTF-16 with a byte order mark. A line that is not UTF-8 is in
Windows-1252. What a reader cannot see is counted: such lines, control characters, and
bytes that no encoding has.
"""

from __future__ import annotations

import codecs
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator

from lnrepro.errors import DataError

# Bytes that are read at a time.
BLOCK = 1 << 22
UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
REPLACEMENT = "\ufffd"
# Control characters, apart from tab, line ends and form feed. NUL is an error.
ASCII_CONTROLS = bytes(c for c in (*range(1, 32), 127) if c not in b"\t\n\r\x0c")
CONTROL = re.compile("[\x01-\x08\x0b\x0e-\x1f\x7f-\x9f]")
# The characters U+0080 to U+009F in UTF-8.
LATER_CONTROL = re.compile(rb"\xc2[\x80-\x9f]")
WHITESPACE = b" \t\r\n\x0b\x0c"
ADVICE = "save the file as UTF-8 text"


def decode(content: bytes, where: object, notes: Counter[str] | None = None) -> str:
    r"""Decode a whole text file.

    >>> decode(b"caf\xc3\xa9\ndon\x92t", "f")
    'café\ndon’t'

    Args:
      content: content of the file.
      where: name of the file, for error messages.
      notes: what was found is counted here.

    Raises:
      DataError: it is not text.
    """
    decoder = _Decoder(where)
    content = b"".join(_utf8(io.BytesIO(content).read, where))
    text = decoder.decode(1, content)
    decoder.close()
    if notes is not None:
        notes.update(decoder.notes)
    return text


def blocks(
    read: Callable[[int], bytes],
    where: object,
    notes: Counter[str] | None = None,
    longest: int | None = None,
) -> Iterator[tuple[int, str]]:
    """Decode a text file, some whole lines at a time.

    Args:
      read: returns the next bytes, at most as many as its argument.
      where: name of the file, for error messages.
      notes: what was found is counted here at the end.
      longest: the largest number of bytes of a line; None is any number.

    Yields:
      The number of the first line, and the lines. They end with a newline, except for
      the last one of a file that does not.

    Raises:
      DataError: it is not text, or a line is too long.
    """
    decoder = _Decoder(where)
    number, pending = 1, b""
    for piece in _utf8(read, where):
        head, newline, tail = piece.rpartition(b"\n")
        if newline:
            block, pending = pending + head + newline, b""
            yield number, decoder.decode(number, block)
            number += block.count(b"\n")
        pending += tail
        if longest and len(pending) > longest:
            raise DataError(
                f"{where}, line {number}: longer than {longest:,} bytes; one sentence "
                "per line is needed"
            )
    if pending:
        yield number, decoder.decode(number, pending)
    decoder.close()
    if notes is not None:
        notes.update(decoder.notes)


def _utf8(read: Callable[[int], bytes], where: object) -> Iterator[bytes]:
    """Yield the bytes of a text file without its byte order mark, UTF-16 as UTF-8."""
    first = read(BLOCK)
    while len(first) < len(codecs.BOM_UTF8) and (more := read(BLOCK)):
        first += more
    encoding = UTF16.get(first[:2])
    if encoding is None:
        yield first.removeprefix(codecs.BOM_UTF8)
        while piece := read(BLOCK):
            yield piece
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    piece = first[2:]
    try:
        while piece:
            yield decoder.decode(piece).encode("utf-8")
            piece = read(BLOCK)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise DataError(
            f"{where}: begins like UTF-16 text, but is none; {ADVICE}"
        ) from None


class _Decoder:
    """Decodes the lines of one file and counts what is odd in them.

    Attributes:
      notes: how often each odd thing occurs.
    """

    def __init__(self, where: object):
        self.notes: Counter[str] = Counter()
        self._where = where
        # Bytes without whitespace; those of Windows-1252 above 127; and those that are
        # control characters or in no encoding.
        self._bytes = self._high = self._odd = 0

    def decode(self, number: int, block: bytes) -> str:
        """Return the text of whole lines, the first of which has a number."""
        if (position := block.find(b"\0")) >= 0:
            line = number + block.count(b"\n", 0, position)
            raise DataError(f"{self._where}, line {line}: a NUL byte; {ADVICE}")
        self._bytes += len(block.translate(None, WHITESPACE))
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError:
            text = "".join(map(self._line, block.splitlines(keepends=True)))
        is_clean = len(block.translate(None, ASCII_CONTROLS)) == len(block)
        if not is_clean or LATER_CONTROL.search(block):
            self._count(CONTROL.findall(text))
        return text

    def _line(self, line: bytes) -> str:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            text = line.decode("cp1252", "replace")
        self.notes["lines read as Windows-1252"] += 1
        self._high += sum(byte > 127 for byte in line)
        self._count([REPLACEMENT] * text.count(REPLACEMENT))
        return text

    def _count(self, characters: list[str]) -> None:
        self._odd += len(characters)
        for character in characters:
            self.notes[f"character {visible(character)}"] += 1

    def close(self) -> None:
        """Raise DataError if most of the file is not text."""
        # Western texts consist of ASCII for the most part. Others in an encoding of
        # their own do not, and every tenth byte of a binary file is odd.
        many = self._high > max(1, self._bytes // 2)
        if many or self._odd > max(1, self._bytes // 10):
            raise DataError(
                f"{self._where}: mostly not UTF-8, UTF-16 or Windows-1252 text "
                f"({max(self._high, self._odd):,} of {self._bytes:,} bytes); {ADVICE}"
            )


def quoted(text: str) -> str:
    r"""Return the beginning of a text in quotes, as at most 80 characters of ASCII.

    >>> len(quoted("\u2028" * 1000))
    80
    """
    # An escaped character takes up to ten characters.
    return ascii(text[:80])[:80]


def visible(text: str) -> str:
    r"""Return a text with code points in place of characters that one cannot see.

    >>> visible("a\x92\u200b\u00a0é")
    'aU+0092U+200BU+00A0é'
    """
    return "".join(c if _is_visible(c) else f"U+{ord(c):04X}" for c in text)


def _is_visible(character: str) -> bool:
    # Categories that begin with M are marks on the character before them.
    if character == REPLACEMENT:
        return False
    return character.isprintable() and unicodedata.category(character)[0] != "M"
