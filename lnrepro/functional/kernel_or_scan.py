"""What a cell over time runs as: one kernel, or a scan."""

from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.cells.base import Cell
from lnrepro.functional.fast import kernels, tuning
from lnrepro.functional.fast import platform as traced_for
from lnrepro.functional.scan_options import ScanOptions
from lnrepro.functional.unroll import unroll


def runs_as(
    cell: Cell,
    features: int,
    *,
    steps: int,
    rows: int,
    dtype: Any = jnp.float32,
    platform: str | None = None,
) -> str:
    """Say whether a cell over time runs as one kernel, and if not, why.

    Args:
      cell: the cell.
      features: D, the size of x.
      steps: T.
      rows: B.
      dtype: that of x and the parameters.
      platform: "gpu" or "tpu"; None takes that of the process.

    Returns:
      "kernel"; or in one line the reason why there can be none, or else what the record
      of `autotune` says against it.

    >>> from lnrepro.functional import LSTMCell
    >>> runs_as(LSTMCell(8), 3, steps=5, rows=2, platform="cpu")
    'there are no kernels for cpu'
    """
    name = platform or traced_for.current()
    if name not in tuning.PLATFORMS:
        return f"there are no kernels for {name}"
    options = ScanOptions(kernels="auto", platform=platform)
    params = jax.eval_shape(lambda: cell.init(jax.random.key(0), features, dtype))
    x = jax.ShapeDtypeStruct((steps, rows, features), dtype)

    def seen(answer):
        def loss(params, x):
            outputs = unroll(cell, params, x, time_major=True, options=options).outputs
            return jnp.sum(outputs.astype(jnp.float32))

        # Traced anew, since what JAX has traced before tells nothing.
        with kernels.watched() as seen, tuning.answering(answer):
            jax.eval_shape(jax.grad(loss), params, x)
        return next((words for words in seen if words != kernels.KERNEL), seen[0])

    found = seen(tuning.kernel_where_it_can)
    return found if found != kernels.KERNEL else seen(tuning.look_up)
