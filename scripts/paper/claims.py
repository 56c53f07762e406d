"""Claims of the paper about its curves, as comparisons of two norms."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments import classification
from experiments.attentive_reader import experiment as attentive_reader
from experiments.draw import experiment as draw
from experiments.handwriting import experiment as handwriting
from experiments.order_embeddings import experiment as order_embeddings
from experiments.skip_thoughts import experiment as skip_thoughts
from lnrepro.engine.experiment import Metric
from scripts.paper.records import RecordedRun

# What the norms are called. The paper's DRAW normalises the cell output only.
NORMS = {
    "none": "no norm",
    "layer": "layer norm",
    "layer_cell": "layer norm",
    "layer_everywhere": "layer norm everywhere",
    "batch": "batch norm",
    "batch_everywhere": "batch norm everywhere",
    "weight": "weight norm",
    "rms": "RMS norm",
}
# The numbers of all experiments.
METRICS = {
    **attentive_reader.METRICS,
    **classification.METRICS,
    **draw.METRICS,
    **handwriting.METRICS,
    **order_embeddings.METRICS,
    **skip_thoughts.METRICS,
}


def mode(metric: str) -> str:
    """Return "max" if large values of a metric are better, "min" otherwise.

    Of a metric that no experiment of the paper has, small values are better.

    Args:
      metric: its name in the records, such as "valid/error".
    """
    return METRICS.get(metric.rpartition("/")[2], Metric()).mode


def sign(metric: str) -> int:
    """Return 1 if small values of a metric are better, -1 otherwise."""
    return -1 if mode(metric) == "max" else 1


class Claim(NamedTuple):
    """What the paper says of two norms.

    It says how soon the first one reaches the second's best value, and how far apart
    they end: the two `scripts.paper.verdicts.NUMBERS`.

    Attributes:
      part: the figure or section.
      experiment: name of the folder in experiments/ of its runs.
      metric: the metric.
      quantity: what people call the metric.
      better: the norm that is claimed to be better.
      baseline: the norm that it is compared with.
      paper: what the paper says of the speed and of the end.
      batch_size: that of its runs; None: any.
      scales: where it is not empty, the metric is a sum: of these metrics, each over
        the number beside it. Large sums are better.
    """

    part: str
    experiment: str
    metric: str
    quantity: str
    better: str
    baseline: str
    paper: tuple[str, str]
    batch_size: int | None = None
    scales: tuple[tuple[str, float], ...] = ()

    @property
    def sign(self) -> int:
        """1 if small values are better, -1 otherwise."""
        return -1 if self.scales else sign(self.metric)

    @property
    def variant(self) -> str:
        """The variant of the config at a small size, and the name of its sweep."""
        return "small_bz4" if self.batch_size == 4 else "small"

    @property
    def question(self) -> str:
        """What is compared, without the figure."""
        of_batch = f", batch size {self.batch_size}" if self.batch_size else ""
        return f"{self.quantity}{of_batch}: {self._norms}"

    @property
    def comparison(self) -> str:
        """What it compares."""
        return f"{self.part}, {self.quantity}: {self._norms}"

    @property
    def _norms(self) -> str:
        return f"{NORMS[self.better]} against {NORMS[self.baseline]}"

    def curve(self, run: RecordedRun) -> dict[int, float]:
        """Return {step: value} of its metric."""
        scales = self.scales or [(self.metric, 1)]
        curves = [(run.curve(metric), scale) for metric, scale in scales]
        sums = {}
        for step in curves[0][0]:
            if all(step in curve for curve, _ in curves):
                sums[step] = sum(curve[step] / scale for curve, scale in curves)
        return sums

    def is_about(self, run: RecordedRun) -> bool:
        """Whether a run is of its experiment and batch size."""
        if run.experiment != self.experiment:
            return False
        return self.batch_size in (None, run.batch_size)


def _claims(
    figure: tuple[str, str],
    metrics: Mapping[str, str],
    pairs: Iterable[tuple[str, str]],
    paper: tuple[str, str],
    batch_size: int | None = None,
) -> list[Claim]:
    """Return the claims about each metric, {metric: quantity}, and pair of norms."""
    claims = []
    for metric, quantity in metrics.items():
        for norms in pairs:
            claims.append(Claim(*figure, metric, quantity, *norms, paper, batch_size))
    return claims


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
        {"test/bound": "test bound"},
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

# The plan. It was committed before the first run of its seeds; docs/reproduce.md says
# how its questions are answered.
SEEDS = range(5, 15)
# These chose questions, metrics and learning rates. They are never pooled with SEEDS.
PILOT = range(5)
# Of the family of questions under a protocol, with Holm's correction.
LEVEL = 0.05
# The ends of five tasks, each over its standard deviation in the pilot, from layer norm
# at 3e-3 and no norm at 1e-3.
TRANSFER = Claim(
    part="Figure 3",
    experiment="skip_thoughts",
    metric="five tasks",
    quantity="five tasks",
    better="layer",
    baseline="none",
    paper=("", "better"),
    scales=(
        ("sick/pearson", 0.0204),
        ("mr/accuracy", 0.743),
        ("cr/accuracy", 0.654),
        ("subj/accuracy", 0.805),
        ("mpqa/accuracy", 0.308),
    ),
)


class Question(NamedTuple):
    """A primary question, tested once, with ten pairs of fresh seeds.

    Attributes:
      section: of the paper.
      claim: the claim.
      pilot: how far the norms ended apart in the pilot, in standard deviations of the
        difference of a pair. Negative: against the claim.
      number: which of `scripts.paper.verdicts.NUMBERS` it is about.
    """

    section: str
    claim: Claim
    pilot: float
    number: str = "speed"

    @property
    def name(self) -> str:
        """Its experiment, and the norm that is not "none"."""
        words = [self.section, NAMES[self.claim.experiment]]
        if self.claim.batch_size:
            words.append(f"with batches of {self.claim.batch_size}")
        if self.claim.baseline != "none":
            words.append(f"against {NORMS[self.claim.baseline]}")
        return " ".join(words)


def _first(part, baseline):
    """Return the first claim of a figure that compares with a norm."""
    return next(c for c in CLAIMS if (c.part, c.baseline) == (part, baseline))


PLAN = (
    Question("6.1", _first("Figure 1", "none"), 8.7),
    Question("6.2", _first("Figure 2", "none"), 0.7),
    Question("6.2", _first("Figure 2", "batch_everywhere"), 0.4),
    Question("6.3", TRANSFER, 3.7, "end"),
    Question("6.4", _first("Figure 4", "none"), 2.7),
    Question("6.5", _first("Figure 5", "none"), -8.2),
    Question("6.6", _first("Figure 6, batch size 128", "batch"), 3.0),
    Question("6.6", _first("Figure 6, batch size 4", "batch"), 92.0),
)

# What pages call the experiments of the questions: {folder of experiments/: name}.
NAMES = {
    "order_embeddings": "order-embeddings",
    "attentive_reader": "attentive reader",
    "skip_thoughts": "skip-thoughts",
    "draw": "DRAW",
    "handwriting": "handwriting",
    "mnist": "MNIST",
}
