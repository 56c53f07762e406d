"""Images with five captions each, in the file format of the order-embeddings code.

A folder has these files, for train, val and test. Five lines of a text file belong to
one row of the features. caption_files.py describes other formats of the captions:

    train.txt                one caption per line, its words separated by spaces, as in
                                 a red kite above a beach
                                 two people fly a kite
    train_ids.txt            optional: one image id per image or per caption
    images/10crop/train.npy  float32 [N, 4096], one row per image: layer fc7 of VGG-19
                             after ReLU, averaged over ten crops, scaled to length 1

`coco_captions` is MS-COCO with Karpathy's split. `captions_proxy` is any other folder
in this format.

An example is an image with these features:

    image    [4096] float32: its features
    tokens   [T] int32: word ids of its five captions, one caption after the other
    lengths  [5] int32: number of words of each caption
    id       [] int64: its COCO number, or else its position in the split

Word id 0 is the end token and 1 is an unknown word. The words of the training captions
follow by frequency, none is left out. After them come the words that occur only in the
first 1,000 validation images. The authors' vocabulary contains both. `data.facts` has
"words", "dev_words", and "not_unit", the number of rows in each split that do not have
unit length.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.official.caption_files import (
    FEATURES,
    PER_IMAGE,
    SPLITS,
    Lines,
    check_features,
    read_captions,
    read_features,
)
from lnrepro.data.raw import Raw, RawFile
from lnrepro.data.text import SPECIALS, Vocabulary
from lnrepro.engine.errors import DataError

# Number of validation images whose words are in the authors' vocabulary.
DEV = 1000
EOS, UNKNOWN = SPECIALS.index("<eos>"), SPECIALS.index("<unk>")


class CaptionFolder(Builder):
    """Base class of the sets in the format of the order-embeddings code.

    Attributes:
      rows: number of images in each split, or None if any number is valid.
    """

    configs = ("configs/order_embeddings.py",)
    rows: ClassVar[Mapping[str, int] | None] = None
    files = (
        *(RawFile(f"{stem}.txt") for stem in SPLITS.values()),
        *(RawFile(f"images/10crop/{stem}.npy") for stem in SPLITS.values()),
    )

    def features(self):
        """Return the features of an example, see the module."""
        return {
            "image": array((FEATURES,), np.float32),
            "tokens": array((None,), np.int32),
            "lengths": array((PER_IMAGE,), np.int32),
            "id": array((), np.int64),
        }

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Read the captions and map the features into memory."""
        captions = read_captions(raw)
        files, images = {}, {}
        for split, stem in SPLITS.items():
            files[split] = raw.folder / f"images/10crop/{stem}.npy"
            images[split] = read_features(files[split])
            rows, count = len(images[split]), len(captions[split].ids)
            if rows != count:
                raise DataError(
                    f"{files[split]}: {rows} rows, but {stem} has captions of {count} "
                    "images"
                )
            if self.rows and count != self.rows[split] and not raw.any_checksum:
                raise DataError(
                    f"{raw.folder}: {stem} has {count:,} images instead of "
                    f"{self.rows[split]:,}; get the official files, or pass "
                    "--as NAME to prepare other files of this format"
                )
        # This reads all of the features, and therefore comes after the other checks.
        self.facts["not_unit"] = {
            split: check_features(images[split], files[split]) for split in SPLITS
        }
        words, dev_words = vocabulary(
            captions["train"].captions, captions["valid"].captions
        )
        self.facts |= {"words": words, "dev_words": dev_words}
        ids = Vocabulary([*words, *dev_words])
        return {
            split: Captioned(
                images[split], captions[split].captions, ids, captions[split].ids
            )
            for split in SPLITS
        }


class CocoCaptions(CaptionFolder):
    """MS-COCO images with five captions each, VGG-19 features, Karpathy's split."""

    source = (
        "coco.zip of https://github.com/ivendrov/order-embedding "
        "(captions and 10-crop VGG-19 features)"
    )
    licence = "captions: CC BY 4.0 (COCO Consortium); the features: none stated"
    size = (
        "113,287 train, 5,000 valid, 5,000 test images; "
        "1 GB to download, 4.1 GB prepared"
    )
    rows: ClassVar = {"train": 113_287, "valid": 5_000, "test": 5_000}


class CaptionsProxy(CaptionFolder):
    """Any folder in the format of coco_captions. NOT MS-COCO."""

    source = "whatever was put into the folder; only its layout is known"
    licence = "that of the captions used"
    size = "as the folder's"


class Captioned(Sequence):
    """Examples made of features [N, D], captions (five per image) and ids [N].

    A row of the features is read when its example is taken.
    """

    def __init__(
        self, images: np.ndarray, captions: Lines, words: Vocabulary, ids: np.ndarray
    ):
        self.images, self.captions, self.words, self.ids = images, captions, words, ids

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Example:
        # The range raises IndexError.
        i = range(len(self))[i]
        captions = self.captions[PER_IMAGE * i : PER_IMAGE * (i + 1)]
        return {
            "image": np.array(self.images[i], np.float32),
            "tokens": self.words.encode(itertools.chain.from_iterable(captions)),
            "lengths": np.array([len(caption) for caption in captions], np.int32),
            "id": np.int64(self.ids[i]),
        }


class Captions:
    """The captions of a prepared split. Caption c belongs to image c // 5."""

    def __init__(self, columns: Mapping[str, Any], vocabulary: int, longest: int):
        """Use the columns of a split. Warn if some captions are too long.

        Args:
          columns: the columns from `data.open_columns`.
          vocabulary: number of word ids. Larger ids become <unk>.
          longest: number of steps of the longest caption, including the end token.
            Longer captions are cut.
        """
        self._values = columns["tokens"].values
        self._vocabulary, self._longest = vocabulary, longest
        self._words = np.asarray(columns["lengths"], np.int64).reshape(-1)
        self._starts = np.cumsum(self._words) - self._words
        if cut := int((self._words >= longest).sum()):
            warnings.warn(
                f"{cut} of {len(self):,} captions are longer than {longest - 1} words "
                f"and were cut there (the longest has {self._words.max()}); raise the "
                "last number of config.buckets to keep them whole",
                stacklevel=2,
            )

    def __len__(self) -> int:
        return len(self._words)

    @property
    def lengths(self) -> np.ndarray:
        """Number of steps of each caption, including the end token, [5 N]."""
        return np.minimum(self._words + 1, self._longest)

    def ids(self, caption: int) -> np.ndarray:
        """Return the stored word ids of a caption, which is not cut."""
        return self._values[self._starts[caption] :][: self._words[caption]]

    def take(self, captions: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch of captions.

        Args:
          captions: numbers of the captions [B].
          steps: number of steps T of the batch.

        Returns:
          The word ids [B, T] int32, padded with the end token, and the number of steps
          of each caption [B] int32.
        """
        lengths = self.lengths[captions][:, None]
        steps = np.arange(steps)
        is_word = steps < lengths - 1
        positions = np.where(is_word, self._starts[captions][:, None] + steps, 0)
        tokens = np.where(is_word, self._values[positions], EOS)
        tokens[tokens >= self._vocabulary] = UNKNOWN
        return tokens.astype(np.int32), lengths[:, 0].astype(np.int32)


def vocabulary(train: Lines, valid: Lines) -> tuple[list[str], list[str]]:
    """Collect the words of captions, the most frequent ones first.

    Args:
      train: the training captions.
      valid: the validation captions.

    Returns:
      The words of the training captions, and the words that occur only in the captions
      of the first 1,000 validation images.
    """
    words = Vocabulary.of_counts(Counter(itertools.chain.from_iterable(train)))
    dev = itertools.chain.from_iterable(valid[: PER_IMAGE * DEV])
    dev_words = Vocabulary.of_counts(Counter(dev)).words
    return list(words.words), [word for word in dev_words if word not in words]
