"""scripts/encode_sentences.py on a small run, from a file and through a pipe."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest

from configs import skip_thoughts
from lnrepro.errors import UserError
from scripts import encode_sentences
from tests.runs import ROOT, environment, run


def test_lines_are_read_in_blocks_and_never_cut_elsewhere(monkeypatch):
    monkeypatch.setattr(encode_sentences, "BLOCK", 2)
    text = "a b\r\n\nfür\u0085 alle\nlast".encode()
    assert list(encode_sentences.read(io.BytesIO(text))) == [
        ["a b", ""],
        ["für\u0085 alle", "last"],
    ]
    assert list(encode_sentences.read(io.BytesIO(b""))) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"\x81\x8d", "standard input: mostly not UTF-8"), (b"a\0b\n", "line 1: a NUL")],
)
def test_bad_text_names_the_line(text, message):
    with pytest.raises(UserError, match=message):
        list(encode_sentences.read(io.BytesIO(text)))


@pytest.mark.parametrize("seekable", [True, False])
def test_the_file_is_numpys_however_it_is_written(seekable):
    out = io.BytesIO()
    out.seekable = lambda: seekable
    blocks = [["one", "three"], ["seven"]]

    def vectors(sentences):
        return np.array([[len(s), 1] for s in sentences], np.float32)

    with encode_sentences.rewritable(out) as file:
        assert encode_sentences.write(file, vectors, blocks) == 3
    np.testing.assert_array_equal(
        np.load(io.BytesIO(out.getvalue())), [[3, 1], [5, 1], [5, 1]]
    )


@pytest.mark.parametrize("seekable", [True, False])
def test_a_vector_that_is_not_finite_leaves_no_file(seekable):
    out = io.BytesIO(b"before")
    out.seek(6)
    out.seekable = lambda: seekable
    vectors = {"one": [1.0, 2.0], "two": [np.nan, 0.0]}

    def encoded(sentences):
        return np.array([vectors[s] for s in sentences], np.float32)

    message = r"lines after 2, row 1: .* not finite"
    with (
        pytest.raises(UserError, match=message),
        encode_sentences.rewritable(out) as file,
    ):
        encode_sentences.write(file, encoded, [["one", "one"], ["one", "two"]])
    assert out.getvalue() == b"before"


@pytest.mark.filterwarnings("ignore:.*Windows-1252")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_typographic_line_is_the_same_in_every_encoding(encoding):
    text = "don\u2019t \u2014 caf\u00e9\nlast\n"
    found = list(encode_sentences.read(io.BytesIO(text.encode(encoding))))
    assert found == [["don\u2019t \u2014 caf\u00e9", "last"]]


@pytest.mark.slow
def test_a_run_encodes_sentences(tmp_path):
    folder = tmp_path / "run"
    flags = ["--config=configs/skip_thoughts.py:smoke", f"--workdir={folder}"]
    code, _, err = run(
        tmp_path,
        *flags,
        *(
            f"--config.evals.{name}=never"
            for name in skip_thoughts.get_config("smoke").evals
        ),
        "--config.curves=()",
    )
    assert code == 0, err
    text = b"anna went to the harbour .\n\nthe cook laughed .\n"
    text += b"anna went to the harbour .\n"

    def encoded(text, *more):
        command = [sys.executable, "scripts/encode_sentences.py", *more]
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment(tmp_path),
            input=text,
            capture_output=True,
        )

    done = encoded(text, "--workdir", str(folder))
    assert done.returncode == 0, done.stderr
    vectors = np.load(io.BytesIO(done.stdout))
    assert vectors.shape == (4, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1, 1], atol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[3])
    # "anna" and "laughed" are words of the stories or not; the share says how many.
    assert re.search(
        rb"4 sentences encoded; \d+\.\d% of 16 words are not in", done.stderr
    )

    for text, where, message in (
        (b"", folder, "standard input is empty"),
        (b"a\n", tmp_path, "holds no run"),
    ):
        done = encoded(text, "--workdir", str(where))
        assert done.returncode == 2
        assert done.stdout == b""
        assert message in done.stderr.decode()
        assert done.stderr.count(b"\n") == 1
