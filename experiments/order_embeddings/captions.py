"""The captions of a prepared split, as padded batches.

Shape letters: N images, C captions, B captions of a batch, T steps.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from lnrepro.data.ragged import Ragged
from lnrepro.data.text import END, UNKNOWN


class Captions:
    """The captions of a prepared split.

    Attributes:
      starts: number of the first caption of each image, and of all captions [N + 1].
      image: row of the image of each caption [C].
      lengths: number of steps of each caption, including the end token, [C].
    """

    def __init__(self, columns: Mapping[str, Any], vocabulary: int, longest: int):
        """Use the columns of a split. Warn if some captions are too long.

        Args:
          columns: the columns of the split.
          vocabulary: number of word ids. Larger ids become <unk>.
          longest: number of steps of the longest caption, including the end token.
            Longer captions are cut.
        """
        self._vocabulary = vocabulary
        # "lengths" has the number of words of each caption, one row for each image.
        words = columns["lengths"]
        if isinstance(words, Ragged):
            self.starts, words = np.asarray(words.offsets), words.values
        else:
            self.starts = words.shape[1] * np.arange(len(words) + 1)
        self.image = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        offsets = np.append(0, np.cumsum(words, dtype=np.int64))
        self._words = Ragged(columns["tokens"].values, offsets)
        self.lengths = np.minimum(self._words.lengths + 1, longest)
        if cut := int((self._words.lengths >= longest).sum()):
            warnings.warn(
                f"{cut} of {len(self.lengths):,} captions are longer than "
                f"{longest - 1} words and were cut there (the longest has "
                f"{words.max()}); raise the last number of config.buckets to keep "
                "them whole",
                stacklevel=2,
            )

    def ids(self, caption: int) -> np.ndarray:
        """Return the stored word ids of a caption, which is not cut."""
        return self._words[caption]

    def take(self, captions: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch of captions.

        Args:
          captions: numbers of the captions [B].
          steps: number of steps T of the batch.

        Returns:
          The word ids [B, T] int32, padded with the end token, and the number of steps
          of each caption [B] int32.
        """
        # All captions of the batch at once: positions [B, T] in the joined words. Where
        # a caption has ended, position 0 is read and replaced.
        lengths = self.lengths[captions]
        times = np.arange(steps)
        is_word = times < lengths[:, None] - 1
        positions = self._words.offsets[captions][:, None] + times
        tokens = self._words.values[np.where(is_word, positions, 0)]
        # A smaller vocabulary drops the last ids: the words of the validation images,
        # then the rarest ones.
        tokens[tokens >= self._vocabulary] = UNKNOWN
        tokens[~is_word] = END
        return tokens.astype(np.int32), lengths.astype(np.int32)
