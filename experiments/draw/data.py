"""The images of the DRAW experiment."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.sets import open_set
from lnrepro.data.readers.binarized_mnist import COLUMNS
from lnrepro.errors import DataError
from lnrepro.fields import Size


def sizes(config: ConfigDict) -> dict[str, Size]:
    """Return what the data set says about fields of the config.

    Raises:
      DataError: the set is missing, or its images are not square, or not binary.
    """
    spec = config.data
    opened = open_set(config)
    opened.check(COLUMNS)
    shape = opened.columns("train")["image"].shape
    if shape[1] != shape[2]:
        raise DataError(
            f"{spec.name} has images of {shape[1]} x {shape[2]} pixels; DRAW needs "
            "square ones"
        )
    return {
        "data.train_examples": Size(shape[0]),
        "model.image_size": Size(shape[1]),
    }


def pixels(batch: Mapping) -> jax.Array:
    """Return the images of a batch as float32 [B, S, S]."""
    return batch["image"].astype(jnp.float32)
