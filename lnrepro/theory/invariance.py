"""Table 1 of the paper: which transformations leave a model's output unchanged.

A model is any function (kernel, data) -> output. The kernel is [..., H] with the units
last, the data [B, ...] with the training cases first, the output an array or a tree of
arrays.

    def model(w, x):
        return jax.nn.relu(layer_norm(x @ w, epsilon=0.0))

    measure_row(model, w, x, key=jax.random.key(0))
    # {"weight matrix re-scaling": 1.2e-16, ..., "weight vector re-scaling": 0.41, ...}

Three remarks on the table, each with a test:

- It holds for positive factors. A negative factor changes the sign of the normalised
  sums. It is exact for epsilon = 0. With an epsilon under the root, scaling the sums by
  d changes the output by about epsilon / (2 var) |1 - 1 / d^2|, where var is their
  variance.
- The text of section 5.1 says that all three norms are invariant to re-scaling the data
  set. The table says that weight norm is not, and the table is right.
- Re-centring the weight matrix adds the same value to all units of one position. The
  layer norm of a convolution, with statistics over positions too, does not remove it.
  The table is about fully connected layers.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

Model = Callable[[jax.Array, jax.Array], Any]

COLUMNS = (
    "weight matrix re-scaling",
    "weight matrix re-centering",
    "weight vector re-scaling",
    "dataset re-scaling",
    "dataset re-centering",
    "single training case re-scaling",
)
"""The columns of Table 1, in the paper's spelling."""

_ROWS = {
    "batch": (True, False, True, True, True, False),
    "weight": (True, False, True, False, False, False),
    "layer": (True, True, False, True, False, True),
}
TABLE_1 = {norm: dict(zip(COLUMNS, row, strict=True)) for norm, row in _ROWS.items()}
"""The paper's Table 1: True is "Invariant", False is "No"."""


def rescale_matrix(kernel: jax.Array, factor: float) -> jax.Array:
    """Return factor W, for a kernel W [..., H]."""
    return factor * kernel


def recenter_matrix(kernel: jax.Array, shift: jax.Array) -> jax.Array:
    """Return W + 1 shift^T (eq. 6): `shift` [...] is added to every unit's weights."""
    return kernel + shift[..., None]


def rescale_unit(kernel: jax.Array, factor: float, unit: int = 0) -> jax.Array:
    """Multiply the incoming weights kernel[..., unit] of one unit."""
    return kernel.at[..., unit].multiply(factor)


def rescale_data(x: jax.Array, factor: float) -> jax.Array:
    """Multiply all training cases by the same factor."""
    return factor * x


def recenter_data(x: jax.Array, shift: jax.Array) -> jax.Array:
    """Add `shift` [D] to all training cases [B, ..., D]."""
    return x + shift


def rescale_case(x: jax.Array, factor: float, case: int = 0) -> jax.Array:
    """Multiply one training case (eq. 7)."""
    return x.at[case].multiply(factor)


def transformations(
    kernel: jax.Array, x: jax.Array, *, key: jax.Array, factor: float = 2.5
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Apply the transformations of Table 1.

    Args:
      kernel: [..., H].
      x: [B, ..., D].
      key: draws the two shifts, which are as large as what they are added to.
      factor: of the four re-scalings.

    Returns:
      {column: (new kernel, new data)}.
    """
    weight_key, data_key = jax.random.split(key)
    # The same shift for all units, as eq. 6 has it.
    weight_shift = jax.random.normal(weight_key, kernel.shape[:-1], kernel.dtype)
    data_shift = jax.random.normal(data_key, x.shape[-1:], x.dtype)
    # In the order of COLUMNS.
    pairs = (
        (rescale_matrix(kernel, factor), x),
        (recenter_matrix(kernel, kernel.std() * weight_shift), x),
        (rescale_unit(kernel, factor), x),
        (kernel, rescale_data(x, factor)),
        (kernel, recenter_data(x, x.std() * data_shift)),
        (kernel, rescale_case(x, factor)),
    )
    return dict(zip(COLUMNS, pairs, strict=True))


def change(before: Any, after: Any) -> float:
    """Return the largest absolute difference, relative to the largest of `before`.

    Args:
      before: a tree of arrays.
      after: another of the same structure.
    """
    a, b = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
        for tree in (before, after)
    )
    return float(np.abs(b - a).max() / np.abs(a).max())


def measure_row(
    model: Model,
    kernel: jax.Array,
    x: jax.Array,
    *,
    key: jax.Array,
    factor: float = 2.5,
) -> dict[str, float]:
    """Measure one row of Table 1.

    Args:
      model: any function of a kernel [..., H] and data [B, ...].
      kernel: where the weights are changed.
      x: the data. For a batch-normalised model it is the data distribution.
      key: draws the two shifts.
      factor: of the four re-scalings. A negative one turns the sign of the output.

    Returns:
      {column: `change` of the output}. Zero means invariant.
    """
    before = model(kernel, x)
    # One program: by itself, every operation would be compiled.
    changed = jax.jit(transformations)(kernel, x, key=key, factor=factor)
    return {column: change(before, model(*changed[column])) for column in COLUMNS}
