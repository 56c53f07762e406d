"""scripts/embed_captions.py on a small run."""

import io

import numpy as np
import pytest

import lnrepro
from scripts import embed_captions
from tests.runs import smoke_run
from tests.scripts.test_encode_sentences import given

CAPTIONS = ["a red square", "a blue circle above a red square", "zzz"]


@pytest.mark.slow
def test_captions_and_images_are_embedded(tmp_path, monkeypatch, capsysbinary):
    folder = smoke_run("order_embeddings", tmp_path)
    run = lnrepro.load(folder)
    features = np.random.default_rng(0).normal(size=(7, 648))
    np.save(tmp_path / "features.npy", features)
    given(monkeypatch, "\n".join(CAPTIONS).encode())
    for flags, expected in (
        ([], run.embed_captions(CAPTIONS)),
        ([f"--images={tmp_path / 'features.npy'}"], run.embed_images(features)),
    ):
        embed_captions.main([f"--workdir={folder}", *flags])
        found = np.load(io.BytesIO(capsysbinary.readouterr().out))
        np.testing.assert_allclose(found, expected, atol=1e-6)
