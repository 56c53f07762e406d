"""The loss of every line of a batch, in the units of Figure 5 and of the data."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.data.batches import evenly_spaced

from .data import Lines
from .model import Network


def metrics(network: Network, vars: Mapping, batch: Mapping) -> dict[str, jax.Array]:
    """Compute the metrics of each line.

    Returns:
      {"nll": nats of normalised offsets, "nll_original": nats in the coordinates of the
      data, "steps": number of steps}, each [B].
    """
    values = network.nll(vars["params"], batch)
    steps = batch["steps_length"].astype(jnp.float32)
    # The Jacobian of the normalisation adds log sigma_x + log sigma_y for every step.
    original = values + steps * batch["log_scale"]
    return {"nll": values, "nll_original": original, "steps": steps}


def examples(lines: Lines, count: int | None) -> list[dict[str, np.ndarray]]:
    """Return `count` lines that are evenly spaced, or all, as `metrics` needs them."""
    # log sigma_x + log sigma_y of the training set, the same for all lines.
    log_scale = np.float32(np.log(lines.std).sum())
    rows = evenly_spaced(len(lines), count)
    return [lines[i] | {"log_scale": log_scale} for i in rows]
