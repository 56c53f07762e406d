"""`scenes`: drawn pictures of coloured shapes with five captions each, embedded.

A scene has one to three objects on a black or white ground. Each object has a shape, a
colour and a size, and lies in its own cell of a 3 x 3 grid. A caption mentions some of
the objects in any order. Of each it gives or leaves out the size, colour, shape and
place. So one caption says more than another: captions form a partial order, with scenes
at its end.

An example has the fields of `lnrepro.data.readers.captions`, and "picture", uint8
[36, 36, 3]. "image" has 648 features that are computed from the picture alone. Every
step is integer arithmetic, followed by one square root, so that all machines compute
the same.

Shape letters: N pictures.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.ndimage import correlate1d

from lnrepro.data.generated.choices import Choices
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Content, Reader
from lnrepro.data.readers.caption_files import PER_IMAGE, Split
from lnrepro.data.readers.captions import COLUMNS, content_of

EXAMPLES = {"train": 3000, "valid": 500, "test": 500}
# Pixels in a side of a picture, cells in a side of the grid, pixels in a side of a
# cell.
SIDE = 36
GRID = 3
CELL = SIDE // GRID
# Pictures whose features are computed together.
TOGETHER = 50
# The cell of each pixel of a row or a column, as a matrix of zeros and ones.
POOL = np.repeat(np.eye(GRID, dtype=np.float32), CELL, axis=0)
# Half the width of an object in pixels.
SIZES = {"small": 3, "large": 5}
SHAPES = ("circle", "square", "triangle", "diamond")
# Colours are corners of the cube of red, green and blue.
COLOURS = {
    "red": (1, 0, 0),
    "green": (0, 1, 0),
    "blue": (0, 0, 1),
    "yellow": (1, 1, 0),
    "purple": (1, 0, 1),
    "turquoise": (0, 1, 1),
}
GROUNDS = {"black": (0, 0, 0), "white": (1, 1, 1)}
# By cell, row by row.
PLACES = (
    "at the top left",
    "at the top",
    "at the top right",
    "on the left",
    "in the middle",
    "on the right",
    "at the bottom left",
    "at the bottom",
    "at the bottom right",
)
# Directions of edges, in sevenths of a unit.
DIRECTIONS = ((7, 0), (5, 5), (0, 7), (-5, 5), (-7, 0), (-5, -5), (0, -7), (5, -5))
# A colour that is less similar to a corner of the cube does not count.
MIN_SIMILARITY = 60
# A weaker edge is noise of the pixels.
MIN_EDGE = 420
# Chances in percent that a caption gives a detail.
MENTION_OBJECT = 80
MENTION_SIZE_OR_COLOUR = 75
MENTION_SHAPE = 85
MENTION_PLACE = 35
MENTION_RELATION = 50
MENTION_GROUND = 40


class Thing(NamedTuple):
    """An object of a scene.

    Attributes:
      shape: one of `SHAPES`.
      colour: one of `COLOURS`.
      size: one of `SIZES`.
      cell: 0 to 8, row by row.
    """

    shape: str
    colour: str
    size: str
    cell: int


class Scene(NamedTuple):
    """Content of a picture: its objects, and the colour of its ground."""

    things: list[Thing]
    ground: str


class IntegerChoices(Choices):
    """Choices from the integers of numpy's PCG64, which also gives arrays of noise."""

    def __init__(self, seed: int):
        self._raw = np.random.PCG64(seed).random_raw

    def below(self, n: int) -> int:
        """Return one of 0, ..., n - 1."""
        return int(self._raw()) % n

    def chance(self, percent: int) -> bool:
        """Return True in `percent` of a hundred calls."""
        return self.below(100) < percent

    def noise(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array of integers from -20 to 20."""
        numbers = self._raw(np.prod(shape)) % np.uint64(41)
        return numbers.astype(np.int64).reshape(shape) - 20


def read(raw: RawFolder) -> Content:
    """Draw and describe the scenes of every split."""
    pictures, images, captions = {}, {}, {}
    # Every split has a random stream of its own, which depends on no other split.
    for seed, (split, count) in enumerate(EXAMPLES.items()):
        choices = IntegerChoices(seed)
        scenes = [random_scene(choices) for _ in range(count)]
        drawn = np.stack([draw(scene, choices) for scene in scenes])
        # So few pictures at a time stay in the cache of the CPU: half the time.
        parts = np.split(drawn, count // TOGETHER)
        images[split] = np.concatenate([features(part) for part in parts])
        pictures[split] = drawn
        by_image = []
        for scene in scenes:
            by_image.append([describe(scene, choices) for _ in range(PER_IMAGE)])
        captions[split] = Split(by_image, np.arange(count))
    content = content_of(images, captions)
    for split, columns in content.splits.items():
        columns["picture"] = pictures[split]
    return content


def random_scene(choices: IntegerChoices) -> Scene:
    """Return a scene in which no two objects share both shape and colour, or a cell."""
    kinds = list(itertools.product(SHAPES, COLOURS))
    cells = list(range(GRID * GRID))
    things = []
    for _ in range(1 + choices.below(3)):
        # The kind and the cell are not left for the next object.
        shape, colour = choices.take(kinds)
        size = choices.choose(list(SIZES))
        things.append(Thing(shape, colour, size, choices.take(cells)))
    return Scene(things, choices.choose(list(GROUNDS)))


def draw(scene: Scene, choices: IntegerChoices) -> np.ndarray:
    """Draw a scene as uint8 [36, 36, 3].

    Each object lies within a pixel of the centre of its cell. Every pixel has noise.

    Args:
      scene: what is drawn.
      choices: source of offsets and noise.
    """
    colour = np.full((SIDE, SIDE, 3), GROUNDS[scene.ground])
    for thing in scene.things:
        # The centre of the cell, moved by -1, 0 or 1 pixel.
        row, column = (
            CELL * cell + CELL // 2 - 1 + choices.below(3)
            for cell in divmod(thing.cell, GRID)
        )
        dy, dx = np.mgrid[-row : SIDE - row, -column : SIDE - column]
        inside = is_inside(thing.shape, dx, dy, SIZES[thing.size])
        colour[inside] = COLOURS[thing.colour]
    # Values of 0 and 1 become 25 and 230, and noise of at most 20 stays in the range of
    # uint8.
    return (25 + 205 * colour + choices.noise(colour.shape)).astype(np.uint8)


def is_inside(shape: str, dx: np.ndarray, dy: np.ndarray, r: int) -> np.ndarray:
    """Return which offsets from its centre a shape covers.

    Args:
      shape: one of `SHAPES`.
      dx: offsets to the right in pixels.
      dy: offsets downwards in pixels.
      r: half the width of the shape.
    """
    if shape == "circle":
        return dx * dx + dy * dy <= r * r + r // 2
    if shape == "square":
        return np.maximum(abs(dx), abs(dy)) < r
    if shape == "triangle":
        return (2 * abs(dx) <= dy + r) & (dy <= r)
    return abs(dx) + abs(dy) <= r


def describe(scene: Scene, choices: IntegerChoices) -> list[str]:
    """Return a caption that mentions at least one object and leaves details out.

    Args:
      scene: what is described.
      choices: decides what is mentioned.
    """
    mentioned = [t for t in scene.things if choices.chance(MENTION_OBJECT)]
    if not mentioned:
        mentioned = [choices.choose(scene.things)]
    # Draw the order in which objects are mentioned.
    things = [choices.take(mentioned) for _ in range(len(mentioned))]
    words: list[str] = []
    for i, thing in enumerate(things):
        if i and choices.chance(MENTION_RELATION):
            words.append(relation(things[i - 1], thing, choices))
        elif i:
            words.append("and")
        words.append("a")
        for detail in (thing.size, thing.colour):
            if choices.chance(MENTION_SIZE_OR_COLOUR):
                words.append(detail)
        words.append(thing.shape if choices.chance(MENTION_SHAPE) else "shape")
        if choices.chance(MENTION_PLACE):
            words.append(PLACES[thing.cell])
    if choices.chance(MENTION_GROUND):
        words.append(f"on {scene.ground}")
    return " ".join(words).split()


def relation(one: Thing, other: Thing, choices: IntegerChoices) -> str:
    """Return where `one` lies as seen from `other`, such as "left of".

    Args:
      one: an object.
      other: another object.
      choices: decides between two that are true.
    """
    row, column = np.subtract(divmod(one.cell, GRID), divmod(other.cell, GRID))
    options = {"left of": column < 0, "right of": column > 0}
    options |= {"above": row < 0, "below": row > 0}
    return choices.choose([where for where, is_true in options.items() if is_true])


def features(pictures: np.ndarray) -> np.ndarray:
    """Compute non-negative features of unit length, float32 [N, 648].

    Each corner of the colour cube gives a map of how similar each pixel is to it. For
    each cell of the grid, nine numbers are summed over each map: the map itself, and
    the strength of its edges in each of eight directions. The features are the square
    roots of the sums, divided by their total.

    Args:
      pictures: uint8 [N, 36, 36, 3].
    """
    values = pictures.astype(np.int32)
    sums = []
    for corner in (*COLOURS.values(), *GROUNDS.values()):
        # The similarity is a trilinear weight.
        weight = np.where(np.array(corner, bool), values, 255 - values)
        # 255^3 / 2^16 is 253, so the product fits 8 bits.
        product = (weight[..., 0] * weight[..., 1] * weight[..., 2]) >> 16
        similarity = np.maximum(product - MIN_SIMILARITY, 0).astype(np.int16)
        # Edges are central differences. At the border, the pixel itself is the other.
        dy, dx = (
            correlate1d(similarity, [-1, 0, 1], axis, mode="nearest") for axis in (1, 2)
        )
        # The derivative along each direction. Each pixel counts in the strongest one
        # only.
        edges = np.stack([a * dx + b * dy for a, b in DIRECTIONS])
        strength = np.maximum(edges - MIN_EDGE, 0) // 7
        edges = np.where(edges == edges.max(0), strength, 0)
        maps = np.stack([similarity, *edges], axis=1)
        # The sum over each cell, which float32 holds exactly.
        sums.append(POOL.T @ maps @ POOL)
    numbers = np.stack(sums, axis=1).reshape(len(pictures), -1).astype(np.int64)
    total = numbers.sum(axis=1, keepdims=True)
    return np.sqrt(numbers / total).astype(np.float32)


SCENES = Reader(
    title="4,000 drawn scenes of coloured shapes, with five captions each",
    read=read,
    source="generated, with a fixed seed",
    licence="the project's own",
    size="3,000 train, 500 valid, 500 test; nothing to download, 27 MB prepared",
    columns=COLUMNS,
    embedded=True,
)
