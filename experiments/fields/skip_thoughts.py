"""The fields of the skip-thoughts experiment, with the values of the paper."""

from lnrepro.fields import COUNT, SEED, Bounds, Field, Lengths

FIELDS = {
    "norm": Field("layer", "name of the normalisation", allowed=("none", "layer")),
    "data.buckets": Field(
        (5, 10, 15, 20, 25, 30),
        "lengths that the encoder is compiled for",
        allowed=Lengths(),
        from_data=True,
    ),
    "model.units": Field(
        2400, "units of the GRUs, and size of a sentence vector", allowed=COUNT
    ),
    "model.word_size": Field(620, "size of a word vector", allowed=COUNT),
    # Two special tokens and a word.
    "model.vocabulary": Field(
        20_000,
        "words with a vector of their own",
        allowed=Bounds(3, COUNT.high, integer=True),
        from_data=True,
    ),
    "model.chunk_rows": Field(
        512, "positions whose logits exist at once", allowed=COUNT
    ),
    # How sentences are encoded for the tasks.
    "encoding.batch_size": Field(128, "sentences encoded together", allowed=COUNT),
    "encoding.lowercase": Field(False, "whether sentences of the tasks are lowercased"),
    "encoding.word2vec": Field(
        None, "file whose words are mapped into the table, or None", type=str
    ),
    "transfer.folds": Field(
        10,
        "folds of the cross-validation",
        allowed=Bounds(2, COUNT.high, integer=True),
    ),
    "transfer.seed": Field(1234, "seed of the tasks' splits and batches", allowed=SEED),
    "transfer.sick_epochs": Field(
        100, "epochs between two tests on the trial pairs of SICK", allowed=COUNT
    ),
    "transfer.sick_batch": Field(128, "pairs in a batch", allowed=COUNT),
    "transfer.sick_blocks": Field(50, "largest number of such tests", allowed=COUNT),
}
