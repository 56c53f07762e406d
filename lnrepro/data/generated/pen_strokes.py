"""`generated_strokes`: lines of invented words as pen strokes, embedded.

The letters are Hershey's single-stroke roman letters, from the package Hershey-Fonts.
Forty simulated writers differ in slant, size, width, letter spacing, speed and jitter.
Every letter is slightly turned, stretched and shifted. Offsets have units like those of
IAM-OnDB, and examples have the same columns (lnrepro/data/readers/handwriting.py).
Likelihoods on the two sets cannot be compared.

All machines make the same lines. NumPy has frozen the stream of `RandomState`, up to
the last bits of a normal number. Every decision and every rounded coordinate is at
least 5e-8 away from where it would change, and the last bits are worth 1e-12.

References:
    NumPy Enhancement Proposal 19, on the stability of random numbers.

Shape letters: n points.
"""

import itertools
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Content, Reader
from lnrepro.data.readers.handwriting import COLUMNS, Line, content_of
from lnrepro.data.readers.iam_strokes import joined, offsets

LINES = {"train": 3000, "valid": 200}
WRITERS = 40
# Characters of a line: fewest and most.
MIN_CHARACTERS = 8
MAX_CHARACTERS = 20
# Units of the data for one of Hershey's units. A capital is 21 of these tall.
SCALE = 12.0
# In Hershey's units: the width of a space, and the height of the base line.
SPACE = 14.0
BASE_LINE = 9.0
# Where a stroke turns by more than 50 degrees, there is always a point.
SHARP_COSINE = np.cos(np.deg2rad(50.0))
VOWELS = "aeiou"
CONSONANTS = "bcdfghjklmnpqrstvwxyz"
PUNCTUATION = "',."
# Smallest and largest values of the attributes of a writer, in their order.
SMALLEST = (-0.05, 0.85, 0.85, -1.5, 4.2, 0.03)
LARGEST = (0.35, 1.15, 1.1, 1.5, 5.4, 0.12)


def read(raw: RawFolder) -> Content:
    """Generate the lines of both splits."""
    splits = {split: [] for split in LINES}
    for seed, (split, lines) in enumerate(splits.items()):
        for i, (text, points) in enumerate(generate(LINES[split], seed)):
            lines.append(Line(offsets(points), text, f"{split}-{i:05}", 0))
    return content_of(splits)


def generate(count: int, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (text, points [n, 3] int32) of each line. The writers are always the same.

    Args:
      count: number of lines.
      seed: seed of texts and jitter.
    """
    # Seeds of their own, so that both splits have the same writers.
    writers = []
    for i in range(WRITERS):
        traits = np.random.RandomState(1000 + i).uniform(SMALLEST, LARGEST)
        writers.append(Writer(*traits.tolist()))
    rng = np.random.RandomState(seed)
    for _ in range(count):
        text = random_text(rng)
        yield text, writers[rng.randint(WRITERS)].write(text, rng)


def random_text(rng: np.random.RandomState) -> str:
    """Return pronounceable words, some with capitals and punctuation."""
    length = rng.randint(MIN_CHARACTERS, MAX_CHARACTERS + 1)
    words = []
    while len(" ".join(words)) < length:
        words.append(_random_word(rng))
    return " ".join(words)[:length].rstrip()


def _random_word(rng: np.random.RandomState) -> str:
    is_vowel = rng.rand() < 0.35
    word = ""
    for _ in range(rng.randint(2, 9)):
        letters = VOWELS if is_vowel else CONSONANTS
        word += letters[rng.randint(len(letters))]
        # Vowels and consonants mostly take turns, so that the words can be pronounced.
        is_vowel = rng.rand() < (0.2 if is_vowel else 0.65)
    if rng.rand() < 0.25:
        # A quarter of the words begins with a capital, and a tenth of these is all
        # capitals.
        word = word.upper() if rng.rand() < 0.1 else word.capitalize()
    if rng.rand() < 0.12:
        word += PUNCTUATION[rng.randint(len(PUNCTUATION))]
    return word


class Writer(NamedTuple):
    """A handwriting.

    Attributes:
      slant: to the right.
      size: of all that is written.
      width: of letters and spaces.
      gap: between letters.
      speed: distance of the points.
      jitter: standard deviation of the points.
    """

    slant: float
    size: float
    width: float
    gap: float
    speed: float
    jitter: float

    def write(self, text: str, rng: np.random.RandomState) -> np.ndarray:
        """Write a text.

        Args:
          text: letters that the font has, and spaces.
          rng: source of the variation.

        Returns:
          int32 [n, 3]: x, y (downwards), and 1 at the end of a stroke.
        """
        x = 0.0
        paths = []
        for character in text:
            if character == " ":
                x += SPACE * self.width * rng.uniform(0.9, 1.1)
                continue
            strokes, width = glyph(character)
            turn = rng.normal(0, 0.03)
            stretch = rng.normal(1, 0.03, 2)
            shift = rng.normal(0, 0.4, 2)
            for stroke in strokes:
                # The spacing of the points is the speed of the pen.
                spacing = self.speed * rng.uniform(0.95, 1.05)
                across, down = resample(stroke, spacing)
                # Width, slant and a small rotation. The stretch follows.
                slanted = across * self.width - down * (self.slant + turn)
                turned = across * turn + down
                path = np.array([slanted, turned]).T * stretch + shift + [x, 0]
                path += rng.normal(0, self.jitter, path.shape)
                paths.append(np.rint(path * SCALE * self.size))
            x += (width + self.gap) * self.width
        return joined(paths, np.int32)


class Stroke(NamedTuple):
    """A polyline.

    Attributes:
      points: x, to the right, and y, downwards, of each point [n, 2].
      distance: the way along the polyline to each point.
      bounds: the way to its beginning, its sharp corners and its end.
    """

    points: np.ndarray
    distance: np.ndarray
    bounds: list[float]


@cache
def glyph(character: str) -> tuple[tuple[Stroke, ...], float]:
    """Return the strokes of a letter, and its width.

    x counts to the right from the left edge, y downwards from the base line.
    """
    (found,) = _font().glyphs_for_text(character)
    origin = [found.left_offset, BASE_LINE]
    strokes = tuple(polyline(np.array(s, float) - origin) for s in found.strokes)
    return strokes, float(found.char_width)


@cache
def _font():
    from HersheyFonts import HersheyFonts

    font = HersheyFonts()
    font.load_default_font("futural")
    return font


def polyline(points: np.ndarray) -> Stroke:
    """Measure a polyline through points [n, 2]."""
    edges = np.diff(points, axis=0)
    length = np.linalg.norm(edges, axis=1)
    unit = edges / length[:, None]
    cosine = np.sum(unit[1:] * unit[:-1], axis=1)
    corners = np.flatnonzero(cosine < SHARP_COSINE) + 1
    distance = np.cumsum([0.0, *length])
    bounds = distance[[0, *corners, -1]].tolist()
    return Stroke(points, distance, bounds)


def resample(stroke: Stroke, spacing: float) -> list[np.ndarray]:
    """Return x and y of points along a polyline [2, n], with its ends and corners.

    Between these, the points have equal distances.

    Args:
      stroke: the polyline.
      spacing: the distance to aim at.
    """
    wanted = [0.0]
    for start, end in itertools.pairwise(stroke.bounds):
        # Between two corners, the number of steps that comes nearest to the spacing.
        count = max(1, round((end - start) / spacing))
        # Of so few numbers, a list takes a fifth of the time of np.linspace.
        wanted += [start + (end - start) * i / count for i in range(1, count + 1)]
    return [np.interp(wanted, stroke.distance, axis) for axis in stroke.points.T]


GENERATED_STROKES = Reader(
    title="3,200 lines of invented words in generated pen strokes of 40 writers",
    read=read,
    source=(
        "https://github.com/apshu/HersheyFonts (glyphs of A. V. Hershey, U.S. National "
        "Bureau of Standards)"
    ),
    licence="glyphs free to use and share; the lines are generated",
    size="3,000 train, 200 valid; nothing to download, 6 MB prepared",
    columns=COLUMNS,
    embedded=True,
)
