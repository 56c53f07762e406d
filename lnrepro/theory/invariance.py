"""Table 1 of the paper, measured: which changes of weights or data leave a model's output as it was.

A model here is any function `(kernel, data) -> output`: close over whatever else it needs. The kernel is (..., H) with
the units last, the data (B, ...) with the training cases first, the output an array or a tree of arrays:

    measure_row(lambda w, x: jax.nn.relu(layer_norm(x @ w, epsilon=0.0)), w, x, key=jax.random.key(0))
    # {"weight matrix re-scaling": 1.2e-16, ..., "weight vector re-scaling": 0.41, ...}

Three things to know about the table, each of them a test:
- It holds for positive factors: a negative one turns the sign of the normalised sums. It is exact for epsilon = 0; with epsilon
  under the root, scaling the sums by d changes the output by about epsilon/(2 var) |1 - 1/d^2|, var being their variance.
- The running text of section 5.1 says that all three methods are invariant to re-scaling the data set. The table, which
  says that weight normalisation is not, is right.
- Re-centring the weight matrix adds the same value to all units *of one position*. A convolution's layer norm with
  statistics over positions too does not remove it: the table is about fully connected layers.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Model = Callable[[jax.Array, jax.Array], Any]

COLUMNS = (
    "weight matrix re-scaling",
    "weight matrix re-centering",
    "weight vector re-scaling",
    "dataset re-scaling",
    "dataset re-centering",
    "single training case re-scaling",
)
# The paper's Table 1: True = "Invariant", False = "No".
TABLE_1 = {
    "batch": dict(zip(COLUMNS, (True, False, True, True, True, False), strict=True)),
    "weight": dict(zip(COLUMNS, (True, False, True, False, False, False), strict=True)),
    "layer": dict(zip(COLUMNS, (True, True, False, True, False, True), strict=True)),
}


def rescale_matrix(kernel: jax.Array, factor: float) -> jax.Array:
    """W -> factor W for a kernel (..., H)."""
    return factor * kernel


def recenter_matrix(kernel: jax.Array, shift: jax.Array) -> jax.Array:
    """W -> W + 1 shift^T (eq. 6) for a kernel (..., H): one vector (...) added to every unit's weights."""
    return kernel + shift[..., None]


def rescale_unit(kernel: jax.Array, factor: float, unit: int = 0) -> jax.Array:
    """w_i -> factor w_i for one unit's incoming weights kernel[..., unit]."""
    return kernel.at[..., unit].multiply(factor)


def rescale_data(x: jax.Array, factor: float) -> jax.Array:
    """X -> factor X: all training cases by the same factor."""
    return factor * x


def recenter_data(x: jax.Array, shift: jax.Array) -> jax.Array:
    """x -> x + shift for all training cases of (B, ..., D); shift broadcasts, e.g. (D,)."""
    return x + shift


def rescale_case(x: jax.Array, factor: float, case: int = 0) -> jax.Array:
    """x -> factor x for one training case x[case] of (B, ...) (eq. 7)."""
    return x.at[case].multiply(factor)


def transformations(
    kernel: jax.Array, x: jax.Array, *, key: jax.Array, factor: float = 2.5
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """The six columns of Table 1 as {column: (new kernel, new data)}; shifts are random, as large as their target."""
    weight_key, data_key = jax.random.split(key)
    weight_shift = kernel.std() * jax.random.normal(
        weight_key, kernel.shape[:-1], kernel.dtype
    )
    data_shift = x.std() * jax.random.normal(data_key, x.shape[-1:], x.dtype)
    pairs = (
        (rescale_matrix(kernel, factor), x),
        (recenter_matrix(kernel, weight_shift), x),
        (rescale_unit(kernel, factor), x),
        (kernel, rescale_data(x, factor)),
        (kernel, recenter_data(x, data_shift)),
        (kernel, rescale_case(x, factor)),
    )
    return dict(zip(COLUMNS, pairs, strict=True))


def change(before: Any, after: Any) -> float:
    """Largest absolute difference of two trees of arrays over the largest magnitude in `before`: a plain number."""
    pairs = list(zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))
    largest = max(jnp.abs(a).max() for a, _ in pairs)
    return float(max(jnp.abs(b - a).max() for a, b in pairs) / largest)


def measure_row(
    model: Model,
    kernel: jax.Array,
    x: jax.Array,
    *,
    key: jax.Array,
    factor: float = 2.5,
) -> dict[str, float]:
    """One row of Table 1 for `model(kernel, x)`: {column: change of the output}, see `change`; zero means invariant.

    Args:
        model: any function of a kernel (..., H) and data (B, ...).
        kernel: where the weights are changed.
        x: the data, cases first; a batch-normalised model sees all of it as the data distribution.
        key: draws the two shifts.
        factor: the scale factor of the four re-scalings, positive.

    Raises:
        ValueError: `factor` is not positive: the invariances hold for positive factors only.
    """
    if not factor > 0:
        raise ValueError(
            f"factor is {factor}; Table 1 holds for positive factors only (a negative one turns the sign)"
        )
    before = model(kernel, x)
    changed = transformations(kernel, x, key=key, factor=factor)
    return {
        column: change(before, model(*arguments))
        for column, arguments in changed.items()
    }
