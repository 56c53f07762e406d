"""The fields of the handwriting experiment, with the values of the paper."""

from lnrepro.fields import COUNT, NOT_NEGATIVE, NUMBER, Field


class Texts:
    """One or more texts."""

    def __str__(self) -> str:
        return "one or more texts that are not empty"

    def __contains__(self, value: object) -> bool:
        is_full = isinstance(value, tuple) and bool(value)
        return is_full and all(isinstance(text, str) and text for text in value)


FIELDS = {
    "norm": Field(
        "layer", "name of the normalisation", allowed=("none", "layer_cell", "layer")
    ),
    "model.units": Field(400, "units of each of the three LSTMs", allowed=COUNT),
    "model.gaussians": Field(20, "components of the mixture density", allowed=COUNT),
    "model.window_gaussians": Field(
        10, "Gaussians of the window over the text", allowed=COUNT
    ),
    "model.symbols": Field(
        57, "number of different characters", allowed=COUNT, from_data=True
    ),
    "model.steps": Field(
        500, "largest number of steps of a line; the rest is cut off", allowed=COUNT
    ),
    "model.characters": Field(
        64,
        "characters of a text, at least the longest one's",
        allowed=COUNT,
        from_data=True,
    ),
    # exp(-3) = 0.05 characters a step.
    "model.kappa_bias": Field(
        -3.0,
        "log of the window's first speed, in characters a step",
        allowed=NUMBER,
    ),
    "model.peephole": Field(False, "peephole connections in the LSTMs"),
    "eval_examples": Field(
        None,
        "lines of a split that are evaluated, spaced; None takes all",
        type=int,
        allowed=COUNT,
    ),
    "samples.texts": Field(
        ("layer normalization", "the quick brown fox"),
        "what is written at the end",
        allowed=Texts(),
    ),
    "samples.bias": Field(
        1.0,
        "larger is neater and less varied; 0 samples the density",
        allowed=NOT_NEGATIVE,
    ),
    "samples.steps": Field(
        900, "largest number of steps of a written line", allowed=COUNT
    ),
}
