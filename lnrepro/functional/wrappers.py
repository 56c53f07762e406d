"""Functions from cell to cell: zoneout, variational dropout, and stacks of cells.

Noise needs a key (`unroll(..., key=key)`). Without one the cell is at test time:
zoneout takes the expectation, dropout does nothing. A wrapper of a stack wraps each of
its cells.
"""

import dataclasses

import jax
import jax.core
import jax.numpy as jnp

from lnrepro.functional.arguments import choice
from lnrepro.functional.arrays import at_least_f32, wide_dtype, zeros_for
from lnrepro.functional.cells.base import Cell, Prepared


@dataclasses.dataclass(frozen=True)
class WrappedCell(Cell):
    """A cell that does what another cell does; subclasses change some of it."""

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

    def step(self, dot, params, carry, x, context):
        """Take one step of the wrapped cell."""
        return self.cell.step(dot, params, carry, x, context)

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
    def is_noisy(self):
        """Whether training of the wrapped cell draws random numbers."""
        return self.cell.is_noisy

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


@dataclasses.dataclass(frozen=True)
class Stack(Cell):
    """Cells one above the other in one scan; made by `stack`.

    Its params and carry are tuples with one entry per cell.

    Attributes:
      cells: the cells from the bottom to the top.
      skip: "none"; "graves": every cell also sees x, and the output holds the outputs
        of all cells (Graves 2013); "residual": the input of a cell is added to its
        output where the sizes agree.
    """

    cells: tuple[Cell, ...]
    skip: str = "none"

    def __post_init__(self):
        """Check the fields."""
        for cell in self.cells:
            if not isinstance(cell, Cell):
                raise TypeError(
                    f"stack: {cell!r} is no cell; give cells one by one, as in "
                    "stack(LSTMCell(4), LSTMCell(4))"
                )
        choice("stack", "skip", self.skip, ("none", "graves", "residual"))

    @property
    def features(self):
        """The size of the output."""
        # The output is that of all cells side by side, [..., sum of H].
        if self.skip == "graves":
            return sum(cell.features for cell in self.cells)
        return self.cells[-1].features

    def input_sizes(self, features_in: int) -> list[int]:
        """The number of input features of every cell."""
        # A cell sees the output of the cell below and, with skip="graves", x beside it.
        sizes = [cell.features for cell in self.cells[:-1]]
        if self.skip == "graves":
            sizes = [size + features_in for size in sizes]
        return [features_in, *sizes]

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters, a tuple with one entry per cell."""
        keys = jax.random.split(key, len(self.cells))
        sizes = self.input_sizes(features_in)
        return tuple(
            cell.init(cell_key, size, dtype)
            for cell, cell_key, size in zip(self.cells, keys, sizes, strict=True)
        )

    def initial_carry(self, params, x):
        """Return a tuple of the cells' carries, and with skip="residual" an output."""
        carries = [
            cell.initial_carry(cell_params, like)
            for cell, cell_params, like in zip(
                self.cells, params, self._inputs_like(x), strict=True
            )
        ]
        # The residual output is no cell's h, so it is carried to be read.
        if self.skip == "residual":
            carries.append(zeros_for(x, self.features))
        return tuple(carries)

    def prepare(self, params):
        """Prepare all cells; their weights are named such as "1/w_h".

        Raises:
          ValueError: params have not one entry per cell.
        """
        # zip would drop the parameters of a layer too many.
        if not isinstance(params, tuple | list) or len(params) != len(self.cells):
            kind = type(params).__name__
            raise ValueError(
                f"stack: params must be a tuple with one entry for each of the "
                f"{len(self.cells)} cells; it is a {kind} of length {len(params)}"
            )
        weights, rest = {}, []
        for index, cell in enumerate(self.cells):
            prepared = cell.prepare(params[index])
            for name, weight in prepared.weights.items():
                weights[f"{index}/{name}"] = weight
            rest.append(prepared.params)
        return Prepared(weights, tuple(rest))

    def sample(self, key, x):
        """Draw the noise of all cells."""
        keys = jax.random.split(key, len(self.cells))
        return tuple(
            cell.sample(cell_key, like)
            for cell, cell_key, like in zip(
                self.cells, keys, self._inputs_like(x), strict=True
            )
        )

    def _inputs_like(self, x):
        """x for the first cell, and arrays like what the other cells get."""
        sizes = self.input_sizes(x.shape[-1])[1:]
        column, batch = x[..., :1], x.shape[:-1]
        return [x, *(jnp.broadcast_to(column, (*batch, size)) for size in sizes)]

    def step(self, dot, params, carry, x, context):
        """Take one step of all cells."""
        keys = [None] * len(self.cells)
        if context.key is not None:
            keys = jax.random.split(context.key, len(self.cells))
        carries, statistics = [], {}
        below = x
        for index, cell in enumerate(self.cells):
            cell_dot = _dot_of_cell(dot, index)
            cell_context = _context_of_cell(context, index, keys[index])
            new, cell_statistics = cell.step(
                cell_dot, params[index], carry[index], below, cell_context
            )
            carries.append(new)
            if cell_statistics:
                statistics[str(index)] = cell_statistics
            below = self._input_of_next(x, below, cell.output(new))
        # After the loop, `below` is the residual output of the top cell.
        if self.skip == "residual":
            carries.append(below)
        return tuple(carries), statistics

    def _input_of_next(self, x, below, output):
        # The cell above reads [x, output], [..., D + H].
        if self.skip == "graves":
            return jnp.concatenate([x.astype(output.dtype), output], -1)
        if self.skip == "residual" and below.shape == output.shape:
            return below.astype(output.dtype) + output
        return output

    def output(self, carry):
        """Return the output of the top cell, or of all cells with skip="graves"."""
        # `step` put the residual output [..., H] behind the carries of the cells.
        if self.skip == "residual":
            return carry[-1]
        outputs = [
            cell.output(of_cell)
            for cell, of_cell in zip(self.cells, carry, strict=True)
        ]
        if self.skip == "graves":
            return jnp.concatenate(outputs, -1)
        return outputs[-1]

    @property
    def sites(self):
        """The sites of each cell with batch norm, by its number: {"1": {"x": 4}}."""
        cells = enumerate(self.cells)
        return {str(index): cell.sites for index, cell in cells if cell.sites}

    @property
    def is_noisy(self):
        """Whether any cell draws random numbers in training."""
        return any(cell.is_noisy for cell in self.cells)

    @property
    def learns_carry(self):
        """Whether any cell has its first carry among the parameters."""
        return any(cell.learns_carry for cell in self.cells)

    def map_cells(self, wrap):
        """Wrap each of the cells."""
        return Stack(tuple(cell.map_cells(wrap) for cell in self.cells), self.skip)


def _dot_of_cell(dot, index):
    """The `dot` of one cell of a stack, whose weights have the cell's number."""

    def dot_of_cell(name, v):
        return dot(f"{index}/{name}", v)

    return dot_of_cell


def _context_of_cell(context, index, key):
    """The context of one cell of a stack."""
    statistics = (context.statistics or {}).get(str(index))
    noise = None if context.noise is None else context.noise[index]
    return context._replace(key=key, noise=noise, statistics=statistics)


def stack(*cells: Cell, skip: str = "none") -> Stack:
    """Make one cell of several.

    Args:
      cells: from the bottom to the top, one at least.
      skip: "none"; "graves": every cell also sees x, and the output holds the outputs
        of all cells, [..., sum of H] (Graves 2013); "residual": the input of a cell is
        added to its output where the sizes agree.

    Returns:
      A cell whose params and carry are tuples. All cells run in one scan. On an
      accelerator, unrolling long sequences cell by cell can be faster, since the
      products W_x x of the upper cells then become large.

    Raises:
      ValueError: an unknown skip.
      TypeError: something that is no cell.
    """
    return Stack(tuple(cells), skip)
