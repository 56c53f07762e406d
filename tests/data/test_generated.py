"""The embedded sets: the same on every machine, and as their descriptions say."""

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.generated import news, pen_strokes, scenes
from lnrepro.data.readers import handwriting, question

# If a generator, Python or NumPy changes a set, its version is raised. Kept runs name
# these fingerprints.
FINGERPRINTS = {
    "digits": "6ab25ce795ef0ffe",
    "binarized_digits": "68d5e2ed2f6f33f1",
    "scenes": "b3877ebb26f82424",
    "news_stories": "c2f05559eb1c3db8",
    "generated_strokes": "21f077b886946e06",
    "stories": "112ac63abfc2f657",
    "story_sick": "164d744462395f0d",
    "story_mr": "2a29b5aeddc03b0c",
    "story_cr": "876da81ef0a420ee",
    "story_subj": "6c1e241b14f35dc9",
    "story_mpqa": "ade1ced1a0ae4fc9",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("embedded")


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_embedded_sets_are_the_same_everywhere(name, root):
    assert data.open_set(name, root).fingerprint == f"{name}/1.0.0/{FINGERPRINTS[name]}"


def test_every_embedded_set_has_its_fingerprint_here():
    embedded = {name for name in data.TABLE if data.reader_of(name).embedded}
    assert embedded == FINGERPRINTS.keys()


# -- strokes


class Nudged(np.random.RandomState):
    """Random numbers whose last bits differ, as on another machine."""

    def normal(self, *args, **kwargs):
        return super().normal(*args, **kwargs) * (1 + 1e-13)

    def uniform(self, *args, **kwargs):
        return super().uniform(*args, **kwargs) * (1 - 1e-13)


@pytest.mark.parametrize("count", [200, pytest.param(3000, marks=pytest.mark.slow)])
def test_the_last_bits_of_random_numbers_do_not_change_strokes(monkeypatch, count):
    wanted = list(pen_strokes.generate(count, 0))
    monkeypatch.setattr(np.random, "RandomState", Nudged)
    for (text, line), (other_text, other) in zip(
        wanted, pen_strokes.generate(count, 0), strict=True
    ):
        assert text == other_text
        np.testing.assert_array_equal(line, other)


def test_lines_are_of_known_symbols_and_their_strokes():
    for text, line in pen_strokes.generate(20, 7):
        assert set(text) <= set(handwriting.SYMBOLS)
        assert pen_strokes.MIN_CHARACTERS - 1 <= len(text) <= pen_strokes.MAX_CHARACTERS
        strokes = [len(pen_strokes.glyph(c)[0]) for c in text if c != " "]
        assert line[:, 2].sum() == sum(strokes)
        assert line[-1, 2] == 1


# -- news


def test_stories_are_questions_that_need_the_story():
    """How often an entity is named does not tell whether it is the answer."""
    likely, share = [], []
    for split, where, content in news.files():
        if split != "valid":
            continue
        q = question.parse(content, where)
        assert q.answer in q.passage
        assert q.answer not in q.question
        named = [token for token in q.passage if token.startswith("@entity")]
        counts = {entity: named.count(entity) for entity in named}
        best = [e for e in counts if counts[e] == max(counts.values())]
        likely.append((q.answer in best) / len(best))
        share.append(1 / len(counts))
    assert len(likely) == 400
    assert np.mean(likely) < np.mean(share) + 0.08
    assert np.mean(share) < 0.16


# -- scenes


def test_captions_say_what_is_true_and_some_say_more_than_others():
    choices, lengths = scenes.IntegerChoices(7), []
    for scene in [scenes.random_scene(choices) for _ in range(40)]:
        for _ in range(20):
            caption = scenes.describe(scene, choices)
            words = caption.split()
            lengths.append(len(words))
            assert set(words) & set(scenes.COLOURS) <= {t.colour for t in scene.things}
            assert set(words) & set(scenes.SHAPES) <= {t.shape for t in scene.things}
            assert words.count("a") <= len(scene.things)
            for ground in scenes.GROUNDS:
                assert not caption.endswith(f"on {ground}") or ground == scene.ground
    assert min(lengths) == 2
    assert max(lengths) > 15
