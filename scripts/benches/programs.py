"""Whole programs with Flax's cells and ours: a step of PPO, a step of a seq2seq.

The programs are docs/examples/recurrent_ppo.py and docs/examples/seq2seq.py, and differ
in the recurrent layer alone. Time, temporary memory and compile time are measured.
"""

import argparse
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from docs.examples import recurrent_ppo as ppo
from docs.examples import seq2seq
from lnrepro import linen
from scripts.benches import cells, records
from scripts.benches.layers import Measured


class Program(NamedTuple):
    """A program whose recurrent layer can be swapped.

    Attributes:
      cell: a key of `cells.CELLS`, which has ours and Flax's.
      flax_layer: (cell of Flax) -> the module that runs it over a sequence.
      settings: the sizes.
      make: (settings, such a layer, maker of a cell) -> (step, state). The step is a
        function of the state and a random key.
    """

    cell: str
    flax_layer: Callable[[nn.RNNCellBase], nn.Module]
    settings: Any
    make: Callable[..., tuple[Callable[..., Any], Any]]


class ResettingRNN(nn.Module):
    """A layer whose carry is zero before each step that has a reset.

    Users of Flax in reinforcement learning write it like this.
    """

    cell: nn.RNNCellBase

    @nn.compact
    def __call__(self, x, initial_carry, resets, return_carry):
        """Run over x [B, T, D]; resets [B, T]."""

        def step(cell, carry, x_and_reset):
            x, reset = x_and_reset
            carry = jax.tree.map(lambda a: jnp.where(reset[:, None], 0, a), carry)
            return cell(carry, x)

        once = {"variable_broadcast": "params", "split_rngs": {"params": False}}
        scan = nn.scan(step, in_axes=1, out_axes=1, **once)
        return scan(self.cell, initial_carry, (x, resets))


def _ppo(settings, layer, cell):
    recurrent = layer(cell(settings.features))
    policy, key = ppo.Policy(settings.features, recurrent), jax.random.key(0)
    start = jax.jit(ppo.start, static_argnums=(0, 1))
    state = start(policy, settings, key, key)
    return functools.partial(ppo.update, policy, settings), state


def _seq2seq(settings, layer, cell):
    # Each has parameters of its own.
    encoder, decoder = layer(cell(settings.features)), layer(cell(settings.features))
    model = seq2seq.Seq2seq(encoder, decoder)
    start = jax.jit(seq2seq.start, static_argnums=(0, 1))
    state = start(model, settings, jax.random.key(0))
    return functools.partial(seq2seq.update, model, settings), state


PROGRAMS = {
    "ppo": Program("gru", ResettingRNN, ppo.Settings(), _ppo),
    "seq2seq": Program("lstm", nn.RNN, seq2seq.Settings(), _seq2seq),
}
# The flags of `programs`.
add_arguments = cells.add_timing_arguments


def main(args: argparse.Namespace) -> None:
    """Print a Markdown table of medians."""

    def rows_of(name):
        return cells.measure(implementations(name), args)

    table, ratios = cells.tabulate("a step of each program", PROGRAMS, rows_of), {}
    for name, rows in table.items():
        for what, ratio in cells.compare(rows).items():
            ratios[f"{name}, {what}"] = ratio
    records.write(args.json, "programs", ratios, table)


def implementations(name: str) -> dict[str, Measured]:
    """Return a step of a program with each layer.

    Args:
      name: a key of `PROGRAMS`.
    """
    program, functions = PROGRAMS[name], {}
    for label, cell in cells.CELLS[program.cell].items():
        layer = linen.RNN if label.startswith("ours") else program.flax_layer
        step, state = program.make(program.settings, layer, cell)
        functions[label] = Measured(step, (state, jax.random.key(1)))
    return functions
