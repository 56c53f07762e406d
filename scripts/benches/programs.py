"""Whole programs with Flax's cells and ours: a step of PPO, a step of a seq2seq.

The programs are docs/examples/recurrent_ppo.py and docs/examples/seq2seq.py, and differ
in the recurrent layer alone. Speed, temporary memory and compile time are measured.
"""

import argparse
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from docs.examples import recurrent_ppo as ppo
from docs.examples import seq2seq
from lnrepro import linen
from scripts import markdown as md
from scripts.benches import cells, records
from scripts.benches.cells import Row
from scripts.benches.direct import cells_jax
from scripts.benches.direct.cells_jax import Implementation, Shape


class Program(NamedTuple):
    """A program whose recurrent layer can be swapped.

    Attributes:
      meaning: what a step of it is.
      cell: a key of `cells.CELLS`, which has ours and Flax's.
      flax_layer: (cell of Flax) -> the module that runs it over a sequence.
      settings: the sizes.
      make: (settings, maker of a layer) -> (step, state). The step is a function of the
        state and a random key.
    """

    meaning: str
    cell: str
    flax_layer: Callable[[nn.RNNCellBase], nn.Module]
    settings: Any
    make: Callable[[Any, Callable[[], nn.Module]], tuple[Callable[..., Any], Any]]


class ResettingRNN(nn.Module):
    """Flax's RNN of a cell whose carry is zero before each step that has a reset."""

    cell: nn.RNNCellBase

    @nn.compact
    def __call__(self, x, initial_carry, resets, return_carry):
        """Run over x [B, T, D]; resets [B, T]."""
        x = jnp.concatenate([x, resets[..., None].astype(x.dtype)], -1)
        rnn = nn.RNN(cells_jax.Resetting(self.cell))
        return rnn(x, initial_carry=initial_carry, return_carry=return_carry)


def _ppo(settings, layer):
    policy, key = ppo.Policy(settings.features, layer()), jax.random.key(0)
    start = jax.jit(ppo.start, static_argnums=(0, 1))
    state = start(policy, settings, key, key)
    return functools.partial(ppo.update, policy, settings), state


def _seq2seq(settings, layer):
    model = seq2seq.Seq2seq(layer(), layer())
    start = jax.jit(seq2seq.start, static_argnums=(0, 1))
    state = start(model, settings, jax.random.key(0))
    return functools.partial(seq2seq.update, model, settings), state


_PPO, _SEQ2SEQ = ppo.Settings(), seq2seq.Settings()
PROGRAMS = {
    "ppo": Program(
        f"{_PPO.steps} actions in {_PPO.environments} environments, and "
        f"{_PPO.epochs * _PPO.minibatches} steps of the optimiser",
        "gru",
        ResettingRNN,
        _PPO,
        _ppo,
    ),
    "seq2seq": Program(
        f"a step of the optimiser on {_SEQ2SEQ.batch} sums",
        "lstm",
        nn.RNN,
        _SEQ2SEQ,
        _seq2seq,
    ),
}
# Number of compilations of each program. Their median is reported.
COMPILATIONS = 3
COLUMNS = ("steps/s", "x Flax plain", "x Flax LN", "temp MB", "compile s")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `programs`."""
    parser.add_argument(
        "--programs", nargs="+", choices=tuple(PROGRAMS), default=list(PROGRAMS)
    )
    cells.add_timing_arguments(parser)
    records.add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """Print a Markdown table of medians.

    Returns:
      0.
    """
    commit = records.commit()
    print(f"{records.device()}, jax {jax.__version__}, commit {commit}; medians of at")
    print(f"least {args.rounds} interleaved rounds and {args.seconds:g} s a program\n")
    print(md.head(("program", "layer", *COLUMNS)), flush=True)
    table, ratios = {}, {}
    for name in args.programs:
        functions = implementations(name)
        table[name] = rows = cells.measure(functions, args, 1, COMPILATIONS)
        _print_rows(name, rows)
        ratios |= _ratios(name, rows)
    records.write(args.json, "programs", ratios, table)
    return 0


def implementations(name: str) -> dict[str, Implementation]:
    """Return a step of a program with each layer.

    Args:
      name: a key of `PROGRAMS`.
    """
    program = PROGRAMS[name]
    units = program.settings.features
    compared = cells.CELLS[program.cell]
    # Our cells take the sizes of a shape, and use the units alone.
    shape = Shape(steps=1, batch=1, features=units, units=units)
    layers = {
        "ours LN": lambda: linen.RNN(compared.ours(shape)),
        "ours plain": lambda: linen.RNN(compared.plain(shape)),
        "Flax LN": lambda: program.flax_layer(compared.flax(units)),
        "Flax plain": lambda: program.flax_layer(compared.flax_plain(units)),
    }
    functions = {}
    for label, layer in layers.items():
        step, state = program.make(program.settings, layer)
        arguments = (state, jax.random.key(1))
        functions[label] = cells_jax.implement_function(step, arguments)
    return functions


def _ratios(program: str, rows: Mapping[str, Row]) -> dict[str, float]:
    """Return the ratios of ours to Flax's: time and temporary memory."""
    found = {}
    for ours, theirs in (
        ("ours LN", "Flax LN"),
        ("ours LN", "Flax plain"),
        ("ours plain", "Flax plain"),
    ):
        for what, key in (("time", "ms"), ("temporary memory", "temp_mb")):
            a, b = rows[ours][key], rows[theirs][key]
            # Some backends do not report their memory.
            if a and b:
                found[f"{what}, {program}, {ours} / {theirs}"] = a / b
    return found


def _print_rows(program: str, rows: Mapping[str, Row]) -> None:
    """Print a table's rows. "x" is the time, over that of the other layer."""
    for label, row in rows.items():
        columns = (
            f"{1e3 / row['ms']:.3g}",
            f"{row['ms'] / rows['Flax plain']['ms']:.2f}",
            f"{row['ms'] / rows['Flax LN']['ms']:.2f}",
            "" if row["temp_mb"] is None else f"{row['temp_mb']:.1f}",
            f"{row['compile_s']:.2f}",
        )
        print(md.row((program, label, *columns)), flush=True)
