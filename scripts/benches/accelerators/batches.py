"""Batches in the shapes of a config, for programs that are compiled and never run."""

import math
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments.order_embeddings.data import Buckets, pack
from experiments.skip_thoughts.triples import STEPS

# Words of a text of the attentive reader.
READER = {"passage": 128, "question": 16}


def of(config: ConfigDict, devices: int = 1) -> dict[str, Any]:
    """Return a batch [B, ...] of zeros for so many devices.

    The lengths of captions are made up. They are packed for one device only.
    """
    name = config.experiment.rpartition(".")[2]
    if name == "order_embeddings":
        return _captions(config, devices)
    rows, batch = config.batch_size, {}
    for column, (dtype, *sizes) in _columns(name, config).items():
        batch[column] = np.zeros((rows, *sizes), dtype)
    return batch


def data_dependent_trips(config: ConfigDict, devices: int = 1) -> int | None:
    """Return the trips of loops over the words of a batch, of the batch of `of`.

    Those are the chunks of the softmax of skip-thoughts, see its `softmax.py`. None
    where no loop depends on the data.
    """
    if not config.experiment.endswith("skip_thoughts"):
        return None
    positions = 2 * STEPS * config.batch_size // devices
    return -(-positions // config.model.chunk_rows)


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


def _columns(name: str, config: ConfigDict) -> dict[str, tuple[Any, ...]]:
    """Return {name of an array: (dtype, sizes of an example)} of an experiment."""
    data, model = config.data, config.model
    if name == "mnist":
        side = math.isqrt(data.features)
        return {"image": (np.uint8, side, side), "label": (np.int32,)}
    if name == "convnet":
        return {"image": (np.uint8, *data.image), "label": (np.int32,)}
    if name == "draw":
        return {"image": (np.uint8, model.image_size, model.image_size)}
    if name == "handwriting":
        return {
            "steps": (np.float32, model.steps, 3),
            "steps_length": (np.int32,),
            "text": (np.uint8, model.characters),
            "text_length": (np.int32,),
        }
    texts = dict.fromkeys(("previous", "current", "next"), STEPS)
    columns = {}
    if name == "attentive_reader":
        texts, columns = READER, {"answer": (np.int32,)}
    for text, longest in texts.items():
        columns |= {text: (np.int32, longest), f"{text}_length": (np.int32,)}
    return columns
