"""The embedded sets: the same on every machine, and as their descriptions say."""

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.generated import digits, news, pen_strokes, scenes, stories
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
    assert data.fingerprint(name, root) == f"{name}/1.0.0/{FINGERPRINTS[name]}"


def test_every_embedded_set_has_its_fingerprint_here():
    embedded = {name for name in data.TABLE if data.reader_of(name).embedded}
    assert embedded == FINGERPRINTS.keys()


# -- digits


def test_digits_are_scikit_learns(root):
    from sklearn.datasets import load_digits

    bunch = load_digits()
    splits = [data.open_columns("digits", s, root) for s in ("train", "valid", "test")]
    assert [len(split["label"]) for split in splits] == [1437, 180, 180]
    for name, wanted in (("image", bunch.images), ("label", bunch.target)):
        found = np.concatenate([split[name] for split in splits])
        np.testing.assert_array_equal(found, wanted)


def test_enlarging_keeps_paper_ink_and_symmetry():
    grey = np.zeros((1, 8, 8))
    grey[0, 2:6, 2:6] = 1
    large = digits.enlarge(grey)[0]
    assert large.shape == (28, 28)
    assert (large[14, 14], large[0, 0]) == (1, 0)
    np.testing.assert_allclose(large, large[::-1], atol=1e-12)
    np.testing.assert_allclose(large, large.T, atol=1e-12)
    # A square of 4 x 4, three times as large.
    assert abs(large.sum() - 12 * 12) < 12


def test_binarising_draws_each_pixel_with_its_grey_level():
    grey = np.full((2000, 4, 4), 0.3)
    drawn = digits.binarise(grey)
    assert abs(drawn.mean() - 0.3) < 5 * np.sqrt(0.21 / grey.size)
    assert not (drawn[0] == drawn).all()
    assert digits.binarise(np.ones((1, 28, 28))).all()
    assert not digits.binarise(np.zeros((1, 28, 28))).any()


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
        assert not handwriting.encode(text)[1]
        assert pen_strokes.MIN_CHARACTERS - 1 <= len(text) <= pen_strokes.MAX_CHARACTERS
        strokes = [len(pen_strokes.glyph(c)[0]) for c in text if c != " "]
        assert line[:, 2].sum() == sum(strokes)
        assert line[-1, 2] == 1


def test_every_symbol_has_a_glyph_on_the_base_line():
    for character in handwriting.SYMBOLS[2:]:
        strokes, width = pen_strokes.glyph(character)
        x = np.concatenate([stroke.x for stroke in strokes])
        y = np.concatenate([stroke.y for stroke in strokes])
        assert 0 <= x.min() <= x.max() <= width
        assert -22 <= y.min() <= y.max() <= 8


def test_resampled_paths_keep_ends_and_corners_and_equal_distances():
    path = np.array([[0, 0], [10, 0], [10, 0], [10, 20]], float)
    found = pen_strokes.resample(pen_strokes.polyline(path), 3.0)
    np.testing.assert_allclose(found[[0, -1]], path[[0, -1]])
    assert (found == [10, 0]).all(1).any()
    distances = np.linalg.norm(np.diff(found, axis=0), axis=1)
    np.testing.assert_allclose(distances, [10 / 3] * 3 + [20 / 7] * 7)
    point = pen_strokes.polyline(np.ones((3, 2)))
    assert pen_strokes.resample(point, 2.0)[0].tolist() == [1, 1]


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


# -- stories


def test_labels_are_balanced_and_pairs_are_graded():
    for task in ("mr", "cr", "subj", "mpqa"):
        labels = [label for _, label in stories.labelled(task)]
        assert labels == [1] * (stories.LABELLED // 2) + [0] * (stories.LABELLED // 2)
    pairs = [pair for split in stories.PAIRS for pair in stories.pairs(split)]
    scores = np.array([score for _, _, score in pairs])
    assert set(scores.round(1)) <= {1.0, 1.9, 2.8, 3.7, 4.6, 5.0}
    assert scores.std() > 1
    assert all(score >= 4.6 for a, b, score in pairs if a == b)


# -- scenes


@pytest.fixture(scope="module")
def some():
    choices = scenes.IntegerChoices(7)
    made = [scenes.random_scene(choices) for _ in range(40)]
    return made, np.stack([scenes.draw(scene, choices) for scene in made])


def test_things_share_neither_cell_nor_kind(some):
    made, pictures = some
    assert pictures.shape == (40, 36, 36, 3)
    assert {len(scene.things) for scene in made} == {1, 2, 3}
    for scene in made:
        cells = {thing.cell for thing in scene.things}
        kinds = {(thing.shape, thing.colour) for thing in scene.things}
        assert len(cells) == len(kinds) == len(scene.things)


def test_features_come_from_the_picture_and_lie_on_the_positive_sphere(some):
    _, pictures = some
    found = scenes.features(pictures)
    assert found.shape == (40, scenes.FEATURES)
    assert (found >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(scenes.features(pictures[3:4])[0], found[3])


def lone(shape):
    """The sums under the features of one large red thing in the middle."""
    scene = scenes.Scene((scenes.Thing(shape, "red", "large", 4),), "black")
    picture = scenes.draw(scene, scenes.IntegerChoices(0))
    return scenes.features(picture[None])[0].reshape(8, 9, 9) ** 2


def test_features_tell_colour_place_and_direction():
    square, diamond = lone("square"), lone("diamond")
    assert square[0, 0].argmax() == 4
    # There is no green.
    assert square[1, 0].max() == 0
    edges = square[0, 1:, 4]
    assert edges[::2].sum() > 5 * edges[1::2].sum()
    edges = diamond[0, 1:, 4]
    assert edges[1::2].sum() > 5 * edges[::2].sum()


def test_captions_say_what_is_true_and_some_say_more_than_others(some):
    choices, lengths = scenes.IntegerChoices(1), []
    for scene in some[0]:
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


@pytest.mark.parametrize(
    ("cell", "other", "true"),
    [(0, 2, {"left of"}), (8, 0, {"right of", "below"}), (1, 7, {"above"})],
)
def test_relations_are_true(cell, other, true):
    one = scenes.Thing("circle", "red", "small", cell)
    choices = scenes.IntegerChoices(0)
    found = {scenes.relation(one, one._replace(cell=other), choices) for _ in range(50)}
    assert found == true
