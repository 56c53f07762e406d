"""The fields of the experiment of pixel sequences, with the values for MNIST."""

from lnrepro.fields import COUNT, NUMBER, POSITIVE, Field

FIELDS = {
    "norm": Field(
        "layer", "name of the normalisation", allowed=("none", "layer", "rms")
    ),
    "data.features": Field(
        784, "pixels of an image, the steps of the LSTM", allowed=COUNT, from_data=True
    ),
    "data.full_ink": Field(
        255.0,
        "value of a black pixel, which becomes 1",
        allowed=POSITIVE,
        from_data=True,
    ),
    "model.embedding": Field(
        16, "numbers that a pixel becomes before the LSTM", allowed=COUNT
    ),
    "model.units": Field(64, "units of the LSTM", allowed=COUNT),
    "model.classes": Field(10, "number of classes", allowed=COUNT, from_data=True),
    "model.forget_bias": Field(
        1.0, "first value of the forget gate's bias", allowed=NUMBER
    ),
}
