"""The paper's mathematics as functions of arrays, importing jax only.

Norms, recurrent cells, and cells over time:

    cell = LSTMCell(256, norm="layer")
    params = cell.init(jax.random.key(0), features_in=64)
    carry, outputs, *_ = unroll(cell, params, x, seq_lengths=lengths)   # x [B, T, 64]
    carry, y = step(cell, params, carry, x_t)                           # one step
"""

from lnrepro.functional.cells.base import Cell, Prepared, StepContext, clip_gradient
from lnrepro.functional.cells.dreamer import DreamerBlockGRUCell, DreamerGRUCell
from lnrepro.functional.cells.gru import GRUCell
from lnrepro.functional.cells.lstm import LSTMCell
from lnrepro.functional.cells.simple import SimpleCell
from lnrepro.functional.cells.sites import Norm
from lnrepro.functional.fast.measure import autotune
from lnrepro.functional.fast.tuning import measured_kernels
from lnrepro.functional.kernel_or_scan import runs_as
from lnrepro.functional.norms import (
    batch_norm,
    layer_norm,
    rms_norm,
    running_average,
    weight_norm,
    weight_norm_preserving,
)
from lnrepro.functional.products import named_dot
from lnrepro.functional.scan import ScanResult, scan
from lnrepro.functional.scan_options import ScanOptions
from lnrepro.functional.sequences import flip
from lnrepro.functional.stacks import Stack, stack
from lnrepro.functional.unroll import (
    BatchStatistics,
    Unrolled,
    bidirectional,
    step,
    track,
    unroll,
)
from lnrepro.functional.wrappers import variational_dropout, zoneout

__all__ = [
    "BatchStatistics",
    "Cell",
    "DreamerBlockGRUCell",
    "DreamerGRUCell",
    "GRUCell",
    "LSTMCell",
    "Norm",
    "Prepared",
    "ScanOptions",
    "ScanResult",
    "SimpleCell",
    "Stack",
    "StepContext",
    "Unrolled",
    "autotune",
    "batch_norm",
    "bidirectional",
    "clip_gradient",
    "flip",
    "layer_norm",
    "measured_kernels",
    "named_dot",
    "rms_norm",
    "running_average",
    "runs_as",
    "scan",
    "stack",
    "step",
    "track",
    "unroll",
    "variational_dropout",
    "weight_norm",
    "weight_norm_preserving",
    "zoneout",
]
