"""The images and captions of a split in the joint space."""

from collections.abc import Callable, Mapping

from ml_collections import ConfigDict

from lnrepro.data.batches import eval_batches
from lnrepro.data.ragged import forget_pages

from .data import Split, caption_batches
from .retrieval import Embeddings


def embed(
    config: ConfigDict,
    embed_captions: Callable,
    embed_images: Callable,
    vars: Mapping,
    split: Split,
    count: int,
) -> Embeddings:
    """Embed the first images of a split and their captions.

    Args:
      config: the config of the run.
      embed_captions: `rows_of_examples` of `Encoders.captions`.
      embed_images: `rows_of_examples` of `Encoders.images`.
      vars: {"params"}.
      split: the split.
      count: number of images.
    """
    (columns, captions), size = split, config.eval_batch_size
    # Every process of a multi-process run gets all of them.
    batches = eval_batches({"image": columns["image"][:count]}, size, process=(0, 1))
    images = embed_images(vars, batches, count)
    # The features of the images are not read again.
    forget_pages(columns["image"])
    batches = caption_batches(captions, count, size, config.buckets)
    end = int(captions.starts[count])
    embedded = embed_captions(vars, batches, end)
    return Embeddings(images, embedded, captions.image[:end])
