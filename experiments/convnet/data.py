"""The images of the ConvNet experiment."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.engine.checks import Size, check_sizes


def open_split(config: ConfigDict, split: str) -> dict[str, np.ndarray]:
    """Open a split: "image" [N, height, width], "label" [N].

    Raises:
      DataError: the set is missing, or does not fit the sizes in the config.
    """
    columns = data.open_config(config.data, split)
    check_sizes(config, sizes(config))
    return columns


# Fields of the config that the data set determines, see `sizes`.
SIZES = ("data.train_examples", "data.image", "data.full_ink", "model.classes")


def sizes(config: ConfigDict) -> dict[str, Size]:
    """Return what the data set says about SIZES.

    Raises:
      DataError: the set is missing.
    """
    columns = data.open_columns(config.data.name, "train", config.data.dir)
    images = columns["image"]
    ink, classes = float(images.max()), int(columns["label"].max()) + 1
    return {
        "data.train_examples": Size(len(images)),
        "data.image": Size(images.shape[1:]),
        "data.full_ink": Size(ink, least=ink),
        "model.classes": Size(classes, least=classes),
    }


def pixels(config: ConfigDict, batch: Mapping) -> jax.Array:
    """Return the images of a batch, [B, height, width, 1], as numbers from 0 to 1."""
    # `full_ink` is the largest value that a pixel of this data set can have.
    return batch["image"][..., None].astype(jnp.float32) / config.data.full_ink
