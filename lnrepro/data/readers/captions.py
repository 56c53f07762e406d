"""Images with captions, in the file format of the order-embeddings code.

A folder has these files, for train, val and test. Five lines of a text file belong to
one row of the features. Own files may have any number of captions for each image, and
features of any size. caption_files.py describes another format of the captions:

    train.txt                one caption per line, its words separated by spaces, as in
                                 a red kite above a beach
                                 two people fly a kite
    train_ids.txt            optional: one image id per image or per caption. If the
                             numbers of captions differ, it says which are an image's
    images/10crop/train.npy  float32 [N, 4096], one row per image: layer fc7 of VGG-19
                             after ReLU, averaged over ten crops, scaled to length 1

`coco_captions` is MS-COCO with Karpathy's split.

An example is an image with these features:

    image    [4096] float32: its features
    tokens   [T] int32: word ids of its captions, one caption after the other
    lengths  [5] int32: number of words of each caption. `Ragged` if the numbers of
             captions differ
    id       [] int64: its COCO number, or else its position in the split

Word id 0 is the end token and 1 is an unknown word. The words of the training captions
follow by frequency, none is left out. After them come the words that occur only in the
first 1,000 validation images. The authors' vocabulary contains both. `SetFolder.facts`
has "words", "dev_words", and "not_unit", the number of images in each split whose
features do not have unit length. If an image has another number of captions than five,
"captions_per_image" has the smallest and the largest number.
"""

import itertools
from collections import Counter
from collections.abc import Mapping

import numpy as np

from lnrepro.data import files
from lnrepro.data.files import load_npy
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import INDICES, ColumnSpec, Content, Reader
from lnrepro.data.readers.caption_files import (
    PER_IMAGE,
    SPLITS,
    ByImage,
    Split,
    parse_karpathy,
    read_text,
)
from lnrepro.data.text import SPECIALS, Vocabulary
from lnrepro.errors import DataError

# Number of validation images whose words are in the authors' vocabulary.
DEV = 1000


def read(raw: RawFolder) -> Content:
    """Read the captions and map the features into memory."""
    found = {}
    # The authors' own text files come first. The JSON file needs a decision about
    # punctuation and capitals that these have already made.
    if not raw.find("train.txt") and (file := raw.find("dataset_coco.json")):
        found = parse_karpathy(files.read(file), file)
    images, not_unit = {}, {}
    for split, stem in SPLITS.items():
        where = raw.path(f"images/10crop/{stem}.npy")
        features = load_npy(where)
        if features.dtype != np.float32 or features.ndim != 2 or not features.size:
            raise DataError(
                f"{where}: an array of {features.dtype!s:.40} {features.shape[:5]} "
                "instead of float32 (images, features); get the official file"
            )
        of_split = found.get(split) or read_text(raw, stem, len(features))
        if len(of_split.ids) != len(features):
            raise DataError(
                f"{where}: {len(features)} rows, but {of_split.where} has captions of "
                f"{len(of_split.ids)} images; one row for each image is needed"
            )
        for i, captions in enumerate(of_split.by_image, 1):
            if not captions or not all(captions):
                raise DataError(
                    f"{of_split.where}: image {i} has a caption without words, or "
                    "no caption; write it, or leave the image out"
                )
        images[split], found[split] = features, of_split
        not_unit[split] = count_not_unit(features)
    splits, facts, counts = content_of(images, found)
    return Content(splits, {**facts, "not_unit": not_unit}, counts)


def content_of(
    images: Mapping[str, np.ndarray], captions: Mapping[str, Split]
) -> Content:
    """Choose the vocabulary, and number the words of the captions.

    The authors build it from the training captions and those of the first 1,000
    validation images.

    Args:
      images: features [N, D] of each split.
      captions: captions of each split.
    """
    words = _frequent(captions["train"].by_image)
    known = set(words)
    dev = _frequent(captions["valid"].by_image[:DEV])
    dev_words = [word for word in dev if word not in known]
    vocabulary = Vocabulary([*words, *dev_words])
    splits, numbers = {}, []
    for split, (by_image, ids, _) in captions.items():
        tokens, lengths = [], []
        for texts in by_image:
            tokens.append(vocabulary.encode(itertools.chain.from_iterable(texts)))
            lengths.append(np.array([len(text) for text in texts], np.int32))
        same_number = len({len(row) for row in lengths}) == 1
        splits[split] = {
            "image": images[split],
            "tokens": tokens,
            "lengths": np.stack(lengths) if same_number else lengths,
            "id": ids.astype(np.int64),
        }
        numbers += map(len, by_image)
    facts: dict[str, object] = {"words": words, "dev_words": dev_words}
    if set(numbers) != {PER_IMAGE}:
        facts["captions_per_image"] = [min(numbers), max(numbers)]
    counts = {"features": images["train"].shape[1], "captions": sum(numbers)}
    return Content(splits, facts, counts)


def count_not_unit(images: np.ndarray) -> int:
    """Count the rows of [N, D] whose length differs from 1 by more than 1 %.

    The authors divide features by their length. Other features are allowed, but their
    results are not comparable.
    """
    # In float64, the length of finite float32 numbers is finite.
    lengths = np.sqrt(np.einsum("nd,nd->n", images, images, dtype=np.float64))
    return int((np.abs(lengths - 1) > 0.01).sum())


def _frequent(captions: ByImage) -> list[str]:
    """Return the words of captions, the most frequent ones first.

    Equally frequent words keep the order of their first appearance. Words that are
    spelled like a special token are left out.
    """
    lines = itertools.chain.from_iterable(captions)
    counts = Counter(itertools.chain.from_iterable(lines))
    # most_common keeps the order of insertion among equal counts.
    return [word for word, _ in counts.most_common() if word not in SPECIALS]


COLUMNS = {
    "image": ColumnSpec(ndim=1),
    "tokens": INDICES,
    "lengths": ColumnSpec(1, integer=True, ndim=1),
    "id": ColumnSpec(integer=True, ndim=0),
}
COCO_CAPTIONS = Reader(
    title="MS-COCO images with five captions each, VGG-19 features, Karpathy's split",
    read=read,
    configs=("configs/order_embeddings.py",),
    source=(
        "coco.zip of https://github.com/ivendrov/order-embedding "
        "(captions and 10-crop VGG-19 features)"
    ),
    licence="captions: CC BY 4.0 (COCO Consortium); the features: none stated",
    size=(
        "113,287 train, 5,000 valid, 5,000 test images; 1 GB to download, 2 GB prepared"
    ),
    columns=COLUMNS,
    files=dict.fromkeys(
        (
            "train.txt",
            "val.txt",
            "test.txt",
            "images/10crop/train.npy",
            "images/10crop/val.npy",
            "images/10crop/test.npy",
        )
    ),
    # Images: Karpathy's split. Features: layer fc7 of VGG-19. Five captions an image:
    # Vendrov et al. (2016), section 4.2.
    published={
        "train": 113_287,
        "valid": 5_000,
        "test": 5_000,
        "features": 4_096,
        "captions": 616_435,
    },
)
