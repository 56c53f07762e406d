"""Padding, order and other things that belong to a sequence and not to a cell.

Everything here is time-major: [T, ...].
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional.arguments import of_shape
from lnrepro.functional.cells.base import Cell


def flip(sequences: Any, seq_lengths: jax.Array | None) -> Any:
    """Reverse time-major sequences, each within its own length.

    Args:
      sequences: pytree of [T, ..., n].
      seq_lengths: [...]; padding stays at the end. None reverses all of time.

    Returns:
      The pytree of reversed sequences.

    >>> flip(jnp.array([[1], [2], [3]]), jnp.array([2])).tolist()
    [[2], [1], [3]]
    """
    if seq_lengths is None:
        return jax.tree.map(lambda a: jnp.flip(a, 0), sequences)
    seq_lengths = jnp.asarray(seq_lengths)

    def flip_one(a):
        # Step t comes from step length - 1 - t, and padding stays where it is.
        time, lengths = _time(seq_lengths, a.shape[0]), seq_lengths[None]
        source = jnp.where(time < lengths, lengths - 1 - time, time)
        # take_along_axis needs an index with as many axes as `a`.
        source = source.reshape(source.shape + (1,) * (a.ndim - source.ndim))
        return jnp.take_along_axis(a, source, 0)

    return jax.tree.map(flip_one, sequences)


class Direction(NamedTuple):
    """The order in which a scan takes the steps of sequences.

    Attributes:
      flips: whether each sequence is reversed within its own length before the scan.
      from_end: whether the scan itself runs from the last step to the first.
      keep_order: whether outputs stand in the order of x.
      seq_lengths: integers [...], or None.
    """

    flips: bool
    from_end: bool
    keep_order: bool
    seq_lengths: Any

    def inputs(self, tree: Any) -> Any:
        """Return arrays [T, ...] in the order that the scan gets them."""
        if self.flips:
            return flip(tree, self.seq_lengths)
        return tree

    def of_steps(self, tree: Any) -> Any:
        """Return rows [T, ...] of the scan so that row t is that of its t-th step."""
        if self.from_end:
            return flip(tree, None)
        return tree

    def outputs(self, outputs: jax.Array) -> jax.Array:
        """Return the outputs [T, ...] in the order that was asked for."""
        if self.keep_order:
            return self.inputs(outputs)
        return self.of_steps(outputs)


def direction_of(
    cell: Cell, seq_lengths: Any, reverse: bool, keep_order: bool
) -> Direction:
    """Return the direction of a run.

    Args:
      cell: the cell.
      seq_lengths, reverse, keep_order: as given to `unroll`.
    """
    # A scan from the end needs no reversed copy of x. But batch norm's statistics of a
    # step, and outputs in the order of processing, ask that all sequences take their
    # t-th step at the same time: then each is reversed within its own length.
    flips = reverse and seq_lengths is not None and (bool(cell.sites) or not keep_order)
    return Direction(flips, reverse and not flips, keep_order, seq_lengths)


def where(condition: jax.Array, new: Any, old: Any) -> Any:
    """Choose between two trees of arrays, row by row.

    Args:
      condition: booleans [...], the first axes of every leaf.
      new: pytree of [..., n], taken where the condition is True.
      old: the same, taken elsewhere.
    """

    def choose(new, old):
        # [...] becomes [..., 1, 1] for a leaf of the carry with two more axes.
        missing = (1,) * (new.ndim - condition.ndim)
        return jnp.where(condition.reshape(condition.shape + missing), new, old)

    return jax.tree.map(choose, new, old)


def without_padding(a: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Return a [..., n] with zeros where the mask [...] is False."""
    if mask is None:
        return a
    return jnp.where(mask[..., None], a, jnp.zeros((), a.dtype))


def flags(function: str, name: str, values: Any, x: jax.Array) -> jax.Array | None:
    """Return a mask or resets as booleans, None where there are none.

    Args:
      function: "unroll" or "step", for the message.
      name: of the argument, for the message.
      values: booleans or numbers of the shape of x without its features. Zero is False.
      x: the inputs.

    Raises:
      ValueError: another shape.
      TypeError: resets that are neither booleans nor integers.
    """
    if values is None:
        return None
    values = jnp.asarray(values)
    # A discount is a floating-point number too, and is 0 where an episode ends. Its
    # values cannot tell it from `done`.
    if "reset" in name and jnp.issubdtype(values.dtype, jnp.inexact):
        raise TypeError(
            f"{function}: {name} has dtype {values.dtype}; it must hold booleans or "
            "integers: done.astype(bool), and not a discount, which is 0 where an "
            "episode ends"
        )
    of_shape(function, name, values, x.shape[:-1])
    return values.astype(bool)


def padding_mask(
    x: jax.Array, seq_lengths: Any, mask: jax.Array | None
) -> jax.Array | None:
    """Join lengths and mask to one mask [T, ...], None where there is neither.

    Args:
      x: [T, ..., D], the inputs.
      seq_lengths: integers [...]; steps from the length on are padding.
      mask: [T, ...], False where a step is padding.

    Raises:
      ValueError: lengths of another shape.
      TypeError: lengths that are not integers.
    """
    if seq_lengths is None:
        return mask
    seq_lengths = jnp.asarray(seq_lengths)
    of_shape("unroll", "seq_lengths", seq_lengths, x.shape[1:-1])
    if not jnp.issubdtype(seq_lengths.dtype, jnp.integer):
        raise TypeError(
            f"unroll: seq_lengths has dtype {seq_lengths.dtype}; it must hold integers"
        )
    valid = _within(seq_lengths, x.shape[0])
    if mask is None:
        return valid
    return valid & mask


def _within(seq_lengths, steps):
    """Which steps lie within the lengths [...], booleans [T, ...]."""
    # [T, 1, ...] < [1, ...] gives [T, ...].
    return _time(seq_lengths, steps) < seq_lengths[None]


def _time(seq_lengths, steps):
    """The numbers of the steps, [T, 1, ...] for lengths [...]."""
    return jnp.arange(steps).reshape(-1, *[1] * seq_lengths.ndim)


def resets_within(resets: jax.Array, seq_lengths: Any, reverse: bool) -> jax.Array:
    """Return where the carry starts anew, in the direction of the run.

    Args:
      resets: booleans [T, ...], True at the first step of each sequence.
      seq_lengths: integers [...], where the last sequence ends, or None. Resets at and
        beyond them change nothing.
      reverse: whether the run goes from the end to the start. Then the carry starts
        anew at the last step of each sequence but the last one.

    >>> resets_within(jnp.array([True, False, True, False]), None, True).tolist()
    [False, True, False, False]
    """
    if seq_lengths is not None:
        resets &= _within(jnp.asarray(seq_lengths), resets.shape[0])
    if not reverse:
        return resets
    # Coming from the end, a sequence begins behind its last step, where the next one
    # has its first.
    return jnp.concatenate([resets[1:], jnp.zeros_like(resets[:1])])


def use_of_first_carry(
    mask: jax.Array, resets: jax.Array | None, from_end: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Return which rows read the first carry at a valid step, and which return it.

    Other rows must not meet its values: zero times NaN would be in the gradients.

    Args:
      mask: [T, ...], False where a step is padding.
      resets: [T, ...], where the carry starts anew before a step, or None.
      from_end: whether the run goes from the end to the start.

    >>> mask = jnp.array([[True, False, False], [True, False, True]])
    >>> resets = jnp.array([[False, False, True], [True, False, False]])
    >>> [rows.tolist() for rows in use_of_first_carry(mask, resets)]
    [[True, False, False], [False, True, False]]
    """
    if resets is None:
        resets = jnp.zeros_like(mask)
    so_far = jax.lax.cumsum(resets.astype(jnp.int32), reverse=from_end)
    return (mask & (so_far == 0)).any(0), ~(mask | resets).any(0)


def statistics_of_steps(
    statistics: dict | None, direction: Direction, steps: int
) -> dict | None:
    """Return population statistics as those of each step.

    Args:
      statistics: {site: (mean, var)}, each [T_max, n]. None returns None.
      direction: that of the run.
      steps: T.

    Returns:
      {site: (mean, var)}, each [T, n]. Steps beyond T_max have those of the last one.
    """
    if statistics is None:
        return None
    numbers = direction.of_steps(jnp.arange(steps))

    # Steps beyond T_max use the last row, as Cooijmans et al. (2016) do.
    def of_steps(table):
        return table[jnp.minimum(numbers, table.shape[0] - 1)]

    return jax.tree.map(of_steps, statistics)


def steps_with_a_row(mask: jax.Array | None, steps: int) -> jax.Array:
    """Return which steps have a row that is not padding, booleans [T].

    Args:
      mask: [T, ...], False where a row is padding. None means no padding.
      steps: T.
    """
    if mask is None:
        return jnp.ones((steps,), bool)
    # Batch norm has no statistics of a step whose rows are all padding.
    return mask.any(tuple(range(1, mask.ndim)))
