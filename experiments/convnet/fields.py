"""The fields of the ConvNet experiment, with the values for MNIST."""

from lnrepro.fields import BELOW_1, COUNT, POSITIVE, Field

FIELDS = {
    "norm": Field(
        "layer", "name of the normalisation", allowed=("none", "batch", "layer")
    ),
    "data.image": Field(
        (28, 28), "height and width of an image", allowed=COUNT, from_data=True
    ),
    "data.full_ink": Field(
        255.0,
        "value of a black pixel, which becomes 1",
        allowed=POSITIVE,
        from_data=True,
    ),
    "model.channels": Field(
        (16, 32, 64), "channels of each convolution", allowed=COUNT
    ),
    "model.strides": Field((1, 2, 2), "stride of each convolution", allowed=COUNT),
    "model.classes": Field(10, "number of classes", allowed=COUNT, from_data=True),
    "layer_norm.eps": Field(1e-5, "added to the variance", allowed=POSITIVE),
    "layer_norm.statistics": Field(
        "layer",
        "layer: over all units; position: over its channels",
        allowed=("layer", "position"),
    ),
    "batch_norm.eps": Field(1e-5, "added to the variance", allowed=POSITIVE),
    "batch_norm.momentum": Field(
        0.9, "weight of the old value in the running statistics", allowed=BELOW_1
    ),
}
