"""`generated_strokes`: lines of invented words as pen strokes, made here, not written by anybody.

Glyphs are Hershey's single-stroke roman letters (by the package Hershey-Fonts). Forty "writers" differ in slant, size,
width, letter spacing, speed and jitter; every letter they write is a little turned, stretched and shifted. Offsets are
in units like IAM-OnDB's and examples have its form (`iam_ondb.py`), so that whatever runs on one runs on the other;
likelihoods of the two have nothing to do with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from lnrepro.data.builder import Builder, Example
from lnrepro.data.official.iam_ondb import FEATURES, SYMBOLS, example, facts, offsets
from lnrepro.data.raw import Raw

LINES = {"train": 3000, "valid": 200}
WRITERS = 40
CHARACTERS = (8, 20)  # least and most of a line
UNIT = 12.0  # whiteboard units of one of Hershey's, of which a capital is 21 tall
SPACE = 14.0  # width of a space, in Hershey's units
CORNER = np.cos(np.deg2rad(50.0))  # where a stroke turns by more, there is a point
VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"


class GeneratedStrokes(Builder):
    """Generated pen strokes: 3,200 lines of invented words in Hershey's letters, varied by 40 made-up writers."""

    source = "https://github.com/apshu/HersheyFonts (glyphs of A. V. Hershey, U.S. National Bureau of Standards)"
    licence = "glyphs free to use and share; the lines are generated"
    size = "3,000 train, 200 valid; nothing to download, 10 MB prepared"
    embedded = True

    def features(self):
        """As IAM-OnDB's."""
        return FEATURES

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Generates the lines of both splits, always the same ones."""
        other: Counter = Counter()
        splits = {
            split: [
                example(offsets(line), text, f"{split}-{i:05}", 0, other)
                for i, (text, line) in enumerate(generate(count, seed))
            ]
            for seed, (split, count) in enumerate(LINES.items())
        }
        self.facts |= facts(splits["train"], other)
        return splits


def generate(count: int, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """`count` lines: (text, points (n, 3) int32 as of `iam_ondb.points`). The same writers, whatever the seed."""
    writers = [Writer(np.random.RandomState(1000 + i)) for i in range(WRITERS)]
    rng = np.random.RandomState(seed)
    for _ in range(count):
        text = sentence(rng)
        yield text, writers[rng.randint(WRITERS)].write(text, rng)


def sentence(rng: np.random.RandomState) -> str:
    """Pronounceable words with capitals and punctuation now and then, of CHARACTERS characters together."""
    length, words = rng.randint(CHARACTERS[0], CHARACTERS[1] + 1), []
    while len(" ".join(words)) < length:
        vowel, word = rng.rand() < 0.35, ""
        for _ in range(rng.randint(2, 9)):
            word += (VOWELS if vowel else CONSONANTS)[rng.randint(5 if vowel else 21)]
            vowel = rng.rand() < (0.2 if vowel else 0.65)
        if rng.rand() < 0.25:
            word = word.upper() if rng.rand() < 0.1 else word.capitalize()
        if rng.rand() < 0.12:
            word += "',."[rng.randint(3)]
        words.append(word)
    return " ".join(words)[:length].rstrip()


class Writer:
    """A hand: how it slants, stretches, spaces, hurries and trembles."""

    def __init__(self, rng: np.random.RandomState):
        self.slant, self.size, self.width = (
            rng.uniform(-0.05, 0.35),
            rng.uniform(0.85, 1.15),
            rng.uniform(0.85, 1.1),
        )
        self.gap, self.speed, self.jitter = (
            rng.uniform(-1.5, 1.5),
            rng.uniform(4.2, 5.4),
            rng.uniform(0.03, 0.12),
        )

    def write(self, text: str, rng: np.random.RandomState) -> np.ndarray:
        """Points (n, 3) int32 of a text of SYMBOLS: x, y (downwards) and 1 at the end of a stroke."""
        at, found, ends = 0.0, [], []
        for character in text:
            if character == " ":
                at += SPACE * self.width * rng.uniform(0.9, 1.1)
                continue
            strokes, width = glyph(character)
            turn, stretch = rng.normal(0, 0.03), rng.normal(1, 0.03, 2)
            shape = np.array([[self.width, turn], [-self.slant - turn, 1.0]]) * stretch
            lift = rng.normal(0, 0.4, 2)
            for stroke in strokes:
                path = (
                    resample(stroke, self.speed * rng.uniform(0.95, 1.05)) @ shape
                    + lift
                    + [at, 0]
                )
                found.append(path + rng.normal(0, self.jitter, path.shape))
                ends.append(len(path))
            at += (width + self.gap) * self.width
        line = np.zeros((sum(ends), 3), np.int32)
        line[:, :2] = np.rint(np.concatenate(found) * UNIT * self.size)
        line[np.cumsum(ends) - 1, 2] = 1
        return line


@cache
def glyph(character: str) -> tuple[tuple[np.ndarray, ...], float]:
    """Strokes (n, 2) of a letter, x to the right from its left edge, y down from the base line; and its width."""
    (found,) = _font().glyphs_for_text(character)
    edge, base = found.left_offset, 9.0
    return tuple(
        np.array(stroke, float) - [edge, base] for stroke in found.strokes
    ), float(found.char_width)


@cache
def _font():
    from HersheyFonts import HersheyFonts

    font = HersheyFonts()
    font.load_default_font("futural")
    return font


def resample(path: np.ndarray, spacing: float) -> np.ndarray:
    """Points along a polyline (n, 2) at equal distances near `spacing`, its ends and sharp corners among them."""
    along = np.diff(path, axis=0)
    length = np.hypot(*along.T)
    along, length = along[length > 0], length[length > 0]
    path = np.concatenate([path[:1], path[0] + np.cumsum(along, axis=0)])
    if not len(along):
        return path
    unit = along / length[:, None]
    sharp = np.flatnonzero(np.sum(unit[1:] * unit[:-1], axis=1) < CORNER) + 1
    place = np.concatenate([[0.0], np.cumsum(length)])
    parts = [np.zeros(1)]
    for begin, end in zip([0, *sharp], [*sharp, len(path) - 1], strict=True):
        count = max(1, round((place[end] - place[begin]) / spacing))
        parts.append(np.linspace(place[begin], place[end], count + 1)[1:])
    wanted = np.concatenate(parts)
    return np.stack([np.interp(wanted, place, path[:, i]) for i in range(2)], axis=1)


assert set(VOWELS + CONSONANTS + " ',.") <= set(SYMBOLS)
