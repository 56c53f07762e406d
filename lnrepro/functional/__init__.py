"""The paper's mathematics as functions of arrays: normalisers, recurrent cells, their unrolling over time. Imports jax
only."""

from lnrepro.functional.cells import Cell, Kernels, Tick, gru, init, lstm, rnn
from lnrepro.functional.norms import (
    batch_norm,
    layer_norm,
    running_average,
    weight_norm,
    weight_norm_from_data,
    weight_norm_preserving,
)
from lnrepro.functional.unroll import advance, flip, initial_carry, step, unroll

__all__ = [
    "Cell",
    "Kernels",
    "Tick",
    "advance",
    "batch_norm",
    "flip",
    "gru",
    "init",
    "initial_carry",
    "layer_norm",
    "lstm",
    "rnn",
    "running_average",
    "step",
    "unroll",
    "weight_norm",
    "weight_norm_from_data",
    "weight_norm_preserving",
]
