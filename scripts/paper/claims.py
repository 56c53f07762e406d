"""Claims of the paper about its curves, as comparisons of two norms."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from scripts.paper.records import RecordedRun

# What the norms are called. The paper's DRAW normalises the cell output only.
NORMS = {
    "none": "no norm",
    "layer": "layer norm",
    "layer_cell": "layer norm",
    "layer_everywhere": "layer norm everywhere",
    "batch": "batch norm",
    "batch_everywhere": "batch norm everywhere",
}
# How soon the first norm reaches the second's best value, and how far apart they end.
KINDS = ("speed", "end")
# The ends of the names of metrics of which large values are better.
LARGE_IS_BETTER = ("recall_sum", "pearson", "accuracy")


class Claim(NamedTuple):
    """A claim of the paper.

    Attributes:
      part: the figure or section.
      experiment: name of the folder in experiments/ of its runs.
      metric: the metric; `{data}` stands for the data set.
      quantity: what people call the metric.
      better: the norm that is claimed to be better.
      baseline: the norm that it is compared with.
      kind: one of `KINDS`.
      paper: what the paper says.
      batch_size: that of its runs; None: any.
    """

    part: str
    experiment: str
    metric: str
    quantity: str
    better: str
    baseline: str
    kind: str
    paper: str
    batch_size: int | None = None

    @property
    def sign(self) -> int:
        """1 if small values are better, -1 otherwise."""
        return -1 if self.metric.endswith(LARGE_IS_BETTER) else 1

    @property
    def comparison(self) -> str:
        """What it compares; it has a claim of each kind."""
        names = f"{NORMS[self.better]} against {NORMS[self.baseline]}"
        return f"{self.part}, {self.quantity}: {names}"

    def is_about(self, run: RecordedRun) -> bool:
        """Whether a run is of its experiment and batch size."""
        if run.experiment != self.experiment:
            return False
        return self.batch_size in (None, run.config.get("batch_size"))


def _claims(
    figure: tuple[str, str],
    metrics: Mapping[str, str],
    pairs: Iterable[tuple[str, str]],
    papers: tuple[str, str],
    batch_size: int | None = None,
) -> Iterator[Claim]:
    """Yield both claims about each metric, {metric: quantity}, and pair of norms."""
    for metric, quantity in metrics.items():
        for norms in pairs:
            for kind, paper in zip(KINDS, papers, strict=True):
                of_kind = kind, paper, batch_size
                yield Claim(*figure, metric, quantity, *norms, *of_kind)


NONE, BATCH = ("layer", "none"), ("layer", "batch")
READER = "Figure 2", "attentive_reader"
READER_ERROR = {"valid/error": "validation error"}
TASKS = {
    "sick/pearson": "SICK correlation",
    "sick/mse": "SICK squared error",
    "mr/accuracy": "MR accuracy",
    "cr/accuracy": "CR accuracy",
    "subj/accuracy": "SUBJ accuracy",
    "mpqa/accuracy": "MPQA accuracy",
}
TEST_ERROR = {"test/error": "test error"}
MNIST = {"train/nll": "training NLL"} | TEST_ERROR, [NONE, BATCH], ("faster", "lower")
CLAIMS = (
    *_claims(
        ("Figure 1", "order_embeddings"),
        {"valid/image_recall_sum": "image recall"},
        [NONE],
        ("60 % of the time", "R@1 37.8 and 38.9"),
    ),
    *_claims(
        READER,
        READER_ERROR,
        [NONE, BATCH, ("layer", "batch_everywhere")],
        ("faster", "lower error"),
    ),
    # The paper normalises the whole network with batch norm only.
    *_claims(
        READER,
        READER_ERROR,
        [("layer_everywhere", "layer"), ("layer_everywhere", "batch_everywhere")],
        ("not tried", "not tried"),
    ),
    *_claims(("Figure 3", "skip_thoughts"), TASKS, [NONE], ("faster", "better")),
    *_claims(
        ("Figure 4", "draw"),
        {"test/bound_{data}": "test bound"},
        [("layer_cell", "none")],
        ("almost twice as fast", "82.36 and 82.09 nats"),
    ),
    *_claims(
        ("Figure 5", "handwriting"),
        {"valid/nll": "validation NLL"},
        [NONE],
        ("much faster", "comparable"),
    ),
    *_claims(("Figure 6, batch size 128", "mnist"), *MNIST, 128),
    *_claims(("Figure 6, batch size 4", "mnist"), *MNIST, 4),
    *_claims(
        ("Section 6.7", "convnet"),
        TEST_ERROR,
        [NONE, ("batch", "layer")],
        ("faster", "better"),
    ),
)
