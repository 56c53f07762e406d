"""Functions from cell to cell: zoneout and variational dropout.

Noise needs a key (`unroll(..., key=key)`). Without one the cell is at test time:
zoneout takes the expectation, dropout does nothing. A wrapper of a stack wraps each of
its cells.
"""

import dataclasses

import jax
import jax.core
import jax.numpy as jnp

from lnrepro.functional.arrays import at_least_f32, wide_dtype
from lnrepro.functional.cells.base import Cell, Prepared


@dataclasses.dataclass(frozen=True)
class WrappedCell(Cell):
    """A cell that is another cell but for its step, which subclasses define."""

    cell: Cell

    @property
    def features(self):
        """The size of the output."""
        return self.cell.features

    @property
    def recurrent_weights(self):
        """Names of the weights of the wrapped cell that may multiply h_{t-1}."""
        return self.cell.recurrent_weights

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters of the wrapped cell."""
        return self.cell.init(key, features_in, dtype)

    def initial_carry(self, params, x):
        """Return the carry of the wrapped cell before the first step."""
        return self.cell.initial_carry(params, x)

    def prepare(self, params):
        """Prepare the parameters of the wrapped cell."""
        return self.cell.prepare(params)

    def output(self, carry):
        """Return the output of the wrapped cell."""
        return self.cell.output(carry)

    def sample(self, key, x):
        """Draw the noise of the wrapped cell."""
        return self.cell.sample(key, x)

    @property
    def sites(self):
        """The sites of batch norm of the wrapped cell."""
        return self.cell.sites

    @property
    def learns_carry(self):
        """Whether the wrapped cell has its first carry among the parameters."""
        return self.cell.learns_carry


@dataclasses.dataclass(frozen=True)
class Zoneout(WrappedCell):
    """Zoneout of a cell; made by `zoneout`."""

    rate_c: float
    rate_h: float

    @property
    def is_noisy(self):
        """Whether training draws random numbers."""
        return self.cell.is_noisy or not _is_zero(self.rate_c, self.rate_h)

    def step(self, dot, params, carry, x, context):
        """Take one step, and keep some units of the carry before it."""
        own_key = inner_key = None
        if context.key is not None:
            # Keys are a tree: what is wrapped gets a branch of its own.
            own_key, inner_key = (jax.random.fold_in(context.key, i) for i in (1, 2))
        inner = context._replace(key=inner_key)
        new, statistics = self.cell.step(dot, params, carry, x, inner)
        old_leaves, structure = jax.tree.flatten(carry)
        new_leaves = jax.tree.leaves(new)
        # The last leaf is h. Those before it, such as the LSTM's c, are memory cells.
        if self.cell.output(new) is not new_leaves[-1]:
            raise ValueError(
                f"zoneout: the output of {type(self.cell).__name__} must be h, the "
                "last array of its carry, as it is"
            )
        rates = [self.rate_c] * (len(old_leaves) - 1) + [self.rate_h]
        mixed = []
        for index, (old, fresh, rate) in enumerate(
            zip(old_leaves, new_leaves, rates, strict=True)
        ):
            # Every leaf gets its own draw.
            key = None if own_key is None else jax.random.fold_in(own_key, index)
            mixed.append(_zone_out(key, rate, old, fresh.astype(old.dtype)))
        return jax.tree.unflatten(structure, mixed), statistics


def _zone_out(key, rate, old, new):
    """Keep each unit with probability `rate`; without a key, the expectation."""
    if _is_zero(rate):
        return new
    # At test time: E[mask * old + (1 - mask) * new].
    if key is None:
        return rate * old + (1 - rate) * new
    # An array of rates, so that the draws are sharded as the carry is.
    keep = jax.random.bernoulli(key, jnp.full_like(new, rate, jnp.float32))
    return jnp.where(keep, old, new)


def zoneout(cell: Cell, rate_c: float = 0.0, rate_h: float = 0.0) -> Cell:
    """Keep each unit of c and h with some probability (Krueger et al. 2016).

    Args:
      cell: any cell; a stack wraps each of its cells.
      rate_c: probability that a unit of c keeps its previous value, in [0, 1).
      rate_h: the same for h. A cell whose carry is h alone uses only this one.

    Returns:
      The cell with zoneout. At test time it takes the expectation.

    Raises:
      ValueError: by a step, where the output of the cell is not the last array of its
        carry.
    """
    return cell.map_cells(lambda one: Zoneout(one, rate_c, rate_h))


@dataclasses.dataclass(frozen=True)
class VariationalDropout(WrappedCell):
    """Variational dropout of a cell; made by `variational_dropout`."""

    rate_x: float
    rate_h: float

    @property
    def is_noisy(self):
        """Whether training draws random numbers."""
        return self.cell.is_noisy or not _is_zero(self.rate_x, self.rate_h)

    def prepare(self, params):
        """Prepare the parameters of the wrapped cell.

        Raises:
          ValueError: units of h are to be dropped, but no weight is known to read h.
        """
        weights, rest = self.cell.prepare(params)
        reads_h = set(self.recurrent_weights) & set(weights)
        if not reads_h and not _is_zero(self.rate_h):
            raise ValueError(
                f"variational_dropout: rate_h={self.rate_h}, but "
                f"{type(self.cell).__name__} has no weight of the names "
                f"{', '.join(self.recurrent_weights)}; set its recurrent_weights to "
                "the names of the weights that multiply h"
            )
        return Prepared(weights, rest)

    def sample(self, key, x):
        """Draw the masks of a sequence: {"x": [..., D], "h": [..., H], "inner"}."""
        # One mask per sequence, without a time axis, so that every step drops the same
        # units.
        inner_key, x_key, h_key = jax.random.split(key, 3)
        h_shape = (*x.shape[:-1], self.cell.features)
        return {
            "inner": self.cell.sample(inner_key, x),
            "x": _dropout_mask(x_key, self.rate_x, x.shape, wide_dtype(x.dtype)),
            "h": _dropout_mask(h_key, self.rate_h, h_shape, wide_dtype(x.dtype)),
        }

    def step(self, dot, params, carry, x, context):
        """Take one step that reads x and h without the dropped units."""
        noise = context.noise
        if noise is None:
            return self.cell.step(dot, params, carry, x, context)

        # The mask is part of the product's input, not of the carry, so that the GRU's
        # mix of old and new h reads h whole.
        def dot_of_masked(name, v):
            if name in self.recurrent_weights:
                v = v * noise["h"].astype(v.dtype)
            return dot(name, v)

        # Rounded once, after the product with the mask.
        x = (at_least_f32(x) * noise["x"].astype(wide_dtype(x.dtype))).astype(x.dtype)
        context = context._replace(noise=noise["inner"])
        return self.cell.step(dot_of_masked, params, carry, x, context)


def variational_dropout(cell: Cell, rate_x: float = 0.0, rate_h: float = 0.0) -> Cell:
    """Drop units by one mask for a whole sequence (Gal and Ghahramani 2016).

    Args:
      cell: a cell whose `recurrent_weights` name the weights that multiply h; a stack
        wraps each of its cells.
      rate_x: probability of dropping a unit of x_t, in [0, 1).
      rate_h: probability of dropping a unit of h_{t-1} in the recurrent products.

    Returns:
      The cell with dropout; what is kept is divided by 1 - rate. In a loop of your own
      draw the masks once with `cell.sample(key, x_t)` and pass them to `step(noise=)`.
    """
    return cell.map_cells(lambda one: VariationalDropout(one, rate_x, rate_h))


def _is_zero(*rates):
    """Whether rates are known to be zero; one that is traced is not."""
    return all(not isinstance(rate, jax.core.Tracer) and not rate for rate in rates)


def _dropout_mask(key, rate, shape, dtype):
    keep = jax.random.bernoulli(key, 1 - rate, shape)
    # Inverted dropout: dividing in training leaves nothing to scale at test time.
    return keep.astype(dtype) / jnp.asarray(1 - rate, dtype)
