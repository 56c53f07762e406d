"""The fields of the MNIST experiment, with the values of the paper."""

from experiments.image_fields import CLASSES, EPSILONS, PIXELS
from lnrepro.fields import BELOW_1, COUNT, Field

FIELDS = {
    **CLASSES,
    **PIXELS,
    **EPSILONS,
    "norm": Field(
        "layer", "name of the normalisation", allowed=("none", "layer", "batch")
    ),
    "model.hidden": Field((1000, 1000), "units of each hidden layer", allowed=COUNT),
    "batch_norm.momentum": Field(
        0.99, "weight of the old value in the running statistics", allowed=BELOW_1
    ),
    "batch_norm.unbiased": Field(False, "divide by N - 1 in the variance of a batch"),
}
