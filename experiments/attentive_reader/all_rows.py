"""Batch norm over all rows of a batch, also those whose text has ended.

The code state 94f7398 normalises so, see `config.model.batch_norm_rows`.

Shape letters: T steps, B batch, H units.
"""

import dataclasses

import jax
import jax.numpy as jnp

from lnrepro.functional import BatchStatistics, LSTMCell, ScanOptions, Unrolled, unroll


@dataclasses.dataclass(frozen=True)
class AllRowsLSTM(LSTMCell):
    """An LSTM with batch norm, whose statistics count all rows.

    The carry of a row whose text has ended stays as it is, and counts in the
    statistics. The cell is masked before it is normalised, as in the authors' code.
    `StepContext.memory` has the lengths [B].
    """

    def step(self, dot, params, carry, x_proj, context):
        """Take one step: eq. 20 to 22."""
        c, h = carry
        is_word = (context.index < context.memory)[:, None]
        # `unroll` is given no lengths, so that the normaliser leaves no row out.
        normalise = self.normaliser(params, context)
        products = normalise("x", x_proj) + normalise("h", dot("w_h", h))
        f, i, o, g = jnp.split(products + params["bias"], 4, -1)
        new_c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        new_c = jnp.where(is_word, new_c, c)
        new_h = jax.nn.sigmoid(o) * jnp.tanh(normalise("c", new_c))
        new_h = jnp.where(is_word, new_h, h)
        return (new_c, new_h), normalise.statistics


def unroll_all_rows(
    cell: AllRowsLSTM,
    params: dict,
    x: jax.Array,
    lengths: jax.Array,
    *,
    initial_carry: tuple[jax.Array, jax.Array],
    statistics: dict | None,
    options: ScanOptions,
) -> Unrolled:
    """Run the cell over texts of different lengths.

    Args:
      cell: the cell.
      params: its parameters.
      x: [T, B, D]; the inputs behind the end of a text count in the statistics.
      lengths: [B].
      initial_carry: (c, h), each [B, H].
      statistics: as for `lnrepro.functional.unroll`.
      options: as for `lnrepro.functional.unroll`.

    Returns:
      As `lnrepro.functional.unroll`. Behind the end of a text, the outputs are its last
      output.
    """
    result = unroll(
        cell,
        params,
        x,
        initial_carry=initial_carry,
        time_major=True,
        # What the steps read is differentiated, so it is a floating-point number.
        memory=lengths.astype(x.dtype),
        statistics=statistics,
        options=options,
    )
    if result.statistics is None:
        return result
    # Steps at which all texts have ended say nothing about the data.
    seen = jnp.arange(len(x)) < lengths.max()
    return result._replace(statistics=BatchStatistics(result.statistics.values, seen))
