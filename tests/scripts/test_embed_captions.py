"""scripts/embed_captions.py on a small run, and bad input."""

import io

import numpy as np
import pytest

import lnrepro
from scripts import embed_captions
from tests.refused import refused
from tests.runs import smoke_run
from tests.scripts.test_encode_sentences import given

CAPTIONS = ["a red square", "a blue circle above a red square", "zzz"]


@pytest.mark.slow
def test_captions_and_images_are_embedded(tmp_path, monkeypatch, capsysbinary):
    folder = smoke_run("order_embeddings", tmp_path)
    run = lnrepro.load(folder)
    features = np.random.default_rng(0).normal(size=(7, 648))
    np.save(tmp_path / "features.npy", features)
    (tmp_path / "pickled.npy").write_bytes(b"cposix\nsystem\n(S'true'\ntR.")

    def embed(*flags):
        embed_captions.main([f"--workdir={folder}", *flags])
        return np.load(io.BytesIO(capsysbinary.readouterr().out))

    given(monkeypatch, "\n".join(CAPTIONS).encode())
    np.testing.assert_allclose(embed(), run.embed_captions(CAPTIONS), atol=1e-6)
    images = embed(f"--images={tmp_path / 'features.npy'}")
    np.testing.assert_allclose(images, run.embed_images(features), atol=1e-6)
    with refused("pickled.npy: not a plain .npy"):
        embed(f"--images={tmp_path / 'pickled.npy'}")
    given(monkeypatch, b"")
    with refused("give a file on standard input"):
        embed()
