"""The LSTM without norms through cuDNN, on NVIDIA GPUs.

It is off unless `ScanOptions(cudnn=True)` asks for it. What it buys is not measured
yet; `python scripts/bench.py cells` has a row for cuDNN on a GPU. `unroll` takes the
scan where cuDNN cannot run, without a message: `can_run` has the conditions on the
cell, and `unroll` those on the sequence. The gradient can be taken once, in reverse
mode, as cuDNN has no further derivatives.

The parameters are those of `LSTMCell`. `flat_weights` brings them into cuDNN's order.
tests/functional/test_cudnn.py compares values and gradients with the reference of
jax.experimental.rnn, which reads the same order.

Shape letters: B batch, T time, D input features, H hidden units.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.cells.base import Cell
from lnrepro.functional.cells.lstm import LSTMCell


def is_available() -> bool:
    """Return whether JAX runs on an NVIDIA GPU."""
    device = jax.devices()[0]
    return device.platform == "gpu" and "nvidia" in device.device_kind.lower()


def can_run(cell: Cell, x: jax.Array) -> bool:
    """Return whether cuDNN's LSTM computes what a cell does.

    Args:
      cell: the cell.
      x: inputs [T, ..., D].
    """
    if type(cell) is not LSTMCell or x.dtype != jnp.float32 or not x.size:
        return False
    has_extras = cell.blocks > 1 or cell.peephole or cell.inner_bias
    has_other_functions = (
        cell.gate_fn is not jax.nn.sigmoid or cell.activation_fn is not jnp.tanh
    )
    if cell.norm != "none" or has_extras or has_other_functions:
        return False
    return cell.gradient_clip is None and is_available()


def unroll(
    weights: dict[str, jax.Array],
    params: dict[str, jax.Array],
    carry: Any,
    x: jax.Array,
    seq_lengths: jax.Array | None,
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """Run the LSTM over a sequence.

    Args:
      weights: w_x [D, 4H] and w_h [H, 4H], gates in the order f, i, o, g.
      params: the other parameters, of which bias [4H] is read.
      carry: (c, h) before the first step, each [..., H].
      x: inputs [T, ..., D].
      seq_lengths: [...], or None where nothing is padding.

    Returns:
      The carry (c, h) after the last step of each sequence, and h of all steps
      [T, ..., H], which holds anything at padding.
    """
    steps, batch_axes = x.shape[0], x.shape[1:-1]
    rows = math.prod(batch_axes)
    # cuDNN has one batch axis, and here it comes first.
    x_rows = x.reshape(steps, rows, x.shape[-1]).swapaxes(0, 1)
    c, h = (a.reshape(1, rows, a.shape[-1]) for a in carry)
    lengths = jnp.full(rows, steps, jnp.int32)
    if seq_lengths is not None:
        lengths = jnp.asarray(seq_lengths, jnp.int32).reshape(rows)
    # It cannot run sequences of length 0, whose result is discarded.
    outputs, last_h, last_c = _run(
        x_rows, h, c, flat_weights(weights, params), jnp.maximum(lengths, 1)
    )
    is_empty = (lengths == 0)[:, None]
    new_c, new_h = jnp.where(is_empty, c, last_c), jnp.where(is_empty, h, last_h)
    shape = (*batch_axes, -1)
    outputs = outputs.swapaxes(0, 1).reshape(steps, *shape)
    return (new_c.reshape(shape), new_h.reshape(shape)), outputs


def flat_weights(
    weights: dict[str, jax.Array], params: dict[str, jax.Array]
) -> jax.Array:
    """Return kernels and biases as one vector, in cuDNN's order.

    It is W_ih [4H, D], W_hh [4H, H], b_ih [4H], b_hh [4H], with the gates in the order
    i, f, g, o.

    Args:
      weights: see `unroll`.
      params: see `unroll`.
    """
    units = weights["w_h"].shape[0]
    bias = params.get("bias", jnp.zeros(4 * units, weights["w_h"].dtype))

    def reorder(a):
        f, i, o, g = jnp.split(a, 4, -1)
        return jnp.concatenate([i, f, g, o], -1)

    # cuDNN has two biases, of which one is enough.
    parts = [reorder(weights["w_x"]).T, reorder(weights["w_h"]).T]
    parts += [reorder(bias), jnp.zeros(4 * units, bias.dtype)]
    return jnp.concatenate([part.reshape(-1) for part in parts])


def _run(x: Any, h: Any, c: Any, flat: Any, lengths: Any) -> Any:
    """Call cuDNN: outputs [B, T, H], h and c [1, B, H]."""
    from jax.experimental import rnn

    return rnn.lstm(
        x,
        h,
        c,
        flat,
        lengths,
        input_size=x.shape[-1],
        hidden_size=h.shape[-1],
        num_layers=1,
        dropout=0.0,
        bidirectional=False,
    )
