"""Batches of sentence triples (previous, current, next) whose current sentences have one length: Kiros et al. (2015).

    books = Triples.open("gutenberg", vocabulary=20_000)          # a source for lnrepro.data.batches
    plan = EqualLengths(books.by_length, batch_size=64, seed=0, buckets=(5, 10, 15, 20, 25, 30))
    train_batches(books, plan, pad=books.pad)                     # {"previous": (64, 30), "previous_length": (64,), ...}

Memory does not grow with the number of sentences: they stay in the mapped files, and the order of an epoch is a
permutation that is computed row by row.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

import numpy as np

from lnrepro import data
from lnrepro.data.official.books import LONGEST
from lnrepro.data.ragged import Ragged, forget_pages
from lnrepro.data.text import Vocabulary
from lnrepro.engine.errors import DataError, UserError

STEPS = LONGEST + 1  # of the longest sentence with its end token
UNKNOWN = 1
FORGET = 32  # batches read between two times of forgetting


class Triples:
    """N triples sorted by the current sentence's length; an example has `previous`, `current`, `next`, (t,) int32 each.

    Every sentence ends with the end token 0; words beyond the vocabulary are 1. `by_length`: how many triples there are
    whose current sentence has 1, 2, ... words.
    """

    pad = {"previous": STEPS, "current": None, "next": STEPS}  # noqa: RUF012

    def __init__(
        self,
        tokens: Ragged,
        triples: np.ndarray,
        by_length: Sequence[int],
        vocabulary: int,
    ):
        self.tokens, self.triples, self.by_length, self.vocabulary = (
            tokens,
            triples,
            tuple(by_length),
            vocabulary,
        )
        self._reads = 0

    @classmethod
    def open(
        cls, name: str, vocabulary: int, data_dir: str | os.PathLike | None = None
    ) -> Triples:
        """The triples of a prepared set of books. Raises DataError if it has fewer words than the vocabulary."""
        columns, facts = (
            data.open_columns(name, "train", data_dir),
            data.facts(name, data_dir),
        )
        words_of(name, vocabulary, data_dir)
        return cls(
            columns["tokens"],
            columns["triples"],
            facts["triples_by_length"],
            vocabulary,
        )

    def __len__(self) -> int:
        return len(self.triples)

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, np.ndarray]]:
        """The examples `rows`."""
        offsets, values = self.tokens.offsets, self.tokens.values
        self._reads += 1
        if self._reads % FORGET == 0:
            forget_pages(values, offsets, self.triples)
        examples = []
        for line in self.triples[np.asarray(rows)].tolist():
            a, b, c, d = offsets[line - 1 : line + 3].tolist()
            ids = values[a:d].astype(np.int32)
            ids[ids >= self.vocabulary] = UNKNOWN
            parts = (ids[: b - a], ids[b - a : c - a], ids[c - a :])
            previous, current, following = (
                np.append(part, np.int32(0)) for part in parts
            )
            examples.append(
                {"previous": previous, "current": current, "next": following}
            )
        return examples


def words_of(
    name: str, size: int, data_dir: str | os.PathLike | None = None
) -> Vocabulary:
    """The vocabulary of `size` numbers of a set of books. Raises DataError if the books have fewer words."""
    words = data.facts(name, data_dir)["words"]
    if not 2 < size <= len(words) + 2:
        raise DataError(
            f"a vocabulary of {size:,} does not fit {name}: its books have {len(words):,} different words, which with the "
            f"end and the unknown token gives 3 to {len(words) + 2:,}; set config.model.vocabulary to one of these"
        )
    return Vocabulary(words[: size - 2])


class EqualLengths:
    """Which triples make up training batch k: those of one length together, the lengths in turn (Kiros et al., code).

    An epoch orders the lengths anew and visits them round-robin, each as long as it has a whole batch left; the order
    within a length is anew a permutation, of which the last n mod B stay out. `length(k)` is the bucket that holds the
    sentences of batch k and their end token. The interface is that of `lnrepro.data.batches.Plan`, and so is what it
    promises: batch k is a function of (seed, k). Raises UserError for sizes that cannot be batched.
    """

    def __init__(
        self,
        by_length: Sequence[int],
        batch_size: int,
        seed: int,
        buckets: Sequence[int],
    ):
        counts = np.asarray(by_length, np.int64)
        self.batch_size, self.seed, self.buckets = batch_size, seed, tuple(buckets)
        self.size = int(counts.sum())
        if batch_size < 1:
            raise UserError(f"config.batch_size = {batch_size}: at least 1 is needed")
        self.batches = counts // batch_size  # of each length in an epoch
        self._first = np.cumsum(counts) - counts
        self._counts = counts
        self.steps_per_epoch = int(self.batches.sum())
        if not self.steps_per_epoch:
            raise UserError(
                f"config.batch_size = {batch_size}: no sentence length has so many triples, the most frequent one "
                f"has {int(counts.max(initial=0))}"
            )
        longest = (
            int(np.flatnonzero(self.batches)[-1]) + 2
        )  # words are counted from 1, and the end token is one more
        if (
            list(self.buckets) != sorted(set(self.buckets))
            or not self.buckets
            or self.buckets[-1] < longest
        ):
            raise UserError(
                f"buckets {self.buckets} must ascend and end with at least {longest}, the longest sentence"
            )

    def _at(self, k: int) -> tuple[int, int, int]:
        """(epoch, length - 1, which batch of that length) of batch k."""
        epoch, i = divmod(k, self.steps_per_epoch)
        turn, which = self._schedule(epoch)
        return epoch, int(turn[i]), int(which[i])

    @functools.lru_cache(maxsize=2)  # noqa: B019  a plan lives as long as its run
    def _schedule(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The length - 1 and the number among its length's batches of every batch of an epoch, (steps,) each."""
        order = (
            _philox(self.seed, epoch, 0)
            .random_raw(len(self.batches))
            .argsort(kind="stable")
        )
        rank = np.argsort(order)
        turn = np.repeat(np.arange(len(self.batches), dtype=np.int16), self.batches)
        first = np.cumsum(self.batches) - self.batches
        which = np.arange(self.steps_per_epoch, dtype=np.int64) - first[turn]
        visit = np.lexsort((rank[turn], which))
        return turn[visit], which[visit].astype(np.int32)

    def rows(self, k: int) -> np.ndarray:
        """The triples of batch k, (B,)."""
        epoch, length, which = self._at(k)
        positions = np.arange(which * self.batch_size, (which + 1) * self.batch_size)
        return self._first[length] + permuted(
            positions, int(self._counts[length]), self.seed, epoch, length + 1
        )

    def length(self, k: int) -> int:
        """The bucket of batch k's sentences with their end token."""
        return next(b for b in self.buckets if b >= self._at(k)[1] + 2)

    def draws(self, k: int) -> np.ndarray:
        """Nothing else is random about a triple."""
        raise NotImplementedError("EqualLengths draws no numbers")


def permuted(
    positions: np.ndarray, n: int, seed: int, epoch: int, stream: int, rounds: int = 6
) -> np.ndarray:
    """Where a pseudo-random permutation of range(n) takes `positions`, without making the permutation.

    A Feistel network on the smallest 4^h >= n numbers, applied until the result is below n (cycle-walking), which takes
    4 turns at most on average. Its round functions are keyed by (seed, epoch, stream). Source: Luby and Rackoff (1988).
    """
    half = max(1, (max(n - 1, 1).bit_length() + 1) // 2)
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    keys = _philox(seed, epoch, stream).random_raw(rounds)
    x = np.asarray(positions, np.uint64)

    def network(x):
        left, right = x >> shift, x & mask
        for key in keys:
            left, right = right, left ^ (_mix(right + key) & mask)
        return left << shift | right

    with np.errstate(over="ignore"):
        x = network(x)
        while (outside := x >= n).any():
            x = np.where(outside, network(x), x)
    return x.astype(np.int64)


def _mix(x: np.ndarray) -> np.ndarray:
    """Scramble uint64 numbers: the finaliser of Steele, Lea and Flood's SplitMix (2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _philox(seed: int, epoch: int, stream: int) -> np.random.Philox:
    """Raw random numbers of an epoch's stream, fixed for ever."""
    return np.random.Philox(
        key=np.array([seed % 2**64, epoch << 8 | stream], np.uint64)
    )
