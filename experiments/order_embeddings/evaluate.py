"""The images and captions of a split in the joint space."""

from collections.abc import Callable, Mapping, Sequence

from lnrepro.data.batches import eval_batches
from lnrepro.data.ragged import forget_pages

from .data import Split, caption_batches
from .retrieval import Embeddings


def embed(
    embed_captions: Callable,
    embed_images: Callable,
    vars: Mapping,
    split: Split,
    count: int,
    *,
    batch_size: int,
    buckets: Sequence[int],
) -> Embeddings:
    """Embed the first images of a split and their captions.

    Args:
      embed_captions: `rows_of_examples` of `Encoders.captions`.
      embed_images: `rows_of_examples` of `Encoders.images`.
      vars: {"params"}.
      split: the split.
      count: number of images.
      batch_size: images or captions in a batch.
      buckets: the numbers of steps to which captions are padded.
    """
    # Every process of a multi-process run gets all of them.
    batches = eval_batches(
        {"image": split.columns["image"][:count]}, batch_size, process=(0, 1)
    )
    images = embed_images(vars, batches, count)
    # The features of the images are not read again.
    forget_pages(split.columns["image"])
    batches = caption_batches(split, count, batch_size, buckets)
    captions = int(split.captions.starts[count])
    embedded = embed_captions(vars, batches, captions)
    return Embeddings(images, embedded, split.captions.image[:captions])
