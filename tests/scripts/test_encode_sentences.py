"""scripts/encode_sentences.py: lines of standard input. docs/data.md encodes them."""

import io
import sys

import pytest

from scripts import encode_sentences
from tests.refused import refused


def given(monkeypatch, content):
    stream = io.TextIOWrapper(io.BytesIO(content))
    monkeypatch.setattr(sys, "stdin", stream)


def test_lines_are_those_of_the_file_in_any_encoding(monkeypatch):
    given(monkeypatch, "a b\r\n\nfür\u0085 alle\nlast".encode())
    lines = ["a b", "", "für\u0085 alle", "last"]
    assert encode_sentences.read_lines() == lines
    given(monkeypatch, "don\u2019t\nlast\n".encode("utf-16"))
    assert encode_sentences.read_lines() == ["don\u2019t", "last"]


@pytest.mark.parametrize("content", [b"", b"\x81\x8d", b"a\0b\n"])
def test_what_is_no_text_is_refused(monkeypatch, content):
    given(monkeypatch, content)
    with refused("standard input"):
        encode_sentences.read_lines()
