"""scripts/embed_captions.py on a small run, and bad input."""

import io
import subprocess
import sys

import numpy as np
import pytest

import lnrepro
from tests.runs import ROOT, environment, smoke_run

CAPTIONS = ["a red square", "a blue circle above a red square", "zzz"]


@pytest.mark.slow
def test_captions_and_images_are_embedded(tmp_path):
    folder = smoke_run("order_embeddings", tmp_path)
    run = lnrepro.load(folder)
    features = np.random.default_rng(0).normal(size=(7, 648))
    np.save(tmp_path / "features.npy", features)
    (tmp_path / "pickled.npy").write_bytes(b"cposix\nsystem\n(S'true'\ntR.")

    def call(*flags, workdir=folder, text="\n".join(CAPTIONS)):  # noqa: B008
        command = [sys.executable, "scripts/embed_captions.py", "--workdir", workdir]
        return subprocess.run(
            [*command, *flags],
            cwd=ROOT,
            env=environment(tmp_path),
            input=text.encode(),
            capture_output=True,
        )

    captions = np.load(io.BytesIO(call().stdout))
    np.testing.assert_allclose(captions, run.embed_captions(CAPTIONS), atol=1e-6)
    images = np.load(io.BytesIO(call("--images", tmp_path / "features.npy").stdout))
    np.testing.assert_allclose(images, run.embed_images(features), atol=1e-6)
    for done, message in (
        (call(text=""), b"give a file on standard input"),
        (call("--images", tmp_path / "pickled.npy"), b"pickled.npy: not a plain .npy"),
    ):
        assert (done.returncode, done.stdout) == (2, b"")
        assert message in done.stderr
        assert done.stderr.count(b"\n") == 1
