"""The embedded sets: the same on every machine, and as their descriptions say."""

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.generated import pen_strokes

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


EMBEDDED = [name for name in data.TABLE if data.reader_of(name).embedded]


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_sets_are_the_same_everywhere(name, tmp_path):
    opened = data.open_set(name, tmp_path)
    assert opened.fingerprint == f"{name}/1.0.0/{FINGERPRINTS[name]}"


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
