"""The images of the MNIST experiment."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.engine.checks import check_data


def open_split(config: ConfigDict, split: str) -> dict[str, np.ndarray]:
    """Open a split: "image" [N, height, width], "label" [N].

    Raises:
      DataError: the set is missing, or `config.data.features` is not its image size.
    """
    columns = data.open_config(config.data, split)
    check_data(config, "data.features", math.prod(columns["image"].shape[1:]))
    return columns


def pixels(config: ConfigDict, batch: Mapping) -> jax.Array:
    """Return the images of a batch as rows [B, D] of numbers from 0 to 1."""
    image = batch["image"]
    rows = image.reshape(image.shape[0], -1).astype(jnp.float32)
    return rows / config.data.full_ink
