"""`lnrepro.load(run)` of each experiment gives what the run's own evaluation gives."""

import json
import logging
import zlib

import jax
import numpy as np
import pytest

import lnrepro
from configs import (
    attentive_reader,
    convnet,
    draw,
    handwriting,
    mnist,
    order_embeddings,
    skip_thoughts,
)
from experiments.attentive_reader import data as reader_data
from experiments.attentive_reader import evaluate as reader_evaluate
from experiments.attentive_reader.model import Reader
from experiments.order_embeddings import evaluate as order_evaluate
from experiments.order_embeddings.data import open_split
from experiments.order_embeddings.model import Encoders
from lnrepro import data
from lnrepro.data.text import Vocabulary
from lnrepro.engine.evaluation import rows_of_examples
from lnrepro.engine.train import train
from tests.refused import refused

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def trained(module, data_dir, folder, **changes):
    """Train a few steps of a smoke config, and open the run."""
    config = module.get_config("smoke")
    config.data.dir = str(data_dir)
    config.steps, config.curves, config.best.metric = 3, (), None
    config.evals = dict.fromkeys(config.evals, "never")
    config.update_from_flattened_dict(changes)
    train(config, folder)
    return lnrepro.load(folder)


def diverge(run):
    """Give a run parameters that are not finite."""
    nan = jax.tree.map(lambda p: p * np.float32(np.nan), run.weights.vars)
    run.weights = run.weights._replace(vars=nan)


@pytest.mark.parametrize("module", [mnist, convnet])
def test_classes_are_those_of_the_evaluation(module, data_dir, tmp_path):
    run = trained(module, data_dir, tmp_path / "run", **{"evals.test": "end"})
    columns = data.open_columns(run.config.data.name, "test", data_dir)
    probabilities = run.probabilities(columns["image"])
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    classes = run.classify(columns["image"])
    error = np.mean(classes != columns["label"])
    assert error == pytest.approx(run.metrics[-1]["test/error"])
    assert run.classify(columns["image"][:0]).shape == (0,)
    # A whole batch and one image give the same.
    assert run.classify(columns["image"][3:4]) == classes[3]
    for images, message in (
        (columns["image"][:, 1:], "an array of numbers [N, "),
        (columns["image"] / 16.0, "lie between 0 and 1; this network reads 0 to 16"),
        (columns["image"] * np.nan, "not finite"),
    ):
        with refused(message):
            run.classify(images)


def test_samples_do_not_depend_on_their_number(data_dir, tmp_path):
    run = trained(draw, data_dir, tmp_path / "run")
    side = run.config.model.image_size
    images = run.sample(3, seed=1)
    assert images.shape == (3, side, side)
    assert (images > 0).all()
    assert (images < 1).all()
    np.testing.assert_array_equal(run.sample(101, seed=1)[:3], images)
    assert not np.array_equal(run.sample(3, seed=2), images)
    assert run.sample(0).shape == (0, side, side)
    with refused("n = -1"):
        run.sample(-1)
    with refused("seed = 4294967296: "):
        run.sample(3, seed=2**32)


def test_embeddings_are_those_of_the_evaluation(data_dir, tmp_path, caplog):
    run = trained(order_embeddings, data_dir, tmp_path / "run")
    config, split = run.config, open_split(run.config, "test")
    expected = order_evaluate.embed(
        rows_of_examples(Encoders(config).captions),
        rows_of_examples(Encoders(config).images),
        run.vars,
        split,
        8,
        batch_size=8,
        buckets=config.buckets,
    )
    facts = data.open_set(config.data.name, data_dir).facts
    words = Vocabulary([*facts["words"], *facts["dev_words"]])
    texts = [" ".join(words.decode(split.captions.ids(i))) for i in range(40)]
    captions = run.embed_captions(texts)
    np.testing.assert_allclose(captions, expected.captions, atol=1e-5)
    images = run.embed_images(split.columns["image"][:8])
    np.testing.assert_allclose(images, expected.images, atol=1e-5)

    errors = run.errors(captions, images)
    ranked = run.rank(captions, images)
    assert ranked.shape == (40, 8)
    in_order = np.take_along_axis(errors, ranked, 1)
    assert (np.diff(in_order, axis=1) >= 0).all()

    # Capitals and punctuation that the vocabulary does not have change nothing.
    written = texts[0].capitalize() + "."
    np.testing.assert_array_equal(run.embed_captions([written])[0], captions[0])
    with caplog.at_level(logging.WARNING, "lnrepro"):
        run.embed_captions(["zzz yyy " + texts[0].split()[0]])
    assert "2 of 3 words (66.7 %) are not in the vocabulary" in caplog.text
    assert run.embed_captions([]).shape == (0, config.model.units)
    with refused("a list of str, not one str", error=TypeError):
        run.embed_captions(texts[0])
    with refused("captions[1] = ' ' has no word"):
        run.embed_captions([texts[0], " "])
    with refused("features: an array of numbers [N, 648]"):
        run.embed_images(np.zeros((2, 7)))
    with refused("images, row 3: ", "not finite"):
        # It is finite, but not as float32.
        wide = images.astype(float)
        run.rank(captions, np.where(np.arange(8)[:, None] == 3, 1e300, wide))
    diverge(run)
    with refused("embedded captions, row 0: ", "train again"):
        run.embed_captions(texts[:2])


def test_text_is_written(data_dir, tmp_path, caplog):
    run = trained(handwriting, data_dir, tmp_path / "run")
    # JAX would take it for seed 0.
    with refused("seed = 4294967296: "):
        run.write("ab c", 2**32, steps=30)
    strokes = run.write("ab c", 1, steps=30)
    assert all(stroke.shape[1] == 2 for stroke in strokes)
    for one, same in zip(strokes, run.write("ab c", 1, steps=30), strict=True):
        np.testing.assert_array_equal(one, same)
    other = np.concatenate(run.write("ab c", 2, steps=30))
    assert not np.array_equal(other, np.concatenate(strokes))
    # The units are those of the data, so that another scale gives other strokes.
    run.facts["std"] = [2 * x for x in run.facts["std"]]
    run.facts["mean"] = [2 * x for x in run.facts["mean"]]
    del run.scale
    for one, large in zip(strokes, run.write("ab c", 1, steps=30), strict=True):
        np.testing.assert_allclose(large, 2 * one, rtol=1e-5)
    run.write("7\N{RIGHT SINGLE QUOTATION MARK}s", steps=30)
    assert "not among the 57 symbols, written as 'other': 7" in caplog.text
    for text, message in (("", "is empty"), ("a" * 1001, "at most 1,000")):
        with refused(message):
            run.write(text)
    with refused("give a str", error=TypeError):
        run.write(["a"])
    diverge(run)
    with refused("points of 'ab c', row 0: ", "train again"):
        run.write("ab c", 1, steps=30)


@pytest.mark.parametrize("norm", ["layer", "batch_everywhere"])
def test_answers_are_those_of_the_evaluation(norm, data_dir, tmp_path, caplog):
    changes = {"norm": norm, "data.sentences": 2}
    run = trained(attentive_reader, data_dir, tmp_path / "run", **changes)
    config = run.config
    words = data.open_set(config.data.name, data_dir).facts["words"]
    whole = data.open_columns(config.data.name, "valid", data_dir)
    columns, reader = reader_data.open_split(config, "valid"), Reader(config)
    for k in range(6):
        one = reader_data.select(columns, np.array([k]))
        (batch,) = reader_data.evaluation_batches(config, one)
        found = reader_evaluate.metrics(reader, config, run.vars, batch)
        passage, question = (
            " ".join(words[j] for j in whole[name][k])
            for name in ("passage", "question")
        )
        answer = run.answer(passage, question)
        assert answer.words == [words[j] for j in columns["passage"][k]]
        assert answer.attention.sum() == pytest.approx(1, abs=1e-4)
        right = words[columns["answer"][k]]
        assert (answer.entity != right) == bool(found["entity_error"][0])
        if right in answer.probabilities:
            nll = -np.log(answer.probabilities[right] + 1e-8)
            assert nll == pytest.approx(float(found["nll"][0]), abs=1e-3)
    with caplog.at_level(logging.WARNING, "lnrepro"):
        run.answer("@entity1 zzz yyy xxx .", "@placeholder zzz")
    assert "are not in the vocabulary" in caplog.text
    # The words of cnn_top4 need not have one for unknown words.
    words = json.loads((tmp_path / "run/data_facts.json").read_text())
    words["words"][words["words"].index("<unk>")] = "<other>"
    (tmp_path / "run/data_facts.json").write_text(json.dumps(words))
    about = json.loads((tmp_path / "run/config.json").read_text())
    about["data"]["facts"] = zlib.crc32((tmp_path / "run/data_facts.json").read_bytes())
    (tmp_path / "run/config.json").write_text(json.dumps(about))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "lnrepro"):
        without = lnrepro.load(tmp_path / "run")
        without.answer("@entity1 zzz yyy xxx .", "@placeholder zzz")
    assert "4 of 7 words" in caplog.text
    for passage, question, message in (
        ("nobody was here", "@placeholder was", "names no @entityN"),
        ("@entity1 was here", "who was", "has 0 @placeholder tokens"),
        ("@entity9999 was", "@placeholder was", "the passage names @entity9999"),
        ("@entity1 " * 500, "@placeholder was", "the passage has 500 words: at most"),
    ):
        with refused(message):
            run.answer(passage, question)


def test_sentences_are_encoded(data_dir, tmp_path, caplog):
    run = trained(skip_thoughts, data_dir, tmp_path / "run")
    vectors = run.encode(
        ["anna went to the harbour .", "", "Anna went to the harbour."]
    )
    assert vectors.shape == (3, run.config.model.units)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1], atol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert not caplog.records
    run.encode(["zzz yyy the"])
    assert "2 of 3 words (66.7 %) are not in the vocabulary" in caplog.text
    assert run.encode([]).shape == (0, run.config.model.units)
    for wrong, message in (
        ("one sentence", "give a list of str, not one"),
        (["a", 1], "sentences[1] is of type int"),
    ):
        with refused(message, error=TypeError):
            run.encode(wrong)
    diverge(run)
    run.encoder.cache_clear()
    with refused("encoded sentences, row 0: ", "train again"):
        run.encode(["anna went to the harbour ."])
