"""The images of the MNIST experiment."""

import math
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
SIZES = ("data.train_examples", "data.features", "data.full_ink", "model.classes")


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
        "data.features": Size(math.prod(images.shape[1:])),
        "data.full_ink": Size(ink, least=ink),
        "model.classes": Size(classes, least=classes),
    }


def pixels(config: ConfigDict, batch: Mapping) -> jax.Array:
    """Return the images of a batch as rows [B, D] of numbers from 0 to 1."""
    image = batch["image"]
    rows = image.reshape(image.shape[0], -1).astype(jnp.float32)
    return rows / config.data.full_ink
