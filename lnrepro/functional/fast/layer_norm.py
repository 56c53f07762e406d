"""Layer norm of groups of units, whose mean may be zero already.

The plain form is `lnrepro.functional.norms.layer_norm` of each group. Two things make
this form faster in a recurrent step:

1. The mean of W x over the units is (mean of W's columns) x. Where that mean is taken
   out of the weight once per sequence (`centre`), a step is spared a pass over its
   units, and the variance is a mean of squares.
2. Its derivative rule takes both of its sums, over the units and over the rows, from
   one product a * dy. JAX's own derivative makes more passes over all of a. Where the
   mean is taken out here as well, its sum is taken in the same pass, which saves a
   kernel per step on GPUs.

The derivative rule takes 1.5 to 5 % off the time of an LSTM and 5 to 25 % off that of a
GRU, forward and backward, on two cores of an AMD EPYC, on the shapes of `python
scripts/bench.py cells`: docs/log.md of commit 47dd3db, 2026-11-23.

Without centring, a training step takes, at up to three shapes (2026-11-26 there),

            kernels of an H100    estimated cycles of a v5e    CPU time
    LSTM    0.98 to 1.01          1.18 to 1.20                 1.015 to 1.026
    GRU     1.10 to 1.24          1.13 to 1.34                 1.03 to 1.09

in units of the step with it: `python scripts/bench.py compiled --device v5e`.

A step by itself centres its weights too, so that it has the numbers of a sequence. At 1
row of 256 units that takes 1.04 of the time on two cores of an AMD EPYC (2026-11-27).
The program that XLA makes for an H100 has 11, 7 and 7 kernels at 1, 4 and 64 rows of an
LSTM, where the plain norm has 13, 5 and 7, and 11, 12 and 12 of a GRU for 8, 8 and 12.
"""

import functools
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp

from lnrepro.functional.arrays import at_least_f32, row
from lnrepro.functional.fast import platform

# Sizes of the groups of units relative to each other: (1,) is one group of all units,
# (2, 1) is for the GRU, whose two gates are one group and whose candidate is another.
Groups = tuple[int, ...]


def centre(w: jax.Array, *, groups: Groups = (1,)) -> jax.Array:
    """Subtract from w [..., N] its mean over the last axis, in each group by itself.

    Args:
      w: a weight [D, N] or a bias [N]. After centring, v W has zero mean for every v.
      groups: the groups of units.
    """
    units = _units_of(w, groups)
    return units.centred(at_least_f32(w)).astype(w.dtype)


def layer_norm_of_groups(
    a: jax.Array,
    gain: jax.Array,
    *,
    epsilon: float = 1e-5,
    groups: Groups = (1,),
    is_centred: bool = False,
) -> jax.Array:
    """Layer norm of each group of a [..., N].

    Args:
      a: [..., N], in float32 at least, as products are.
      gain: [N].
      epsilon: added to the variance under the root.
      groups: the groups of units.
      is_centred: whether the mean of each group is zero already.

    Returns:
      Array [..., N].
    """
    context = platform.context()
    if context.platform == "cpu" and not is_centred:
        # On a CPU, a derivative rule for both at once was not measured to be faster.
        a, is_centred = _units_of(a, groups).centred(a), True
    options = {
        "epsilon": epsilon,
        "groups": groups,
        "is_centred": is_centred,
        "context": context,
    }
    gain = gain.astype(a.dtype)
    if isinstance(epsilon, jax.Array):
        # Its gradient is that of the plain form. A number is a part of the rule.
        return _plain(a, gain, **options)
    if not isinstance(a, jax.core.Tracer):
        return _normalised(a, gain, **options)
    # Derivatives and `vmap` of a program that runs at once leave constants as they are.
    if isinstance(jnp.zeros(1), jax.core.Tracer):
        # All of it is traced, for `jax.jit`, a loop or an export. As one function it
        # saves a step on an H100 three kernels. It is a new function each time:
        # programs that read jaxprs, such as jax2onnx, do not take one jaxpr that occurs
        # twice.
        return jax.jit(functools.partial(_normalised, **options))(a, gain)
    # Without `jax.jit` a new function would be compiled at every step.
    return _compiled_once(a, gain, **options)


def _plain(a, gain, epsilon, groups, is_centred, context):
    """Each group of a [..., N] over its deviation, times gain [N]."""
    units = _units_of(a, groups)
    if not is_centred:
        a = units.centred(a)
    scales = units.scales(a, epsilon, context.platform)
    return a * units.spread(scales) * row(gain, a)


_normalised = jax.custom_jvp(_plain, nondiff_argnums=(2, 3, 4, 5))
_compiled_once = jax.jit(
    _normalised, static_argnames=("epsilon", "groups", "is_centred", "context")
)


@_normalised.defjvp
def _(epsilon, groups, is_centred, context, primals, tangents):
    with platform.tracing_in(context):
        return _rule(epsilon, groups, is_centred, context.platform, primals, tangents)


def _rule(epsilon, groups, is_centred, on, primals, tangents):
    """The results and their tangents."""
    # With dy the cotangent, the reverse of this rule sums one product, a * dy times the
    # scale, over the units (times gain) and over the rows.
    a, gain = primals
    da, dgain = tangents
    units = _units_of(a, groups)
    if not is_centred:
        a = units.centred(a)
    scales = units.scales(a, epsilon, on)
    # The relative change of each group's scale. The mean of da adds nothing to these
    # sums, as the mean of a is zero. So the reverse takes this sum and that of the mean
    # from the same pass.
    means = units.means(a * da)
    changes = [-(s**2) * mean for s, mean in zip(scales, means, strict=True)]
    changes = jnp.concatenate(changes, -1)
    gains = jnp.stack(_units_of(gain, groups).parts(gain))
    if on == "cpu":
        # A matrix product, whose reverse costs no pass on XLA's CPU backend.
        change = jnp.matmul(changes, gains, precision="highest")
    else:
        # [..., groups, 1] times [1, ..., groups, N]; ranks are not promoted silently.
        of_rows = jnp.expand_dims(gains, tuple(range(changes.ndim - 1)))
        change = jnp.sum(changes[..., None] * of_rows, -2)
    scale = units.spread(scales)
    gain = row(gain, a)
    if not is_centred:
        da = units.centred(da)
    change = change + row(dgain, a)
    return a * scale * gain, da * (scale * gain) + a * (scale * change)


class _Units(NamedTuple):
    """The groups of the units of an array [..., N].

    Attributes:
      sizes: number of units in each group.
      in_first: [1, ..., N], which units are in the first of two groups. None: there is
        one group.
    """

    sizes: list[int]
    in_first: jax.Array | None

    def parts(self, a):
        """The array a for each group, with zeros in place of the other group."""
        if self.in_first is None:
            return [a]
        zero = jnp.zeros((), a.dtype)
        return [jnp.where(self.in_first, a, zero), jnp.where(self.in_first, zero, a)]

    def means(self, a):
        """The mean of each group, [..., 1]."""
        means = []
        for part, size in zip(self.parts(a), self.sizes, strict=True):
            means.append(jnp.sum(part, -1, keepdims=True) / size)
        return means

    def spread(self, values):
        """One array from a value for each group."""
        if self.in_first is None:
            return values[0]
        return jnp.where(self.in_first, *values)

    def centred(self, a):
        """The array a minus the mean of each group."""
        return a - self.spread(self.means(a))

    def scales(self, a, epsilon, on):
        """One over the deviation of each group of centred a, each [..., 1]."""
        square = jnp.square(a)
        if self.in_first is None:
            return [jax.lax.rsqrt(self.means(square)[0] + epsilon)]
        if on == "tpu":
            means = self.means(square)
        else:
            # All three gates in one pass. XLA's CPU backend would copy slices of them.
            # A TPU would pad them to a tile of four or eight.
            gates = square.reshape(*a.shape[:-1], 3, self.sizes[1])
            z, r, candidate = jnp.split(jnp.sum(gates, -1), 3, -1)
            means = [(z + r) / self.sizes[0], candidate / self.sizes[1]]
        # Both groups in one array. XLA's CPU backend would compile each group apart.
        is_first = _row_of_flags(jnp.arange(2) < 1, a)
        scales = jax.lax.rsqrt(jnp.where(is_first, *means) + epsilon)
        return [scales[..., :1], scales[..., 1:]]


def _units_of(a, groups):
    if len(groups) == 1:
        return _Units([a.shape[-1]], None)
    sizes = [a.shape[-1] // sum(groups) * size for size in groups]
    return _Units(sizes, _row_of_flags(jnp.arange(a.shape[-1]) < sizes[0], a))


def _row_of_flags(flags, a):
    """Flags [N] with as many axes as a."""
    return flags.reshape((1,) * (a.ndim - 1) + flags.shape)
