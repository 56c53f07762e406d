"""The paper's mathematics as functions of arrays: normalisers, recurrent cells, their unrolling over time. Imports jax
only."""

from lnrepro.functional.cells import Cell, Kernels, Tick, clip_gradient, gru, init, lstm, rnn
from lnrepro.functional.norms import (
    batch_norm,
    layer_norm,
    running_average,
    weight_norm,
    weight_norm_from_data,
    weight_norm_preserving,
)
from lnrepro.functional.unroll import advance, flip, initial_carry, step, track, unroll
from lnrepro.functional.wrappers import bidirectional, recurrent_dropout, stack, variational_dropout, zoneout

__all__ = [
    "Cell",
    "Kernels",
    "Tick",
    "advance",
    "batch_norm",
    "bidirectional",
    "clip_gradient",
    "flip",
    "gru",
    "init",
    "initial_carry",
    "layer_norm",
    "lstm",
    "recurrent_dropout",
    "rnn",
    "running_average",
    "stack",
    "step",
    "track",
    "unroll",
    "variational_dropout",
    "weight_norm",
    "weight_norm_from_data",
    "weight_norm_preserving",
    "zoneout",
]
