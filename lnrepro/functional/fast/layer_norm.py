"""Layer norm of vectors whose mean is zero already, for groups of their units.

The plain form is `lnrepro.functional.norms.layer_norm` of each group. Two things make
this form faster in a recurrent step:

1. The mean of W x over the units is (mean of W's columns) x. Where that mean is taken
   out of the weight once per sequence (`centre`), a step is spared a pass over its
   units, and the variance is a mean of squares.
2. Its derivative rule takes both of its sums, over the units and over the rows, from
   one product a * dy. JAX's own derivative makes more passes over all of a.

`layer_norm_of_groups` is the same with the mean. Its derivative takes the sums of both
from one pass, which saves a kernel per step on GPUs.

The derivative rule takes 1.5 to 5 % off the time of an LSTM and 5 to 25 % off that of a
GRU, forward and backward, on two cores of an AMD EPYC: docs/log.md, 2026-11-23, on the
shapes of `python scripts/bench.py cells`.

Without centring, a training step takes (docs/log.md, 2026-11-26, at up to three shapes)

            kernels of an H100    estimated cycles of a v5e    CPU time
    LSTM    0.98 to 1.01          1.18 to 1.20                 1.015 to 1.026
    GRU     1.10 to 1.24          1.13 to 1.34                 1.03 to 1.09

in units of the step with it: `python scripts/bench.py compiled --device v5e`.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Iterator

import jax
import jax.core
import jax.numpy as jnp

from lnrepro.functional.fast import platform
from lnrepro.functional.norms import wide

# Sizes of the groups of units relative to each other. (1,) is one group of all units;
# (2, 1) is that of the GRU, whose two gates are one group and whose candidate is
# another.
Groups = tuple[int, ...]


_centres_weights = contextvars.ContextVar("centres_weights", default=True)


@contextlib.contextmanager
def one_step(batch_axes: tuple[int, ...]) -> Iterator[None]:
    """Take the plain norm of products inside where one step has few rows.

    One step of an LN-LSTM on a CPU takes 1.00 of the time of Flax's cell with LayerNorm
    at 1 row and 256 units, and 1.04 where the weights are centred. At 64 rows of 256
    units it takes 1.05, and 1.01 where they are centred (2026-11-27).

    Args:
      batch_axes: sizes of the batch axes of the step.
    """
    few_rows = all(isinstance(n, int) for n in batch_axes) and math.prod(batch_axes) < 8
    token = _centres_weights.set(not few_rows)
    try:
        yield
    finally:
        _centres_weights.reset(token)


def centre_once(w: jax.Array, *, groups: Groups = (1,)) -> jax.Array:
    """Return `centre` of a weight or bias that serves a sequence, w within one step."""
    return centre(w, groups=groups) if _centres_weights.get() else w


def layer_norm_of_product(
    a: jax.Array,
    gain: jax.Array,
    bias: jax.Array | None = None,
    *,
    epsilon: float = 1e-5,
    groups: Groups = (1,),
) -> jax.Array:
    """Layer norm of a product [..., N] whose weight went through `centre_once`.

    Arguments and result are those of `layer_norm_of_groups`.
    """
    norm = layer_norm_centred if _centres_weights.get() else layer_norm_of_groups
    return norm(a, gain, bias, epsilon=epsilon, groups=groups)


def centre(w: jax.Array, *, groups: Groups = (1,)) -> jax.Array:
    """Subtract from w [..., N] its mean over the last axis, in each group by itself.

    Args:
      w: a weight [D, N] or a bias [N]. After centring, v W has zero mean for every v.
      groups: the groups of units.
    """
    return (wide(w) - _means(wide(w), groups)).astype(w.dtype)


def _means(w, groups):
    """The mean of each unit's group, [..., 1] or [..., N]."""
    in_first = _in_first_group(w, groups)
    sums = [jnp.sum(part, -1, keepdims=True) for part in _each_group(in_first, w)]
    sizes = _group_sizes(w, groups)
    means = [total / size for total, size in zip(sums, sizes, strict=True)]
    return _choose(in_first, means)


def layer_norm_of_groups(
    a: jax.Array,
    gain: jax.Array,
    bias: jax.Array | None = None,
    *,
    epsilon: float = 1e-5,
    groups: Groups = (1,),
) -> jax.Array:
    """Layer norm of each group of a [..., N].

    Args:
      a: floating-point array [..., N].
      gain: [N].
      bias: [N], or None for 0.
      epsilon: added to the variance under the root.
      groups: the groups of units.

    Returns:
      Array [..., N] in float32 at least.
    """
    if platform.current() == "cpu":
        # On a CPU, a derivative rule for both at once was not measured to be faster.
        return layer_norm_centred(
            centre(wide(a), groups=groups), gain, bias, epsilon=epsilon, groups=groups
        )
    return _layer_norm(a, gain, bias, epsilon, groups, False)


def layer_norm_centred(
    a: jax.Array,
    gain: jax.Array,
    bias: jax.Array | None = None,
    *,
    epsilon: float = 1e-5,
    groups: Groups = (1,),
) -> jax.Array:
    """Layer norm of a [..., N] whose mean over each group is zero already.

    Arguments and result are those of `layer_norm_of_groups`.
    """
    return _layer_norm(a, gain, bias, epsilon, groups, True)


def _layer_norm(a, gain, bias, epsilon, groups, is_centred):
    a = wide(a)
    gain = gain.astype(a.dtype)
    y = _normalised_as_one(a, gain, epsilon, groups, is_centred, platform.current())
    return y if bias is None else y + _row(bias.astype(y.dtype), y)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4, 5))
def _normalised(a, gain, epsilon, groups, is_centred, on):
    """Each group of a [..., N] over its deviation, times gain [N]; on: the platform."""
    a = a if is_centred else a - _means(a, groups)
    first = _in_first_group(a, groups)
    return a * _choose(first, _scales(a, epsilon, groups, on)) * _row(gain, a)


@_normalised.defjvp
def _(epsilon, groups, is_centred, on, primals, tangents):
    # With dy the cotangent, the reverse of this rule sums one product, a * dy times the
    # scale, over the units (times gain) and over the rows.
    a, gain = primals
    da, dgain = tangents
    a = a if is_centred else a - _means(a, groups)
    first = _in_first_group(a, groups)
    scales = _scales(a, epsilon, groups, on)
    sizes = _group_sizes(a, groups)
    # The mean of da adds nothing to these sums, as the mean of a is zero. So the
    # reverse takes this sum and that of the mean from the same pass.
    sums = [jnp.sum(part, -1, keepdims=True) for part in _each_group(first, a * da)]
    # The relative change of each group's scale.
    changes = [
        -(scale**2) * (total / size)
        for scale, total, size in zip(scales, sums, sizes, strict=True)
    ]
    changes = jnp.concatenate(changes, -1)
    gains = _each_group(None if first is None else first.reshape(-1), gain)
    if on == "cpu":
        # A matrix product, whose reverse costs no pass on XLA's CPU backend.
        change = jnp.matmul(changes, jnp.stack(gains), precision="highest")
    else:
        # [..., groups, 1] times [1, ..., groups, N]; ranks are not promoted silently.
        of_rows = jnp.expand_dims(jnp.stack(gains), tuple(range(changes.ndim - 1)))
        change = jnp.sum(changes[..., None] * of_rows, -2)
    scale = _choose(first, scales)
    gain = _row(gain, a)
    da = da if is_centred else da - _means(da, groups)
    change = change + _row(dgain, a)
    return a * scale * gain, da * (scale * gain) + a * (scale * change)


_compiled = jax.jit(_normalised, static_argnums=(2, 3, 4, 5))


def _normalised_as_one(a, gain, epsilon, groups, is_centred, on):
    """Call `_normalised` as one function, which saves a step on an H100 three kernels.

    Inside a traced program it is a new function each time. Programs that read jaxprs,
    such as jax2onnx, do not take one jaxpr that occurs twice.
    """
    options = epsilon, groups, is_centred, on
    if not isinstance(a, jax.core.Tracer):
        return _compiled(a, gain, *options)
    return jax.jit(lambda a, gain: _normalised(a, gain, *options))(a, gain)


def _scales(a, epsilon, groups, on):
    """One over the deviation of each group of a [..., N], each [..., 1]."""
    square = jnp.square(a)
    if len(groups) == 1:
        return [jax.lax.rsqrt(jnp.mean(square, -1, keepdims=True) + epsilon)]
    # Both groups in one array. XLA's CPU backend would compile each group apart.
    sums = _sums(square, groups, on)
    sizes = _group_sizes(a, groups)
    means = [total / size for total, size in zip(sums, sizes, strict=True)]
    is_first = _row(jnp.arange(2) < 1, a)
    scales = jax.lax.rsqrt(jnp.where(is_first, *means) + epsilon)
    return [scales[..., :1], scales[..., 1:]]


def _sums(a, groups, on):
    """The sum of each of two groups of a [..., N], each [..., 1]."""
    if on == "tpu":
        # A TPU would pad the three gates of `_parts` to a tile of four or eight.
        in_first = _in_first_group(a, groups)
        return [jnp.sum(part, -1, keepdims=True) for part in _each_group(in_first, a)]
    # All parts in one pass. XLA's CPU backend would copy slices.
    parts = jnp.sum(_parts(a, groups), -1)
    columns = [parts[..., k : k + 1] for k in range(sum(groups))]
    return [sum(columns[: groups[0]]), sum(columns[groups[0] :])]


def _group_sizes(a, groups):
    """Number of units in each group."""
    return [a.shape[-1] // sum(groups) * size for size in groups]


def _in_first_group(a, groups):
    """Which units belong to the first of two groups, [1, ..., N]; None is all."""
    if len(groups) == 1:
        return None
    return _row(jnp.arange(a.shape[-1]) < _group_sizes(a, groups)[0], a)


def _each_group(first, a):
    """The array a for each group, with zeros in place of the other group."""
    if first is None:
        return [a]
    zero = jnp.zeros((), a.dtype)
    return [jnp.where(first, a, zero), jnp.where(first, zero, a)]


def _choose(first, values):
    """One array from a value for each group."""
    return values[0] if first is None else jnp.where(first, *values)


def _parts(a, groups):
    return a.reshape(*a.shape[:-1], sum(groups), a.shape[-1] // sum(groups))


def _row(vector, a):
    """A vector [N] with as many axes as a."""
    return vector.reshape((1,) * (a.ndim - 1) + vector.shape)
