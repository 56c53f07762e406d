"""Seeded random choices that are the same on every machine and in every version.

Generated data sets must never change, because their fingerprints identify them. Python
guarantees the stream of `random.Random(seed).random()` for ever. It does not guarantee
that of `choice`, `shuffle` or `sample`, so they are built here from that stream alone.
"""

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """A stream of random choices."""

    def __init__(self, seed: int):
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        """Return one of 0, ..., n - 1."""
        return int(self._random() * n)

    def choose(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[self.below(len(items))]

    def take(self, items: list[T]) -> T:
        """Remove one of the items, and return it."""
        return items.pop(self.below(len(items)))

    def shuffle(self, items: Iterable[T]) -> list[T]:
        """Return the items in random order."""
        return sorted(items, key=lambda _: self._random())
