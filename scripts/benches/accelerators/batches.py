"""Batches in the shapes of a config, for programs that are compiled and never run.

Lengths are made up where the data gives them. `docs/performance.md` names them.
"""

import importlib
import math
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments.order_embeddings.data import Buckets, pack
from experiments.skip_thoughts.triples import STEPS


def of(config: ConfigDict, devices: int = 1) -> dict[str, Any]:
    """Return a batch [B, ...] of zeros or of made-up words.

    Args:
      config: a config of one of the paper's experiments.
      devices: number of devices, since batches are packed for one only.
    """
    name = config.experiment.rpartition(".")[2]
    if name == "order_embeddings":
        return _captions(config, devices)
    if name in _MADE:
        return _MADE[name](config)
    # The other direct versions make a batch themselves.
    return importlib.import_module(f"scripts.benches.direct.{name}").batch(config)


def data_dependent_trips(config: ConfigDict, devices: int = 1) -> int | None:
    """Return the trips of loops over the words of a batch, of the batch of `of`.

    Those are the chunks of the softmax of skip-thoughts, see its `softmax.py`. None
    where no loop depends on the data.
    """
    if not config.experiment.endswith("skip_thoughts"):
        return None
    positions = 2 * STEPS * config.batch_size // devices
    return -(-positions // config.model.chunk_rows)


def _images(config, image):
    return {
        "image": np.zeros((config.batch_size, *image), np.uint8),
        "label": np.zeros(config.batch_size, np.int32),
    }


def _mnist(config):
    side = math.isqrt(config.data.features)
    return _images(config, (side, side))


def _convnet(config):
    return _images(config, config.data.image)


def _draw(config):
    size = config.model.image_size
    return {"image": np.zeros((config.batch_size, size, size), np.uint8)}


def _handwriting(config):
    rows, sizes = config.batch_size, config.model
    return {
        "steps": np.zeros((rows, sizes.steps, 3), np.float32),
        "steps_length": np.full(rows, sizes.steps, np.int32),
        "text": np.zeros((rows, sizes.characters), np.uint8),
        "text_length": np.full(rows, sizes.characters, np.int32),
    }


def _captions(config, devices):
    """Captions of 8 to 18 steps, of which COCO's have 11.5 on average."""
    rows, buckets = config.batch_size, Buckets(config)
    # A triangular density from 8 with its top at 8.
    quantiles = (np.arange(rows) + 0.5) / rows
    length = (8 + 11 * (1 - np.sqrt(1 - quantiles))).astype(np.int32)
    batch = {
        "image": np.zeros((rows, config.model.features), np.float32),
        "length": length,
        "tokens": (np.zeros((rows, buckets.fit(length.max())), np.int32),),
    }
    return pack(batch, buckets.steps) if config.packed and devices == 1 else batch


_MADE = {
    "mnist": _mnist,
    "convnet": _convnet,
    "draw": _draw,
    "handwriting": _handwriting,
}
