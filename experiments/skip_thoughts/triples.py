"""Batches of sentence triples, as in Kiros et al. (2015).

A triple is three sentences in a row: previous, current and next. The current sentences
of a batch have the same length.

    books = Triples(data.open_set("gutenberg"), vocabulary=20_000)
    plan = EqualLengths(books.by_length, 64, seed=0, buckets=(5, 10, 15, 20, 25, 30))
    train_batches(books, plan, pad=books.pad)
    # {"previous": (64, 30), "previous_length": (64,), "current": (64, 10), ...}

Memory does not grow with the number of sentences: they stay in mapped files, and the
order of an epoch is computed for the rows of one batch at a time.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lnrepro.data.ragged import forget_pages
from lnrepro.data.readers.book_files import LONGEST
from lnrepro.data.set_folder import SetFolder
from lnrepro.data.shuffle import permutation
from lnrepro.data.text import END, UNKNOWN, Vocabulary
from lnrepro.errors import UserError

from .permuted import permuted

# Steps of the longest sentence, including its end token.
STEPS = LONGEST + 1
# Pages of the mapped files are released after this many examples. Their scattered rows
# hold about 250 MiB by then, since Linux maps 16 pages around each that is read, and a
# release takes 40 ms (a map of 400 MiB in the cache of the system, on a Xeon).
RELEASE_EVERY = 2048


class Triples(Sequence):
    """Sentence triples, sorted by the length of the current sentence.

    An example has "previous", "current" and "next", [t] int32 each. Every sentence ends
    with the end token 0. Words outside the vocabulary are 1.

    Attributes:
      tokens: the ids of all sentences.
      triples: the current sentence of each triple [N].
      by_length: number of triples whose current sentence has 1, 2, ... words.
      vocabulary: number of ids.
      pad: the `pad` argument of `lnrepro.data.batches.train_batches`.
    """

    pad = {"previous": STEPS, "current": None, "next": STEPS}  # noqa: RUF012

    def __init__(self, books: SetFolder, vocabulary: int):
        """Use a prepared set of books.

        Args:
          books: the set.
          vocabulary: number of ids.
        """
        columns: Any = books.columns("train")
        self.tokens, self.triples = columns["tokens"], columns["triples"]
        self.by_length = books.facts["triples_by_length"]
        self.vocabulary = vocabulary
        self._reads = 0

    def __len__(self) -> int:
        return len(self.triples)

    def __getitem__(self, row: int) -> dict[str, np.ndarray]:
        offsets, values = self.tokens.offsets, self.tokens.values
        self._reads += 1
        # Pages in use count as memory of this process, and random rows touch all of
        # them in time.
        if self._reads % RELEASE_EVERY == 0:
            forget_pages(values, offsets, self.triples)
        line = int(self.triples[row])
        # Three sentences in a row lie behind one another, so four offsets bound them.
        start, *ends = offsets[line - 1 : line + 3].tolist()
        example = {}
        for name, end in zip(self.pad, ends, strict=True):
            ids = np.append(values[start:end], END).astype(np.int32)
            # Ids are in the order of frequency, so the rarest words become unknown.
            ids[ids >= self.vocabulary] = UNKNOWN
            example[name] = ids
            start = end
        return example


def vocabulary_of(facts: Mapping[str, Any], size: int) -> Vocabulary:
    """Return the vocabulary of books.

    Args:
      facts: the facts of a set of books, or of a run that was trained on it.
      size: number of ids.
    """
    # The end and the unknown token have ids too.
    return Vocabulary(facts["words"][: size - 2])


class EqualLengths:
    """Plan whose batches hold triples with current sentences of one length.

    It is a `lnrepro.data.plan.BatchPlan`. An epoch visits the lengths round-robin in a
    new random order, as long as they have a whole batch left. The triples of a length
    are shuffled in each epoch, and the last n mod B are left out. The order is that of
    the code of Kiros et al.

    Attributes:
      batch_size: number of triples in a batch.
      seed: any integer.
      buckets: lengths to pad the current sentences to, in ascending order.
      size: number of triples.
      steps_per_epoch: number of batches in an epoch.
    """

    def __init__(
        self,
        by_length: Sequence[int],
        batch_size: int,
        seed: int,
        buckets: Sequence[int],
    ):
        """Plan the batches.

        Args:
          by_length: number of triples whose current sentence has 1, 2, ... words.
          batch_size: see the attributes.
          seed: see the attributes.
          buckets: see the attributes.

        Raises:
          UserError: the batch size does not fit.
        """
        self.batch_size, self.seed, self.buckets = batch_size, seed, tuple(buckets)
        # Triples are sorted by length: those of index l are rows _first_rows[l] and the
        # following.
        self._counts = np.asarray(by_length, np.int64)
        self._first_rows = np.cumsum(self._counts) - self._counts
        self._batches = self._counts // batch_size
        self.size = int(self._counts.sum())
        self.steps_per_epoch = int(self._batches.sum())
        if not self.steps_per_epoch:
            raise UserError(
                f"config.batch_size = {batch_size}: no sentence length has so many "
                f"triples, the most frequent one has {self._counts.max(initial=0)}"
            )

    @functools.lru_cache(maxsize=2)  # noqa: B019  A plan lives as long as its run.
    def _schedule(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return two arrays [steps]: what each batch of an epoch is.

        Returns:
          The index of its length, and its number among the batches of this length.
        """
        lengths = len(self._batches)
        # The place of each length in the random order of this epoch. Every counter
        # epoch << 8 | n is a random stream of its own: n = 0 for the order of the
        # lengths, n = index + 1 for the triples of one length.
        rank = np.argsort(permutation(self.seed, epoch << 8, lengths))
        index = np.repeat(np.arange(lengths, dtype=np.int16), self._batches)
        first = np.cumsum(self._batches) - self._batches
        number = np.arange(self.steps_per_epoch, dtype=np.int64) - first[index]
        # Sort by the number first and by the rank second. The first batch of every
        # length then comes before the second batch of any.
        order = np.lexsort((rank[index], number))
        return index[order], number[order].astype(np.int32)

    def rows(self, k: int) -> np.ndarray:
        """Return the triples of batch k [B]."""
        epoch, i = divmod(k, self.steps_per_epoch)
        indices, numbers = self._schedule(epoch)
        index, start = int(indices[i]), int(numbers[i]) * self.batch_size
        positions = np.arange(start, start + self.batch_size)
        count, stream = int(self._counts[index]), epoch << 8 | (index + 1)
        return self._first_rows[index] + permuted(positions, count, self.seed, stream)

    def length(self, k: int) -> int:
        """Return the bucket of the current sentences of batch k."""
        epoch, i = divmod(k, self.steps_per_epoch)
        # Index 0 is one word, and the end token is one step more.
        steps = int(self._schedule(epoch)[0][i]) + 2
        return self.buckets[np.searchsorted(self.buckets, steps)]
