"""`lnrepro.load(run)` of each experiment gives what the run's own evaluation gives."""

import logging

import jax
import numpy as np
import pytest

import lnrepro
from experiments.attentive_reader import data as reader_data
from experiments.attentive_reader import evaluate as reader_evaluate
from experiments.attentive_reader.model import Reader
from experiments.order_embeddings.data import open_split
from experiments.order_embeddings.evaluate import Embedder
from experiments.order_embeddings.model import Encoders
from lnrepro import data
from lnrepro.data.text import Vocabulary
from tests.refused import refused
from tests.runs import smoke_run

pytestmark = pytest.mark.slow


def trained(name, home, **changes):
    """Train a few steps of a smoke config, and open the run and its data set."""
    run = lnrepro.load(smoke_run(name, home, **changes))
    run.config.data.dir = str(home / "data")
    return run, data.open_set(run.config.data.name, home / "data")


def diverge(run):
    """Give a run parameters that are not finite."""
    nan = jax.tree.map(lambda p: p * np.float32(np.nan), run.weights.vars)
    run.weights = run.weights._replace(vars=nan)


def same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["mnist", "convnet"])
def test_classes_are_those_of_the_evaluation(name, tmp_path):
    run, opened = trained(name, tmp_path, **{"evals.test": "end"})
    columns = opened.columns("test")
    image = columns["image"]
    np.testing.assert_allclose(run.probabilities(image).sum(1), 1, rtol=1e-5)
    classes = run.classify(image)
    error = np.mean(classes != columns["label"])
    assert error == pytest.approx(run.metrics[-1]["test/error"])
    # A whole batch and one image give the same.
    assert run.classify(image[3:4]) == classes[3]
    for images, message in (
        (image[:, 1:], "an array of numbers [N, "),
        (image / 16.0, "lie between 0 and 1; this network reads 0 to 16"),
        # It is finite, but not as float32.
        (image * 1e300, "images, row 0: some numbers are not finite"),
    ):
        with refused(message):
            run.classify(images)


def test_samples_do_not_depend_on_their_number(tmp_path):
    run, _ = trained("draw", tmp_path)
    images = run.sample(3, seed=1)
    assert images.shape == (3, *[run.config.model.image_size] * 2)
    assert ((images > 0) & (images < 1)).all()
    same(run.sample(101, seed=1)[:3], images)
    assert not np.array_equal(run.sample(3, seed=2), images)
    assert run.sample(0).shape == (0, *images.shape[1:])
    for n, seed, message in ((-1, 0, "n = -1"), (3, 2**32, "seed = 4294967296: ")):
        with refused(message):
            run.sample(n, seed)


def test_embeddings_are_those_of_the_evaluation(tmp_path, caplog):
    run, opened = trained("order_embeddings", tmp_path)
    facts = opened.facts
    columns, stored = open_split(run.config, "test")
    embedder = Embedder(run.config, Encoders(run.config))
    words = Vocabulary([*facts["words"], *facts["dev_words"]])
    texts = [" ".join(words.decode(stored.ids(i))) for i in range(40)]
    captions = run.embed_captions(texts)
    expected = embedder.captions(run.vars, stored, 8)
    np.testing.assert_allclose(captions, expected, atol=1e-5)
    images = run.embed_images(columns["image"][:8])
    ranked = run.rank(captions, images)
    assert ranked.shape == (40, 8)
    in_order = np.take_along_axis(run.errors(captions, images), ranked, 1)
    assert (np.diff(in_order, axis=1) >= 0).all()

    # Capitals and punctuation that the vocabulary does not have change nothing.
    written = texts[0].capitalize() + "."
    same(run.embed_captions([written]), captions[:1])
    with caplog.at_level(logging.WARNING, "lnrepro"):
        run.embed_captions(["zzz yyy " + texts[0].split()[0]])
    assert "2 of 3 words are not in the vocabulary" in caplog.text
    with pytest.warns(UserWarning, match="1 of 2 captions are longer than 29 words"):
        run.embed_captions([texts[0], "circle " * 40])
    with refused("captions[1] = ' ' has no word"):
        run.embed_captions([texts[0], " "])
    with refused("features: an array of numbers [N, 648]"):
        run.embed_images(np.zeros((2, 7)))
    diverge(run)
    with refused("embedded captions, row 0: ", "train again"):
        run.embed_captions(texts[:2])


def test_text_is_written(tmp_path, caplog):
    run, _ = trained("handwriting", tmp_path)
    strokes = run.write("ab c", 1, steps=30)
    same(run.write("ab c", 1, steps=30), strokes)
    other = np.concatenate(run.write("ab c", 2, steps=30))
    assert not np.array_equal(other, np.concatenate(strokes))
    # The units are those of the data, so that another scale gives other strokes.
    for name in ("mean", "std"):
        run.facts[name] = [2 * x for x in run.facts[name]]
    del run.scale
    for one, large in zip(strokes, run.write("ab c", 1, steps=30), strict=True):
        np.testing.assert_allclose(large, 2 * one, rtol=1e-5)
    run.write("7\N{RIGHT SINGLE QUOTATION MARK}s", steps=30)
    assert "not among the 57 symbols, written as 'other': 7" in caplog.text
    assert "was not finished" in caplog.text
    for text, options, message in (
        ("", {}, "is empty"),
        ("a" * 1001, {}, "at most 1,000"),
        # JAX would take it for seed 0.
        ("a", {"seed": 2**32}, "seed = 4294967296: "),
        ("a", {"bias": 21}, "bias = 21: "),
        ("a", {"steps": 0}, "steps = 0: "),
    ):
        with refused(message):
            run.write(text, **options)
    diverge(run)
    with refused("points of 'ab c', row 0: ", "train again"):
        run.write("ab c", 1, steps=30)


@pytest.mark.parametrize("norm", ["layer", "batch_everywhere"])
def test_answers_are_those_of_the_evaluation(norm, tmp_path, caplog):
    changes = {"norm": norm, "data.sentences": 2}
    run, opened = trained("attentive_reader", tmp_path, **changes)
    words, whole = opened.facts["words"], opened.columns("valid")
    columns = reader_data.open_split(run.config, "valid")
    # One question at a time.
    batches = reader_data.evaluation_batches(run.config, columns, np.arange(6), 1)
    for batch in batches:
        (k,), reader = batch["index"], Reader(run.config)
        found = reader_evaluate.metrics(reader, run.config, run.vars, batch)
        texts = [
            " ".join(words[j] for j in whole[name][k]) for name in reader_data.TEXTS
        ]
        answer = run.answer(*texts)
        assert answer.words == [words[j] for j in columns["passage"][k]]
        assert answer.attention.sum() == pytest.approx(1, abs=1e-4)
        right = words[columns["answer"][k]]
        assert (answer.entity != right) == bool(found["entity_error"][0])
        if right in answer.probabilities:
            nll = -np.log(answer.probabilities[right] + 1e-8)
            assert nll == pytest.approx(float(found["nll"][0]), abs=1e-3)
    without = lnrepro.load(run.folder)
    # The words of cnn_top4 need not have one for unknown words.
    words = without.facts["words"]
    words[words.index("<unk>")] = "<other>"
    for one in (run, without):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "lnrepro"):
            one.answer("@entity1 zzz yyy xxx .", "@placeholder zzz")
        assert "4 of 7 words" in caplog.text
    for passage, question, message in (
        ("nobody was here", "@placeholder was", "names no @entityN"),
        ("@entity1 was here", "who was", "has 0 @placeholder tokens"),
        ("@entity9999 was", "@placeholder was", "the passage names @entity9999"),
        ("@entity1 " * 500, "@placeholder was", "passage: an example of length 500"),
    ):
        with refused(message):
            run.answer(passage, question)


def test_sentences_are_encoded(tmp_path, caplog):
    run, _ = trained("skip_thoughts", tmp_path)
    texts = ["anna went to the harbour .", "", "Anna went to the harbour."]
    vectors = run.encode(texts)
    assert vectors.shape == (3, run.config.model.units)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1], atol=1e-5)
    same(vectors[0], vectors[2])
    assert not caplog.records
    run.encode(["zzz yyy the"])
    assert "2 of 3 words are not in the vocabulary" in caplog.text
    for wrong in ("one sentence", ["a", 1]):
        with refused("sentences: give a list of str", error=TypeError):
            run.encode(wrong)
    diverge(run)
    run.encoder.cache_clear()
    with refused("encoded sentences, row 0: ", "train again"):
        run.encode(texts)
