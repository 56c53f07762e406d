"""The images of the DRAW experiment."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.batches import evenly_spaced
from lnrepro.engine.errors import DataError

Columns = Mapping[str, np.ndarray]


def open_split(config: ConfigDict, split: str) -> Columns:
    """Open a split: "image" [N, S, S], zeros and ones.

    Raises:
      DataError: the set is missing, or `config.model.image_size` is not S.
    """
    columns = data.open_config(config.data, split)
    size = config.model.image_size
    _, *shape = columns["image"].shape
    if shape != [size, size]:
        found = " x ".join(map(str, shape))
        raise DataError(
            f"config.model.image_size = {size}, but {config.data.name} has images of "
            f"{found} pixels"
        )
    return columns


def select(columns: Columns, count: int | None) -> Columns:
    """Return `count` examples that are evenly spaced, or all if it is None."""
    rows = evenly_spaced(len(columns["image"]), count)
    return {name: column[rows] for name, column in columns.items()}


def pixels(batch: Mapping) -> jax.Array:
    """Return the images of a batch as float32 [B, S, S]."""
    return batch["image"].astype(jnp.float32)
