"""The fields of the experiment of pixel sequences, with the values for MNIST."""

from experiments.image_fields import CLASSES, PIXELS
from lnrepro.fields import COUNT, NUMBER, Field

FIELDS = {
    **CLASSES,
    **PIXELS,
    "norm": Field(
        "layer", "name of the normalisation", allowed=("none", "layer", "rms")
    ),
    "model.embedding": Field(
        16, "numbers that a pixel becomes before the LSTM", allowed=COUNT
    ),
    "model.units": Field(64, "units of the LSTM", allowed=COUNT),
    "model.forget_bias": Field(
        1.0, "first value of the forget gate's bias", allowed=NUMBER
    ),
}
