"""scripts/embed_captions.py on a small run, and bad input."""

import io
import subprocess
import sys

import numpy as np
import pytest

import lnrepro
from configs import order_embeddings
from lnrepro.engine.train import train
from lnrepro.errors import UserError
from scripts import embed_captions, encode_sentences
from tests.runs import ROOT, environment

CAPTIONS = ["a red square", "a blue circle above a red square", "zzz"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("embed")
    config = order_embeddings.get_config("smoke")
    config.data.dir = str(home / "data")
    config.steps, config.curves, config.best.metric = 3, (), None
    config.evals = dict.fromkeys(config.evals, "never")
    train(config, home / "run")
    return home / "run"


def call(home, *flags, text=""):
    command = [sys.executable, "scripts/embed_captions.py", *map(str, flags)]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment(home),
        input=text.encode(),
        capture_output=True,
    )


@pytest.mark.slow
def test_captions_find_images(folder, tmp_path):
    run = lnrepro.load(folder)
    features = np.random.default_rng(0).normal(size=(7, 648))
    np.save(tmp_path / "features.npy", features)
    text = "".join(f"{caption}\n" for caption in CAPTIONS)

    done = call(tmp_path, "--workdir", folder, text=text)
    assert done.returncode == 0, done.stderr
    captions = np.load(io.BytesIO(done.stdout))
    np.testing.assert_allclose(captions, run.embed_captions(CAPTIONS), atol=1e-6)
    assert b"3 captions embedded" in done.stderr

    flags = ("--workdir", folder, "--images", tmp_path / "features.npy")
    done = call(tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    images = np.load(io.BytesIO(done.stdout))
    np.testing.assert_allclose(images, run.embed_images(features), atol=1e-6)

    np.save(tmp_path / "images.npy", images)
    flags = ("--workdir", folder, "--find", tmp_path / "images.npy", "--best", 3)
    done = call(tmp_path, *flags, text=text)
    assert done.returncode == 0, done.stderr
    found = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    np.testing.assert_array_equal(found, run.rank(captions, images)[:, :3])

    for flags, message in (
        (("--workdir", folder), "standard input is empty: one caption a line"),
        (("--workdir", tmp_path), "holds no run"),
        (("--workdir", folder, "--best", 0), "--best=0: at least 1 is needed"),
        (
            ("--workdir", folder, "--images", tmp_path / "images.npy"),
            "features: an array of numbers [N, 648] is needed, not float32 [7, 8]",
        ),
    ):
        done = call(tmp_path, *flags)
        assert done.returncode == 2
        assert done.stdout == b""
        assert message in done.stderr.decode()
        assert done.stderr.count(b"\n") == 1


def test_a_block_is_answered_before_the_next_is_read(tmp_path, monkeypatch, capsys):
    class Run:
        def embed_captions(self, block):
            return np.zeros((len(block), 2))

        def rank(self, captions, images):
            return np.tile(np.arange(len(images)), (len(captions), 1))

    answers = []

    def blocks(stream):
        for block in (["a", "b"], ["c"]):
            answers.append(capsys.readouterr().out)
            yield block

    monkeypatch.setattr(lnrepro, "load", lambda *_, **__: Run())
    monkeypatch.setattr(encode_sentences, "read", blocks)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    np.save(tmp_path / "images.npy", np.zeros((2, 2)))
    embed_captions.main(["--workdir=run", f"--find={tmp_path / 'images.npy'}"])
    assert answers == ["", "0\t1\n0\t1\n"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"cposix\nsystem\n(S'true'\ntR.",
        b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': ()}",
    ],
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "features.npy"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"features.npy: not a plain .npy array"):
        embed_captions.open_array(path)
    with pytest.raises(UserError, match="No such file"):
        embed_captions.open_array(tmp_path / "nowhere.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_numbers_that_are_not_finite_are_refused_by_row(tmp_path, value):
    array = np.ones((3, 2))
    array[2, 1] = value
    np.save(tmp_path / "images.npy", array)
    with pytest.raises(UserError, match=r"images.npy, row 2: contains NaN or infinity"):
        embed_captions.open_array(tmp_path / "images.npy")
