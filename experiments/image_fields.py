"""Fields that the experiments with images share, with the values for MNIST."""

from lnrepro.fields import COUNT, POSITIVE, Field

CLASSES = {
    "data.full_ink": Field(
        255.0,
        "value of a black pixel, which becomes 1",
        allowed=POSITIVE,
        from_data=True,
    ),
    "model.classes": Field(10, "number of classes", allowed=COUNT, from_data=True),
}
PIXELS = {
    "data.features": Field(784, "pixels of an image", allowed=COUNT, from_data=True)
}
EPSILONS = {
    "layer_norm.eps": Field(1e-5, "added to the variance", allowed=POSITIVE),
    "batch_norm.eps": Field(1e-5, "added to the variance", allowed=POSITIVE),
}
