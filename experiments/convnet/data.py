"""The images of the ConvNet experiment."""

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
      DataError: the set is missing, or `config.data.image` is not its image size.
    """
    columns = data.open_config(config.data, split)
    check_data(config, "data.image", columns["image"].shape[1:])
    return columns


def pixels(config: ConfigDict, batch: Mapping) -> jax.Array:
    """Return the images of a batch, [B, height, width, 1], as numbers from 0 to 1."""
    # `full_ink` is the largest value that a pixel of this data set can have.
    return batch["image"][..., None].astype(jnp.float32) / config.data.full_ink
