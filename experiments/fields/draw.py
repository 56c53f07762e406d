"""The fields of the DRAW experiment, with the values of the paper."""

from lnrepro.fields import COUNT, NOT_NEGATIVE, NUMBER, SEED, Field

FIELDS = {
    "norm": Field(
        "layer_cell",
        "name of the normalisation",
        allowed=("none", "weight", "layer_cell", "layer"),
    ),
    "model.image_size": Field(
        28, "height and width of an image", allowed=COUNT, from_data=True
    ),
    "model.read_size": Field(
        2, "filters along each side of the window that is read", allowed=COUNT
    ),
    "model.write_size": Field(
        5, "filters along each side of the window that is written", allowed=COUNT
    ),
    "model.glimpses": Field(64, "number of time steps", allowed=COUNT),
    "model.units": Field(256, "units of each LSTM", allowed=COUNT),
    "model.latents": Field(
        100, "numbers in the latent vector of a glimpse", allowed=COUNT
    ),
    "model.init.read": Field(
        0.01, "std of the kernel of the read window at the start", allowed=NOT_NEGATIVE
    ),
    "model.init.latent": Field(
        0.01, "std of the kernel of the latents at the start", allowed=NOT_NEGATIVE
    ),
    "model.init.write": Field(
        0.01,
        "std of the kernels of the write window at the start",
        allowed=NOT_NEGATIVE,
    ),
    "model.init.gain": Field(
        1.0, "first value of the gains of layer norm", allowed=NUMBER
    ),
    "evaluation_seed": Field(0, "seed of the noise of evaluations", allowed=SEED),
    "importance_samples": Field(
        100, "draws for an image in the estimate of -log p(x)", allowed=COUNT
    ),
    "importance_examples": Field(
        None,
        "test images of that estimate, spaced; None takes all",
        type=int,
        allowed=COUNT,
    ),
}
