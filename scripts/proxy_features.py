"""Make stand-ins for image features from the captions themselves.

    python scripts/proxy_features.py FOLDER [--width 512]

FOLDER has train.txt, val.txt and test.txt with five captions for each image, one on a
line, their words separated by spaces. The script writes images/10crop/train.npy and so
on, which `scripts/prepare.py coco_captions --raw FOLDER --as captions_proxy` reads.

The features of an image are a random projection of the words that at least two of its
captions have, weighted by their rarity, with noise as long as the projection, then
ReLU and unit length, as those of VGG-19 have. They let a model be trained where no
pictures are at hand. Results are about these features, and not about pictures.
"""

import collections
import math
import pathlib

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.readers.caption_files import PER_IMAGE, parse_text
from lnrepro.engine.command_line import Parser
from lnrepro.errors import DataError, run_script
from scripts.sweep import positive

SPLITS = ("train", "val", "test")
# Number of captions of an image that must have a word.
AGREE = 2


def main(argv: list[str]) -> None:
    """Write the features of the three splits.

    Raises:
      UserError: a wrong flag, or captions that are not there or not five an image.
    """
    parser = Parser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    width = {"type": positive, "default": 512, "help": "number of features"}
    parser.add_argument("--width", **width)
    args = parser.parse_args(argv)
    images = {split: _words_of_images(args.folder, split) for split in SPLITS}
    words = CountVectorizer(analyzer=list, binary=True, dtype=np.float64)
    in_training = words.fit_transform(images["train"])
    counts = np.asarray(in_training.sum(0)).ravel()
    # The rarity of a word that n of N images have.
    weights = [math.log(len(images["train"]) / n) for n in counts]
    # A random vector for each word, as long as its weight.
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((len(weights), args.width))
    vectors = np.array(weights)[:, None] * vectors / math.sqrt(args.width)
    out = args.folder / "images" / "10crop"
    out.mkdir(parents=True, exist_ok=True)
    for number, split in enumerate(SPLITS):
        rng = np.random.default_rng((0, number))
        values = features(words.transform(images[split]) @ vectors, rng)
        np.save(out / f"{split}.npy", values)
        print(f"{out / split}.npy: {len(values):,} images, {args.width} features")


def _words_of_images(folder, split) -> list[set[str]]:
    """Return the words that enough captions of each image have."""
    raw = RawFolder("coco_captions", folder, {})
    path = raw.path(f"{split}.txt")
    captions = parse_text(raw.read(f"{split}.txt"), path)
    if len(captions) % PER_IMAGE:
        raise DataError(
            f"{path}: {len(captions):,} captions are not {PER_IMAGE} for each image"
        )
    images = []
    for first in range(0, len(captions), PER_IMAGE):
        counts = collections.Counter()
        for caption in captions[first : first + PER_IMAGE]:
            counts.update(set(caption))
        images.append({word for word, n in counts.items() if n >= AGREE})
    return images


def features(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the features [N, width] float32 of images.

    Args:
      rows: [N, width], the projected words of each image.
      rng: draws the noise.
    """
    rows = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9)
    rows += rng.standard_normal(rows.shape) / math.sqrt(rows.shape[1])
    rows = np.maximum(rows, 0)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


if __name__ == "__main__":
    run_script(main, "making features")
