"""`scenes`, embedded: small drawn pictures of coloured shapes, each with five captions that leave details out at random.

A scene has one to three objects on a black or white ground, each in a cell of a 3 x 3 grid: a shape, a colour, a size. A
caption mentions some of them, in any order, and of each it says size, colour, shape ("shape" if it does not) and place or
leaves them out; so one caption says more than another, and captions form a partial order, with scenes at its end.

An example is that of `lnrepro.data.official.captions` (with its Facts) and "picture" (36, 36, 3) uint8; "image" has 648 features
made from the picture alone. Every step is integer arithmetic and one rounded square root, so all machines make the same.
Splits: 3,000 train, 500 valid, 500 test.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.official.captions import PER_IMAGE, Captioned, vocabulary
from lnrepro.data.raw import Raw
from lnrepro.data.text import Vocabulary

SIDE, GRID = 36, 3
CELL = SIDE // GRID
SIZES = {"small": 3, "large": 5}  # half the width, in pixels
SHAPES = ("circle", "square", "triangle", "diamond")
COLOURS = {  # corners of the cube of red, green, blue
    "red": (1, 0, 0),
    "green": (0, 1, 0),
    "blue": (0, 0, 1),
    "yellow": (1, 1, 0),
    "purple": (1, 0, 1),
    "turquoise": (0, 1, 1),
}
GROUNDS = {"black": (0, 0, 0), "white": (1, 1, 1)}
PLACES = [  # row by row
    *("at the top left", "at the top", "at the top right"),
    *("on the left", "in the middle", "on the right"),
    *("at the bottom left", "at the bottom", "at the bottom right"),
]
DIRECTIONS = (
    (7, 0),
    (5, 5),
    (0, 7),
    (-5, 5),
    (-7, 0),
    (-5, -5),
    (0, -7),
    (5, -5),
)  # of edges, sevenths of a unit
FAR, FAINT = (
    60,
    420,
)  # colours less like a corner than this are not it; edges below this are noise of the pixels
CHUNK = 50  # pictures at once: their maps fit into a cache
FEATURES = len(COLOURS | GROUNDS) * (1 + len(DIRECTIONS)) * GRID * GRID
ROWS = {"train": 3000, "valid": 500, "test": 500}


class Thing(NamedTuple):
    """An object of a scene: names of its shape, colour and size, and its cell, 0..8 row by row."""

    shape: str
    colour: str
    size: str
    cell: int


class Scene(NamedTuple):
    """What a picture shows."""

    things: tuple[Thing, ...]
    ground: str


class Dice:
    """Whole random numbers, the same for a seed everywhere: straight from the bit generator."""

    def __init__(self, seed: int):
        self._bits = np.random.PCG64(seed)

    def roll(self, n: int) -> int:
        """One of 0..n-1."""
        return int(self._bits.random_raw()) % n

    def chance(self, percent: int) -> bool:
        """True so often."""
        return self.roll(100) < percent

    def of(self, things: Sequence):
        """One of the things."""
        return things[self.roll(len(things))]

    def noise(self, shape: tuple[int, ...], most: int) -> np.ndarray:
        """Whole numbers from -most to most."""
        raw = self._bits.random_raw(int(np.prod(shape))).reshape(shape)
        return (raw % np.uint64(2 * most + 1)).astype(np.int64) - most


class Scenes(Builder):
    """4,000 drawn scenes of coloured shapes, five captions each that say more or less of them."""

    source = "generated, with a fixed seed"
    licence = "the project's own"
    size = "3,000 train, 500 valid, 500 test; nothing to download, 60 MB prepared"
    embedded = True

    def features(self):
        """Features of the picture, tokens of five captions, their lengths, a number, the picture."""
        return {
            "image": array((FEATURES,), np.float32),
            "tokens": array((None,), np.int32),
            "lengths": array((PER_IMAGE,), np.int32),
            "id": array((), np.int64),
            "picture": array((SIDE, SIDE, 3), np.uint8),
        }

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Draw and describe the scenes of every split."""
        made = {}
        for seed, (split, rows) in enumerate(ROWS.items()):
            dice = Dice(seed)
            scenes = [scene(dice) for _ in range(rows)]
            pictures = np.stack([draw(s, dice) for s in scenes])
            made[split] = (
                pictures,
                [describe(s, dice).split() for s in scenes for _ in range(PER_IMAGE)],
            )
        words, dev_words = vocabulary(made["train"][1], made["valid"][1])
        self.facts |= {"words": words, "dev_words": dev_words}
        numbers = Vocabulary([*words, *dev_words])
        return {
            split: Pictured(
                features(pictures),
                captions,
                numbers,
                np.arange(len(pictures)),
                pictures,
            )
            for split, (pictures, captions) in made.items()
        }


class Pictured(Captioned):
    """`Captioned`, with pictures (N, 36, 36, 3)."""

    def __init__(self, images, captions, words, ids, pictures: np.ndarray):
        super().__init__(images, captions, words, ids)
        self.pictures = pictures

    def __getitem__(self, i: int) -> Example:
        return {**super().__getitem__(i), "picture": self.pictures[i]}


def scene(dice: Dice) -> Scene:
    """A random scene: no two of its objects are alike in shape and colour, and each has a cell to itself."""
    kinds = list(itertools.product(SHAPES, COLOURS))
    cells = list(range(GRID * GRID))
    things = []
    for _ in range(1 + dice.roll(3)):
        shape, colour = kinds.pop(dice.roll(len(kinds)))
        things.append(
            Thing(shape, colour, dice.of(list(SIZES)), cells.pop(dice.roll(len(cells))))
        )
    return Scene(tuple(things), dice.of(list(GROUNDS)))


def draw(scene: Scene, dice: Dice) -> np.ndarray:
    """The picture (36, 36, 3) uint8: objects up to a pixel off their cells' centres, and noise on every pixel."""
    corner = np.broadcast_to(np.array(GROUNDS[scene.ground]), (SIDE, SIDE, 3)).copy()
    y, x = np.mgrid[:SIDE, :SIDE]
    for thing in scene.things:
        row, column = divmod(thing.cell, GRID)
        dy = y - (CELL * row + CELL // 2 - 1 + dice.roll(3))
        dx = x - (CELL * column + CELL // 2 - 1 + dice.roll(3))
        corner[inside(thing.shape, dx, dy, SIZES[thing.size])] = COLOURS[thing.colour]
    return np.clip(25 + 205 * corner + dice.noise(corner.shape, 20), 0, 255).astype(
        np.uint8
    )


def inside(shape: str, dx: np.ndarray, dy: np.ndarray, r: int) -> np.ndarray:
    """Where a shape of half-width r covers the offsets dx, dy (whole pixels, y downwards) from its centre."""
    if shape == "circle":
        return dx * dx + dy * dy <= r * r + r // 2
    if shape == "square":
        return np.maximum(abs(dx), abs(dy)) < r
    if shape == "triangle":
        return (2 * abs(dx) <= dy + r) & (dy <= r)
    return abs(dx) + abs(dy) <= r


def describe(scene: Scene, dice: Dice) -> str:
    """A caption: each object mentioned or not (one is), each detail said or not, "left of" or "above" where it is true."""
    things = [thing for thing in scene.things if dice.chance(80)] or [
        dice.of(scene.things)
    ]
    things = [things.pop(dice.roll(len(things))) for _ in range(len(things))]
    said = []
    for i, thing in enumerate(things):
        if i:
            said.append(
                relation(things[i - 1], thing, dice) if dice.chance(50) else "and"
            )
        said.append("a")
        said += [detail for detail in (thing.size, thing.colour) if dice.chance(75)]
        said.append(thing.shape if dice.chance(85) else "shape")
        if dice.chance(35):
            said.append(PLACES[thing.cell])
    if dice.chance(40):
        said.append(f"on {scene.ground}")
    return " ".join(said)


def relation(one: Thing, other: Thing, dice: Dice) -> str:
    """How `one` lies to `other`."""
    (row, column), (other_row, other_column) = (
        divmod(one.cell, GRID),
        divmod(other.cell, GRID),
    )
    true = []
    if column != other_column:
        true.append("left of" if column < other_column else "right of")
    if row != other_row:
        true.append("above" if row < other_row else "below")
    return dice.of(true)


def features(pictures: np.ndarray) -> np.ndarray:
    """Pictures (N, 36, 36, 3) uint8 -> (N, 648) float32: non-negative, of unit length.

    How near each pixel is to each of the eight corners of the colour cube (trilinear weights, less FAR) gives eight maps;
    of each, nine sums over each cell of the grid: of the map, and of the strength of those of its edges (central
    differences, less FAINT) that run in each of eight directions. The features are the roots of the sums' shares of their
    total.
    """
    sums = np.concatenate(
        [_sums(pictures[i : i + CHUNK]) for i in range(0, len(pictures), CHUNK)]
    )
    return np.sqrt(sums / sums.sum(axis=1, keepdims=True)).astype(np.float32)


def _sums(pictures: np.ndarray) -> np.ndarray:
    """The whole numbers (N, 648) under `features`' roots."""
    values, sums = pictures.astype(np.int32), []
    for corner in [*COLOURS.values(), *GROUNDS.values()]:
        near = np.where(np.array(corner, bool), values, 255 - values)
        near = np.maximum(
            ((near[..., 0] * near[..., 1] * near[..., 2]) >> 16) - FAR, 0
        ).astype(np.int16)
        wide = np.pad(near, ((0, 0), (1, 1), (1, 1)), mode="edge")
        dx, dy = (
            wide[:, 1:-1, 2:] - wide[:, 1:-1, :-2],
            wide[:, 2:, 1:-1] - wide[:, :-2, 1:-1],
        )
        edges = np.stack([a * dx + b * dy for a, b in DIRECTIONS])
        edges = np.where(edges == edges.max(0), np.maximum(edges - FAINT, 0) // 7, 0)
        cells = [
            m.reshape(-1, GRID, CELL, GRID, CELL).sum((2, 4), dtype=np.int64)
            for m in (near, *edges)
        ]
        sums.append(np.stack(cells, axis=1))
    return np.stack(sums, axis=1).reshape(len(pictures), -1)
