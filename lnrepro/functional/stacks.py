"""Cells one above the other in one scan, as one cell.

Shape letters: D input features, H hidden units.
"""

import dataclasses

import jax
import jax.numpy as jnp

from lnrepro.functional.arguments import choice
from lnrepro.functional.arrays import zeros_for
from lnrepro.functional.cells.base import Cell, Prepared


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
    return Stack(cells, skip)
