"""The fields of the ConvNet experiment, with the values for MNIST."""

from experiments.image_fields import CLASSES, EPSILONS
from lnrepro.fields import BELOW_1, COUNT, Field

FIELDS = {
    **CLASSES,
    **EPSILONS,
    "norm": Field(
        "layer", "name of the normalisation", allowed=("none", "batch", "layer")
    ),
    "data.image": Field(
        (28, 28), "height and width of an image", allowed=COUNT, from_data=True
    ),
    "model.channels": Field(
        (16, 32, 64), "channels of each convolution", allowed=COUNT
    ),
    "model.strides": Field((1, 2, 2), "stride of each convolution", allowed=COUNT),
    "layer_norm.statistics": Field(
        "layer",
        "layer: over all units; position: over its channels",
        allowed=("layer", "position"),
    ),
    "batch_norm.momentum": Field(
        0.9, "weight of the old value in the running statistics", allowed=BELOW_1
    ),
}
