"""Images with five captions each: `coco_captions`, MS-COCO with Karpathy's split, in the layout of order-embeddings;
`captions_proxy`, any folder of that layout whose features are a stand-in.

The layout: {train,val,test}.txt, one caption a line, its tokens between blanks, five lines to an image; and
images/10crop/{train,val,test}.npy, float32 (N, 4096), one row an image: fc7 of VGG-19 after its ReLU, averaged over ten
crops, of unit length. In place of the three .txt, captions may come from Karpathy's dataset_coco.json, or from COCO's own
captions_*.json together with {train,val,test}_ids.txt, one image id a line; both are tokenised as Karpathy did (small
letters, no punctuation) and give the first five captions of an image. {train,val,test}_ids.txt beside the .txt (one id an
image, or one a caption) say which images they are.

An example is {"image": (D,) float32, "tokens": (t,) int32, its five captions end to end, "lengths": (5,) int32, how many
tokens each has, "id": () int64, COCO's number of the image, else its place in the split}. Ids of words: 0 is the end
token, 1 an unknown word, then the words of the training captions, most frequent first, none left out; behind them those
that only the first 1,000 validation images have. The authors' vocabulary is both; `Captions` takes as many as one wants.
Facts: "words", "dev_words", and "not_unit": how many rows of each split's features are not of unit length.
"""

from __future__ import annotations

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

DEV = 1000  # validation images whose words the authors' vocabulary has too
EOS, UNKNOWN = (SPECIALS.index(s) for s in ("<eos>", "<unk>"))


class CaptionFolder(Builder):
    """What `coco_captions` and `captions_proxy` share: the layout of the order-embeddings code's data folder."""

    rows: ClassVar[Mapping[str, int] | None] = (
        None  # images per split; None: whatever there is
    )
    files = (
        *(RawFile(f"{stem}.txt") for stem in SPLITS.values()),
        *(RawFile(f"images/10crop/{stem}.npy") for stem in SPLITS.values()),
    )

    def features(self):
        """Features, tokens of five captions, their lengths, an id."""
        return {
            "image": array((FEATURES,), np.float32),
            "tokens": array((None,), np.int32),
            "lengths": array((PER_IMAGE,), np.int32),
            "id": array((), np.int64),
        }

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Read captions and map the features; everything is checked before the first example is written."""
        captions, ids = read_captions(raw)
        images = {
            split: read_features(raw.folder / f"images/10crop/{stem}.npy")
            for split, stem in SPLITS.items()
        }
        for split, stem in SPLITS.items():
            file, count = (
                raw.folder / f"images/10crop/{stem}.npy",
                len(captions[split]) // PER_IMAGE,
            )
            if len(images[split]) != count:
                raise DataError(
                    f"{file}: {len(images[split])} rows for the {count} images that {stem}'s captions have"
                )
            if self.rows and count != self.rows[split] and not raw.any_checksum:
                raise DataError(
                    f"{raw.folder}: {stem} has {count:,} images instead of {self.rows[split]:,}; get the official "
                    "files, or pass --any-checksum to use others of this layout"
                )
        self.facts["not_unit"] = {
            split: check_features(
                images[split], raw.folder / f"images/10crop/{stem}.npy"
            )
            for split, stem in SPLITS.items()
        }
        words, dev_words = vocabulary(captions["train"], captions["valid"])
        self.facts |= {"words": words, "dev_words": dev_words}
        numbers = Vocabulary([*words, *dev_words])
        return {
            split: Captioned(images[split], captions[split], numbers, ids[split])
            for split in SPLITS
        }


class CocoCaptions(CaptionFolder):
    """MS-COCO captions with VGG-19 features, Karpathy's split: five captions an image."""

    source = "coco.zip of https://github.com/ivendrov/order-embedding (captions and 10-crop VGG-19 features)"
    licence = "captions: CC BY 4.0 (COCO Consortium); the features: none stated"
    size = "113,287 train, 5,000 valid, 5,000 test images; 1 GB to download, 4.1 GB prepared"
    rows: ClassVar = {"train": 113_287, "valid": 5_000, "test": 5_000}


class CaptionsProxy(CaptionFolder):
    """Any folder in the layout of coco_captions, its features a stand-in: to exercise the size, never to compare."""

    source = "whatever was put into the folder; only its layout is known"
    licence = "that of the captions used"
    size = "as the folder's"


class Captioned(Sequence):
    """Features (N, D), 5 N captions and ids (N,) as a sequence of examples; rows of features are read when asked for."""

    def __init__(
        self, images: np.ndarray, captions: Lines, words: Vocabulary, ids: np.ndarray
    ):
        self.images, self.captions, self.words, self.ids = images, captions, words, ids

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Example:
        if not 0 <= i < len(self):
            raise IndexError(i)
        own = self.captions[PER_IMAGE * i : PER_IMAGE * (i + 1)]
        return {
            "image": np.array(self.images[i], np.float32),
            "tokens": np.concatenate([self.words.encode(caption) for caption in own]),
            "lengths": np.array([len(caption) for caption in own], np.int32),
            "id": np.int64(self.ids[i]),
        }


class Captions:
    """The 5 N captions of a split as batches: caption c belongs to image c // 5.

    columns: with "tokens" and "lengths", as `data.open_columns` gives them; vocabulary: ids at and beyond it become
    <unk>; longest: the most steps, end token included, that a caption may take: longer ones are cut and a warning
    counts them.
    """

    def __init__(self, columns: Mapping[str, Any], vocabulary: int, longest: int):
        self._values, self._vocabulary, self._longest = (
            columns["tokens"].values,
            vocabulary,
            longest,
        )
        self._words = np.asarray(columns["lengths"], np.int64).reshape(-1)
        self._starts = np.cumsum(self._words) - self._words
        if cut := int((self._words >= longest).sum()):
            warnings.warn(
                f"{cut} of {len(self):,} captions are longer than {longest - 1} words and were cut there "
                f"(the longest has {self._words.max()}); raise the last of config.buckets to keep them whole",
                stacklevel=2,
            )

    def __len__(self) -> int:
        return len(self._words)

    @property
    def lengths(self) -> np.ndarray:
        """Steps of every caption, (5 N,): its words, cut to the longest, and the end token."""
        return np.minimum(self._words + 1, self._longest)

    def ids(self, caption: int) -> np.ndarray:
        """The words of one caption as they are stored, whole."""
        return self._values[self._starts[caption] :][: self._words[caption]]

    def take(self, captions: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Captions (n,) by number -> tokens (n, steps) int32, zero (the end token) behind the words, and lengths (n,)."""
        length = self.lengths[captions]
        here = np.arange(steps) < length[:, None] - 1
        place = np.where(here, self._starts[captions][:, None] + np.arange(steps), 0)
        tokens = np.where(here, self._values[place] if len(self._values) else 0, EOS)
        return np.where(tokens >= self._vocabulary, UNKNOWN, tokens).astype(
            np.int32
        ), length.astype(np.int32)


def vocabulary(train: Lines, valid: Lines) -> tuple[list[str], list[str]]:
    """The words of the training captions by frequency, and those that only the first DEV validation images add."""
    words = Vocabulary.of_counts(Counter(word for caption in train for word in caption))
    dev = Counter(
        word
        for caption in valid[: PER_IMAGE * DEV]
        for word in caption
        if word not in words
    )
    return list(words.words), list(Vocabulary.of_counts(dev).words)
