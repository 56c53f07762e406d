"""Images with captions, in the file format of the order-embeddings code.

A folder has these files, for train, val and test. Five lines of a text file belong to
one row of the features. Features that are repeated for each caption are taken once. Own
files may have any number of captions for each image, and features of any size.
caption_files.py describes other formats of the captions:

    train.txt                one caption per line, its words separated by spaces, as in
                                 a red kite above a beach
                                 two people fly a kite
    train_ids.txt            optional: one image id per image or per caption. If the
                             numbers of captions differ, it says which are an image's
    images/10crop/train.npy  float32 [N, 4096], one row per image: layer fc7 of VGG-19
                             after ReLU, averaged over ten crops, scaled to length 1

`coco_captions` is MS-COCO with Karpathy's split. `captions_proxy` is any other folder
in this format.

An example is an image with these features:

    image    [4096] float32: its features
    tokens   [T] int32: word ids of its captions, one caption after the other
    lengths  [5] int32: number of words of each caption. `Ragged` if the numbers of
             captions differ
    id       [] int64: its COCO number, or else its position in the split

Word id 0 is the end token and 1 is an unknown word. The words of the training captions
follow by frequency, none is left out. After them come the words that occur only in the
first 1,000 validation images. The authors' vocabulary contains both. `data.facts` has
"words", "dev_words", and "not_unit", the number of images in each split whose features
do not have unit length. If an image has another number of captions than five,
"captions_per_image" has the smallest and the largest number.
"""

from __future__ import annotations

import itertools
import pathlib
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
    Split,
    read_captions,
    without_empty,
)
from lnrepro.data.official.image_features import (
    check_features,
    read_features,
    with_rows,
)
from lnrepro.data.ragged import Ragged
from lnrepro.data.raw import Raw, RawFile
from lnrepro.data.text import SPECIALS, Vocabulary
from lnrepro.errors import DataError

# Number of validation images whose words are in the authors' vocabulary.
DEV = 1000
EOS, UNKNOWN = SPECIALS.index("<eos>"), SPECIALS.index("<unk>")


class CaptionFolder(Builder):
    """Base class of the sets in the format of the order-embeddings code.

    Attributes:
      rows: number of images in each split. None if any number of images, captions and
        features is valid.
    """

    configs = ("configs/order_embeddings.py",)
    rows: ClassVar[Mapping[str, int] | None] = None
    files = (
        *(RawFile(f"{stem}.txt") for stem in SPLITS.values()),
        *(RawFile(f"images/10crop/{stem}.npy") for stem in SPLITS.values()),
    )

    # Number of features of an image. `examples` sets it to that of the files.
    width = FEATURES
    # Number of captions of every image. `examples` sets it to None if they differ.
    per_image: int | None = PER_IMAGE

    def features(self):
        """Return the features of an example, see the module."""
        return {
            "image": array((self.width,), np.float32),
            "tokens": array((None,), np.int32),
            "lengths": array((self.per_image,), np.int32),
            "id": array((), np.int64),
        }

    def examples(self, raw: Raw) -> Mapping[str, Sequence[Example]]:
        """Read the captions and map the features into memory."""
        files = {
            split: raw.path(f"images/10crop/{stem}.npy")
            for split, stem in SPLITS.items()
        }
        images = {split: read_features(file) for split, file in files.items()}
        rows = {split: len(image) for split, image in images.items()}
        captions = {}
        # The number of rows is needed to read the captions: a text file without ids
        # does not say how many captions an image has.
        for split, found in read_captions(raw, rows).items():
            raw.note_repeats("captions", map(tuple, found.captions))
            found = with_rows(found, images[split], files[split], SPLITS[split])
            where = f"{raw.folder}, captions of {SPLITS[split]}"
            captions[split], empty = without_empty(found, where)
            if empty:
                raw.notes["captions without words left out"] += empty
            rows[split] = len(captions[split].ids)
        self._measure(images, captions, files)
        # Official files have no checksums of their own, so their sizes are what
        # identifies them.
        if self.rows and not raw.any_checksum:
            self._check_official(raw, rows, self.rows)
        # This reads all of the features, and therefore comes after the other checks.
        self.facts["not_unit"] = {
            split: check_features(images[split], files[split], captions[split].rows)
            for split in SPLITS
        }
        # The authors build the vocabulary from the training captions and those of the
        # first 1,000 validation images.
        words, dev_words = vocabulary(
            captions["train"].captions,
            captions["valid"].captions[: captions["valid"].counts[:DEV].sum()],
        )
        self.facts |= {"words": words, "dev_words": dev_words}
        ids = Vocabulary([*words, *dev_words])
        # Examples are made when they are taken, so that the features stay on disk.
        return {
            split: CaptionedImages(images[split], captions[split], ids)
            for split in SPLITS
        }

    def _measure(
        self,
        images: Mapping[str, np.ndarray],
        captions: Mapping[str, Split],
        files: Mapping[str, pathlib.Path],
    ) -> None:
        """Set `width` and `per_image`. Raise DataError if the widths differ."""
        self.width = images["train"].shape[1]
        for split, image in images.items():
            if image.shape[1] != self.width:
                raise DataError(
                    f"{files[split]}: {image.shape[1]} features of an image, but "
                    f"{files['train']} has {self.width}"
                )
        # With one number for all, "lengths" is an array; else it is ragged.
        counts = np.concatenate([found.counts for found in captions.values()])
        least, most = int(counts.min()), int(counts.max())
        self.per_image = least if least == most else None
        if self.per_image != PER_IMAGE:
            self.facts["captions_per_image"] = [least, most]

    def _check_official(
        self, raw: Raw, rows: Mapping[str, int], official: Mapping[str, int]
    ) -> None:
        """Raise DataError if the sizes are not those of the official files."""
        for split, count in rows.items():
            problem = None
            if count != official[split]:
                problem = f"{count:,} images instead of {official[split]:,}"
            elif self.width != FEATURES:
                problem = f"{self.width:,} features of an image instead of {FEATURES:,}"
            elif self.per_image != PER_IMAGE:
                problem = f"images without exactly {PER_IMAGE} captions"
            if problem:
                raise DataError(
                    f"{raw.folder}: {SPLITS[split]} has {problem}; get the official "
                    "files, or pass --as NAME to prepare other files of this format"
                )


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
    size = "whatever is in the folder; the fingerprint says which data it was"


class CaptionedImages(Sequence):
    """Examples made of features [N, D] and captions.

    A row of the features is read when its example is taken.
    """

    def __init__(self, images: np.ndarray, split: Split, words: Vocabulary):
        self.images, self.words = images, words
        self.captions, self.ids, counts, rows = split
        self.rows = np.arange(len(self.ids)) if rows is None else rows
        self.starts = np.cumsum([0, *counts])

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> Example:
        # The range raises IndexError.
        i = range(len(self))[i]
        captions = self.captions[self.starts[i] : self.starts[i + 1]]
        return {
            "image": np.array(self.images[self.rows[i]], np.float32),
            "tokens": self.words.encode(itertools.chain.from_iterable(captions)),
            "lengths": np.array([len(caption) for caption in captions], np.int32),
            "id": np.int64(self.ids[i]),
        }


class Captions:
    """The captions of a prepared split.

    Attributes:
      starts: number of the first caption of each image, and of all captions [N + 1].
    """

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
        # "lengths" has the number of words of each caption, one row for each image.
        words = columns["lengths"]
        if isinstance(words, Ragged):
            self.starts = np.asarray(words.offsets)
            words = words.values
        else:
            self.starts = words.shape[1] * np.arange(len(words) + 1)
        self._words = np.asarray(words, np.int64).reshape(-1)
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
    def image(self) -> np.ndarray:
        """Row of the image of each caption [C]."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @property
    def lengths(self) -> np.ndarray:
        """Number of steps of each caption, including the end token, [C]."""
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
        # All captions of the batch at once: positions [B, T] in the joined words. Where
        # a caption has ended, position 0 is read and replaced.
        lengths = self.lengths[captions][:, None]
        times = np.arange(steps)
        is_word = times < lengths - 1
        positions = np.where(is_word, self._starts[captions][:, None] + times, 0)
        tokens = np.where(is_word, self._values[positions], EOS)
        # A smaller vocabulary drops the last ids: the words of the validation images,
        # then the rarest ones.
        tokens[tokens >= self._vocabulary] = UNKNOWN
        return tokens.astype(np.int32), lengths[:, 0].astype(np.int32)


def vocabulary(train: Lines, dev: Lines) -> tuple[list[str], list[str]]:
    """Collect the words of captions, the most frequent ones first.

    Args:
      train: the training captions.
      dev: the captions of the first DEV validation images.

    Returns:
      The words of `train`, and the words that occur only in `dev`.
    """
    words = Vocabulary.of_counts(Counter(itertools.chain.from_iterable(train)))
    dev_words = Vocabulary.of_counts(Counter(itertools.chain.from_iterable(dev))).words
    return list(words.words), [word for word in dev_words if word not in words]
