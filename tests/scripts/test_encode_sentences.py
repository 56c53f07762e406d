"""scripts/encode_sentences.py on a small run, from a file and through a pipe."""

import io
import subprocess
import sys

import numpy as np
import pytest

from scripts import encode_sentences
from tests.refused import refused
from tests.runs import ROOT, environment, smoke_run


def given(monkeypatch, content):
    stream = io.TextIOWrapper(io.BytesIO(content))
    monkeypatch.setattr(sys, "stdin", stream)


def test_lines_are_those_of_the_file_in_any_encoding(monkeypatch):
    given(monkeypatch, "a b\r\n\nfür\u0085 alle\nlast".encode())
    lines = ["a b", "", "für\u0085 alle", "last"]
    assert encode_sentences.read_lines() == lines
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        given(monkeypatch, "don\u2019t\nlast\n".encode(encoding))
        assert encode_sentences.read_lines() == ["don\u2019t", "last"]


@pytest.mark.parametrize("content", [b"", b"\x81\x8d", b"a\0b\n"])
def test_what_is_no_text_is_refused(monkeypatch, content):
    given(monkeypatch, content)
    with refused("standard input"):
        encode_sentences.read_lines()


@pytest.mark.slow
def test_a_run_encodes_sentences(tmp_path):
    folder = smoke_run("skip_thoughts", tmp_path)
    command = [sys.executable, "scripts/encode_sentences.py", "--workdir", folder]
    text = b"anna went .\n\nthe cook laughed .\nanna went .\n"
    pipes = {"input": text, "stdout": subprocess.PIPE}
    env = environment(tmp_path)
    done = subprocess.run(command, cwd=ROOT, env=env, check=True, **pipes)
    vectors = np.load(io.BytesIO(done.stdout))
    assert vectors.shape == (4, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1, 1], atol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[3])
