"""The fields of the MNIST experiment, with the values of the paper."""

from lnrepro.fields import BELOW_1, COUNT, POSITIVE, Field

FIELDS = {
    "norm": Field(
        "layer", "name of the normalisation", allowed=("none", "layer", "batch")
    ),
    "data.features": Field(784, "pixels of an image", allowed=COUNT, from_data=True),
    "data.full_ink": Field(
        255.0,
        "value of a black pixel, which becomes 1",
        allowed=POSITIVE,
        from_data=True,
    ),
    "model.hidden": Field((1000, 1000), "units of each hidden layer", allowed=COUNT),
    "model.classes": Field(10, "number of classes", allowed=COUNT, from_data=True),
    "layer_norm.eps": Field(1e-5, "added to the variance", allowed=POSITIVE),
    "batch_norm.eps": Field(1e-5, "added to the variance", allowed=POSITIVE),
    "batch_norm.momentum": Field(
        0.99, "weight of the old value in the running statistics", allowed=BELOW_1
    ),
    "batch_norm.unbiased": Field(False, "divide by N - 1 in the variance of a batch"),
}
