"""The paper's mathematics as functions of arrays: normalisers, recurrent cells, and their unrolling over time. Imports
jax only."""

from lnrepro.functional.norms import (
    batch_norm,
    layer_norm,
    running_average,
    weight_norm,
    weight_norm_from_data,
    weight_norm_preserving,
)

__all__ = [
    "batch_norm",
    "layer_norm",
    "running_average",
    "weight_norm",
    "weight_norm_from_data",
    "weight_norm_preserving",
]
