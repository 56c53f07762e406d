"""The fields of the order-embeddings experiment, with the values of the paper."""

from lnrepro.fields import COUNT, NOT_NEGATIVE, Bounds, Field, Lengths

FIELDS = {
    "norm": Field("layer", "name of the normalisation", allowed=("none", "layer")),
    # <eos>, <unk> and a word.
    "data.vocabulary": Field(
        30_000,
        "words with a vector of their own",
        allowed=Bounds(3, COUNT.high, integer=True),
        from_data=True,
    ),
    "model.similarity": Field(
        "order", "order (Vendrov et al. 2016) or cosine", allowed=("order", "cosine")
    ),
    "model.features": Field(
        4096, "numbers that describe an image", allowed=COUNT, from_data=True
    ),
    "model.words": Field(300, "size of a word vector", allowed=COUNT),
    "model.units": Field(
        1024, "units of the GRU, and size of the embedding", allowed=COUNT
    ),
    "margin": Field(0.05, "margin of the ranking loss", allowed=NOT_NEGATIVE),
    # A caption has at least a word and the end token.
    "buckets": Field(
        (12, 16, 20, 30),
        "lengths that captions are padded to, the end token included",
        allowed=Lengths(2),
    ),
    "packed": Field(
        True, "drop captions that have ended at the steps of buckets (one device)"
    ),
    "evaluation.fold": Field(1000, "images in a fold", allowed=COUNT, from_data=True),
    "evaluation.folds": Field(
        5, "number of folds of the test set", allowed=COUNT, from_data=True
    ),
}
