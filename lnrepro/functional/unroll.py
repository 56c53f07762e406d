"""A cell over time: one step, or a whole sequence with padding, resets and direction.

Shape letters: B batch (any number of axes), T time, D input features, H hidden units.
"""

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional import arguments, norms, products, sequences
from lnrepro.functional.arrays import gather_from, tree_at_least_f32, unify_manual_axes
from lnrepro.functional.cells.base import Carry, Cell, Params, StepContext
from lnrepro.functional.scan import identity, scan
from lnrepro.functional.scan_options import ScanOptions


class BatchStatistics(NamedTuple):
    """Batch norm's statistics of each step taken.

    Attributes:
      values: {site: (mean, var)}, each [T, n]; row t belongs to the t-th step taken.
      seen: [T], False at a step where every row was padding.
    """

    values: dict[str, tuple[jax.Array, jax.Array]]
    seen: jax.Array


class Unrolled(NamedTuple):
    """The result of `unroll`.

    Attributes:
      carry: the carry after the last step.
      outputs: [..., T, H].
      statistics: BatchStatistics of a cell with batch norm that used the batch's own
        statistics; else None.
    """

    carry: Carry
    outputs: jax.Array
    statistics: Any


class _Inputs(NamedTuple):
    """Arrays that all steps of a scan share."""

    params: Any
    reset_carry: Carry | None
    memory: Any
    noise: Any


def unroll(
    cell: Cell,
    params: Params,
    x: jax.Array,
    *,
    initial_carry: Carry | None = None,
    seq_lengths: jax.Array | None = None,
    mask: jax.Array | None = None,
    resets: jax.Array | None = None,
    reverse: bool = False,
    keep_order: bool = False,
    time_major: bool = False,
    key: jax.Array | None = None,
    memory: Any = None,
    noise: Any = None,
    statistics: dict | None = None,
    dtype: jax.typing.DTypeLike | None = None,
    options: ScanOptions | None = None,
) -> Unrolled:
    """Run a cell over a sequence.

    A sequence may hold several episodes, as rollouts of reinforcement learning do.
    `resets` marks the steps that see the first observation of an episode. The carry
    starts anew before such a step, so that resets[t] is done[t - 1], and not done[t]:

        step t       0    1    2    3    4    5
        x[t]         a0   a1   a2   b0   b1   c0     observations of episodes a, b, c
        done[t]      0    0    1    0    1    0      the action ends the episode
        resets[t]    1    0    0    1    0    1
        carry        * -> . -> .    * -> .    * ->   * the cell's own initial carry

    Where the first step goes on with an episode, resets[0] is False and initial_carry
    is the carry of the rollout before it, a row for each sequence.

    A sequence holds any other sequences in the same way. `resets` marks the first step
    of each, in the order of x, also with reverse: then the carry starts anew behind the
    last step of each sequence. So every sequence gets what it gets alone.

    Args:
      cell: an LSTMCell, GRUCell, SimpleCell, a wrapped cell, a Stack, or your own.
      params: its parameters.
      x: [..., T, D] with any number of batch axes, also none.
      initial_carry: the carry before the first step, which is kept in float32 at least;
        None takes the cell's own.
      seq_lengths: [...], integers in [0, T]. Steps at and beyond a length are padding.
      mask: [..., T], False where a step is padding, anywhere. Padded steps pass the
        carry on, and their output is zero. x may hold anything there.
      resets: [..., T], booleans or integers, True at the first step of a sequence. The
        carry starts anew between this step and the one before it, at the cell's own
        initial carry (zeros, or the learned one). Resets at and beyond seq_lengths
        change nothing, and with reverse neither does resets[..., 0].
      reverse: run from the end to the start; padding is skipped wherever it is.
      keep_order: with reverse, whether the outputs stand in the order of x, or in the
        order of processing (with seq_lengths, each sequence's own, padding last).
      time_major: x is [T, ..., D], the outputs [T, ..., H], mask and resets [T, ...].
      key: random key for zoneout and dropout; None means test time.
      memory: what every step reads as `StepContext.memory`. Gradients flow to it.
      noise: what `cell.sample` drew, to use in place of a fresh draw from the key.
      statistics: population statistics of batch norm {site: (mean, var)}, each
        [T_max, n]. Step t uses row min(t, T_max - 1). None means the batch's own.
      dtype: dtype of x, the weights and the outputs; None takes the one that x and the
        weights promote to.
      options: how the scan runs and what its backward pass keeps.

    Returns:
      Unrolled: (carry, outputs, statistics or None).

    Raises:
      TypeError: integer inputs, a carry of another dtype, floating-point resets or
        lengths, forward-mode differentiation of the lean backward pass.
      ValueError: a shape that does not fit, parameters of another cell.

    >>> from lnrepro.functional import LSTMCell
    >>> cell = LSTMCell(8, norm="layer")
    >>> params = cell.init(jax.random.key(0), features_in=3)
    >>> x, lengths = jnp.ones((2, 5, 3)), jnp.array([5, 2])
    >>> unroll(cell, params, x, seq_lengths=lengths).outputs.shape
    (2, 5, 8)
    """
    x, weights, step_params = _start("unroll", cell, params, x, dtype)
    mask = sequences.flags("unroll", "mask", mask, x)
    resets = sequences.flags("unroll", "resets", resets, x)
    batch_axes = x.ndim - 2
    if not time_major:
        # Time first, as `lax.scan` wants it: [T, ..., D].
        x = jnp.moveaxis(x, -2, 0)
        mask, resets = jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), (mask, resets))
    steps = x.shape[0]
    mask = sequences.padding_mask(x, seq_lengths, mask)
    if resets is not None:
        resets = sequences.resets_within(resets, seq_lengths, reverse)

    direction = sequences.direction_of(cell, seq_lengths, reverse, keep_order)
    x, resets, mask = direction.inputs((x, resets, mask))
    x = sequences.without_padding(x, mask)
    given_statistics = sequences.statistics_of_steps(statistics, direction, steps)

    # Noise and the first carry. T may be 0.
    first = x[0] if steps else x.sum(0)
    keys = None
    if key is not None:
        steps_key, noise_key = jax.random.split(key)
        keys = jax.random.split(steps_key, steps)
        if noise is None:
            noise = cell.sample(noise_key, first)
    own_carry = tree_at_least_f32(cell.initial_carry(params, first))
    carry, returned = own_carry, identity
    if initial_carry is not None:
        carry, returned = _first_carry(
            "unroll", own_carry, initial_carry, mask, resets, direction.from_end
        )

    inputs = _Inputs(step_params, None if resets is None else own_carry, memory, noise)
    # What is made of a parameter varies as it does.
    x, weights, inputs, carry, given_statistics = unify_manual_axes(
        (x, weights, inputs, carry, given_statistics)
    )
    context = StepContext(mask=mask, key=keys, statistics=given_statistics)
    result = scan(
        functools.partial(_guarded_step, cell),
        weights,
        inputs,
        carry,
        x,
        output=functools.partial(_output, cell, x.dtype),
        context=(context, resets),
        reverse=direction.from_end,
        options=options,
    )

    last = returned(result.carry)
    # The outputs, in the order and the layout that were asked for.
    outputs = direction.outputs(sequences.without_padding(result.outputs, mask))
    if not time_major:
        outputs = jnp.moveaxis(outputs, 0, batch_axes)
    # Batch norm's own statistics, for running averages; row t is that of the t-th step.
    used = None
    if cell.sites and statistics is None:
        used = BatchStatistics(result.aux, sequences.steps_with_a_row(mask, steps))
        used = direction.of_steps(used)
    return Unrolled(last, outputs, used)


def step(
    cell: Cell,
    params: Params,
    carry: Carry,
    x: jax.Array,
    *,
    mask: jax.Array | None = None,
    reset: jax.Array | None = None,
    key: jax.Array | None = None,
    memory: Any = None,
    noise: Any = None,
    statistics: dict | None = None,
    dtype: jax.typing.DTypeLike | None = None,
) -> tuple[Carry, jax.Array]:
    """Take one step, as `unroll` takes each of its steps.

    Args:
      cell: any cell.
      params: its parameters.
      carry: the carry before the step.
      x: [..., D].
      mask: [...], False where the step is padding.
      reset: [...], booleans or integers, True where the carry starts anew before the
        step, which sees the first observation of an episode. A loop from the end to
        the start gives resets[..., t + 1] at step t.
      key: random key for zoneout and dropout; None means test time.
      memory: what the step reads as `StepContext.memory`.
      noise: what `cell.sample` drew once for the sequence. Where it is None and there
        is a key, it is drawn for this step alone.
      statistics: population statistics of batch norm {site: (mean, var)}, each [n].
      dtype: as in `unroll`.

    Returns:
      (carry, output [..., H]).

    Raises:
      TypeError, ValueError: as `unroll`.

    >>> from lnrepro.functional import GRUCell
    >>> cell = GRUCell(8)
    >>> params = cell.init(jax.random.key(0), features_in=3)
    >>> x = jnp.ones((2, 3))
    >>> carry, y = step(cell, params, cell.initial_carry(params, x), x)
    >>> y.shape
    (2, 8)
    """
    x, weights, step_params = _start("step", cell, params, x, dtype)
    mask = sequences.flags("step", "mask", mask, x)
    reset = sequences.flags("step", "reset", reset, x)
    # Padding may hold anything, even NaN, which would reach the gradients.
    x = sequences.without_padding(x, mask)
    if key is not None and noise is None:
        key, noise_key = jax.random.split(key)
        noise = cell.sample(noise_key, x)
    # The parts of `unroll` in the same order, without the time axis.
    own_carry = tree_at_least_f32(cell.initial_carry(params, x))
    # With a time axis of one step.
    flags = jax.tree.map(lambda a: a[None], (mask, reset))
    carry, returned = _first_carry("step", own_carry, carry, *flags)
    inputs = _Inputs(step_params, own_carry, memory, noise)
    context = StepContext(mask=mask, key=key, statistics=statistics)
    dot = products.named_dot(weights)
    carry, _ = _guarded_step(cell, dot, inputs, carry, x, (context, reset))
    carry = returned(carry)
    return carry, sequences.without_padding(_output(cell, x.dtype, carry), mask)


def _start(function, cell, params, x, dtype):
    """Check the inputs of a function; return x, weights, and what steps read besides.

    The weights are those that multiply, and no other arrays are rounded to `dtype`.
    """
    x = arguments.floating_point(function, "x", x)
    # The step reads all features, on every device.
    x = gather_from(x, x.ndim - 1)
    # Prepared at the precision of the parameters, before any cast. What a step reads
    # besides the weights, such as gains, is in float32 at least, and so are the sums of
    # its gradients.
    weights, step_params = cell.prepare(params)
    if dtype is None:
        dtypes = map(operator.attrgetter("dtype"), (x, *weights.values()))
        dtype = jnp.result_type(*dtypes)
    cast = functools.partial(jax.lax.convert_element_type, new_dtype=dtype)
    x, weights = cast(x), jax.tree.map(cast, weights)
    step_params = tree_at_least_f32(jax.tree.map(gather_from, step_params))
    arguments.features(function, cell, weights, x)
    return x, weights, step_params


def _first_carry(function, own_carry, given, mask, resets, from_end=False):
    """The carry before the first step, and a function of the last one.

    Where all steps of a row are padding, the carry that was given is returned, and the
    steps do not read it.
    """
    given = arguments.carry_like(function, own_carry, given)
    if mask is None:
        return given, identity
    reads, returns = sequences.use_of_first_carry(mask, resets, from_end)
    carry = sequences.where(reads, given, own_carry)
    return carry, functools.partial(sequences.where, returns, given)


def _output(cell, dtype, carry):
    """The cell's output after a step, in the dtype of the products."""
    return cell.output(carry).astype(dtype)


def _guarded_step(cell, dot, inputs, carry, x, context):
    """One step of the cell, with resets before it and padding passed over."""
    context, reset = context
    # What all steps share is differentiated, so it is not in the scan's context.
    context = context._replace(memory=inputs.memory, noise=inputs.noise)
    # A reset stands before the step that sees the first input of a new sequence.
    if reset is not None:
        carry = sequences.where(reset, inputs.reset_carry, carry)
    new, statistics = cell.step(dot, inputs.params, carry, x, context)
    # A loop keeps the dtypes of the carry.
    new = jax.tree.map(_cast_like, new, carry)
    # A padded step passes the carry on.
    if context.mask is not None:
        new = sequences.where(context.mask, new, carry)
    return new, statistics


def _cast_like(a, like):
    return a.astype(like.dtype)


def track(running: Any, batch: BatchStatistics, momentum: Any) -> Any:
    """Move running statistics of batch norm by one batch.

    Args:
      running: {site: (mean, var)}, each [T_max, n].
      batch: `Unrolled.statistics`. Steps beyond T_max, and steps where every row was
        padding, change nothing.
      momentum: running <- momentum * running + (1 - momentum) * batch.

    Returns:
      The running statistics. No gradient flows to them.
    """

    def move(old, new):
        # A batch may be shorter or longer than the T_max steps that the running table
        # has.
        known = min(old.shape[0], new.shape[0])
        moved = norms.running_average(old[:known], new[:known], momentum)
        # At a step without a valid row, the batch's statistics say nothing.
        return old.at[:known].set(
            jnp.where(batch.seen[:known, None], moved, old[:known])
        )

    return jax.tree.map(move, running, batch.values)


def bidirectional(
    forward: Cell,
    backward: Cell,
    params: tuple[Params, Params],
    x: jax.Array,
    *,
    initial_carry: tuple[Carry, Carry] | None = None,
    seq_lengths: jax.Array | None = None,
    mask: jax.Array | None = None,
    resets: jax.Array | None = None,
    time_major: bool = False,
    key: jax.Array | None = None,
    memory: Any = None,
    options: ScanOptions | None = None,
) -> Unrolled:
    """Run one cell over a sequence from left to right and one from right to left.

    Args:
      forward: the cell that runs from left to right.
      backward: the cell that runs from right to left.
      params: a pair of their parameters.
      x: [..., T, D].
      initial_carry: a pair of carries, or None.
      seq_lengths: [...], as in `unroll`.
      mask: [..., T], as in `unroll`.
      resets: [..., T], True at the first step of a sequence in the order of x.
      time_major: whether x is [T, ..., D].
      key: random key, of which each cell gets a part.
      memory: read by the steps of both cells.
      options: how both scans run.

    Returns:
      Unrolled: carry is a pair, outputs are those of both side by side [..., T, 2 H]
      in the order of x, and statistics is None: batch norm takes those of the batch.

    Raises:
      TypeError, ValueError: as `unroll`.
    """
    keys = None, None
    if key is not None:
        # Each cell draws its own noise, so the key is split.
        keys = jax.random.split(key)
    carries = initial_carry or (None, None)
    left, right = (
        unroll(
            cell,
            params[number],
            x,
            initial_carry=carries[number],
            seq_lengths=seq_lengths,
            mask=mask,
            resets=resets,
            reverse=number == 1,
            keep_order=True,
            time_major=time_major,
            key=keys[number],
            memory=memory,
            options=options,
        )
        for number, cell in enumerate((forward, backward))
    )
    # Both outputs stand in the order of x, so row t of each belongs to input t.
    outputs = jnp.concatenate([left.outputs, right.outputs], -1)
    return Unrolled((left.carry, right.carry), outputs, None)
