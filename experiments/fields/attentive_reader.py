"""The fields of the attentive reader, with the values of the paper."""

from ml_collections import ConfigDict

from lnrepro.fields import BATCH, BELOW_1, COUNT, NUMBER, Field, Lengths


def _evaluates_alone(config: ConfigDict) -> bool:
    """Whether the numbers of a question do not depend on the others in its batch."""
    by_batch = config.model.evaluation_statistics == "batch"
    return not (by_batch and config.norm.startswith("batch"))


FIELDS = {
    "norm": Field(
        "layer",
        "name of the normalisation",
        allowed=("none", "layer", "layer_everywhere", "batch", "batch_everywhere"),
    ),
    "data.vocabulary": Field(
        65_830, "words with a vector of their own", allowed=COUNT, from_data=True
    ),
    "data.entities": Field(
        600, "number of entity markers, the answers", allowed=COUNT, from_data=True
    ),
    "data.sentences": Field(
        4,
        "sentences of a story that are read; None reads all",
        allowed=COUNT,
        optional=True,
    ),
    "data.passage_buckets": Field(
        (48, 64, 80, 96, 112, 128, 144, 160, 192, 256, 512, 2048),
        "lengths that passages are padded to",
        allowed=Lengths(),
        from_data=True,
    ),
    "data.question_buckets": Field(
        (12, 16, 20, 24, 32, 48, 128),
        "lengths that questions are padded to",
        allowed=Lengths(),
        from_data=True,
    ),
    "model.units": Field(
        240, "units of each LSTM, and size of a word vector", allowed=COUNT
    ),
    "model.dropout": Field(0.5, "share of values that are dropped", allowed=BELOW_1),
    "model.gain.layer": Field(
        1.0, "first value of the gains of layer norm", allowed=NUMBER
    ),
    "model.gain.batch": Field(
        0.1, "first value of the gains of batch norm", allowed=NUMBER
    ),
    # Later steps use the last ones.
    "model.statistics_steps": Field(
        320, "time steps with population statistics of their own", allowed=COUNT
    ),
    "model.momentum": Field(
        0.99, "weight of the old value in the population statistics", allowed=BELOW_1
    ),
    "model.evaluation_statistics": Field(
        "batch",
        "batch (of the evaluated batch) or population",
        allowed=("batch", "population"),
    ),
    "eval_batch_size": Field(
        64,
        "examples in a batch of an evaluation",
        allowed=BATCH,
        may_change=_evaluates_alone,
    ),
    "evaluation_questions": Field(
        None,
        "questions of a split that are evaluated; None takes all",
        type=int,
        allowed=COUNT,
    ),
}
