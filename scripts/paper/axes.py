"""The panels, axes, ranges, curves and printed numbers of the paper's figures."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ml_collections import ConfigDict

from experiments import paper_results as paper
from scripts.paper.records import Record

Range = tuple[float, float]


def any_run(config: ConfigDict) -> bool:
    """Return True, as the default of a condition on runs."""
    return True


class Panel(NamedTuple):
    """A panel of a figure.

    Attributes:
      ylabel: the label of the y axis.
      metrics: names of the curves' metrics; `{data}` stands for the data set. The
        curves of the second one are dotted.
      ylim: the paper's range.
      title: the title.
      yscale: "linear" or "log".
      factor: the paper's unit over the metric's.
      where: config -> whether a run belongs to this panel.
      printed: {legend: number that the paper prints}, drawn as horizontal lines.
    """

    ylabel: str
    metrics: tuple[str, ...]
    ylim: Range = (0, 1)
    title: str = ""
    yscale: str = "linear"
    factor: float = 1.0
    where: Callable[[ConfigDict], bool] = any_run
    printed: Mapping[str, float] = {}


class Figure(NamedTuple):
    """A figure of the paper, or one with the same kind of curves.

    Attributes:
      title: such as "Figure 4, DRAW".
      experiment: name of the folder in experiments/ whose runs it shows.
      panels: its panels.
      legends: {config.norm: text of the legend}, in the order of the legend.
      paper_data: the data set of the paper; "" where it names none.
      xlabel: the label of the x axis.
      xlim: the paper's range; None: there are no axes of the paper.
      steps_per_x: x is the step over this number; None: x is the epoch.
      xscale: "linear" or "log".
      columns: number of panels in a row.
    """

    title: str
    experiment: str
    panels: tuple[Panel, ...]
    legends: Mapping[str, str]
    paper_data: str = ""
    xlabel: str = "step"
    xlim: Range | None = None
    steps_per_x: int | None = 1
    xscale: str = "linear"
    columns: int = 3

    def x(self, record: Record) -> float:
        """Return the position of a record on the x axis."""
        if self.steps_per_x is None:
            return record["epoch"]
        return record["step"] / self.steps_per_x


def _retrieval(k, low, high):
    title = "Image Retrieval (Validation)"
    return Panel(f"mean Recall@{k}", (f"valid/image_r{k}",), (low, high), title)


def _task(title, ylabel, metric, low, high, factor=1.0):
    # The original skip-thought vectors are those of Table 3.
    original = paper.TABLE_3["original (Kiros et al. 2015)"]
    value = factor * original[list(paper.TABLE_3_COLUMNS).index(metric)]
    printed = {"Original (the paper's)": value}
    axes = (low, high), title
    return Panel(ylabel, (metric,), *axes, factor=factor, printed=printed)


def _accuracy(task, low, high):
    return _task(task, "Accuracy", f"{task.lower()}/accuracy", low, high)


def _sick(short, ylabel, low, high):
    metric = f"sick/{ylabel.lower()}"
    return _task(f"SICK ({short})", f"{ylabel} x 100", metric, low, high, 100.0)


def _mnist(size, ylabel, metric, ylim, yscale="linear"):
    def where(config):
        # Default runs on small data have other sizes. They belong to the left half.
        return (config.batch_size == 4) == (size == 4)

    return Panel(ylabel, (metric,), ylim, f"batch size {size}", yscale, where=where)


_BOUNDS = {f"{n}, the paper's end: {y}": y for n, y in paper.BOUNDS.items()}
_THREE = {"batch": "BatchNorm", "none": "Baseline", "layer": "LayerNorm"}
# Axes, labels and ranges are those printed in the paper, which has six figures with
# results. 7 is the remark about convolutional networks in section 6.7.
FIGURES = {
    1: Figure(
        title="Figure 1, Order-embeddings",
        experiment="order_embeddings",
        panels=(_retrieval(1, 34, 43), _retrieval(5, 71, 78), _retrieval(10, 84, 90)),
        legends={"layer": "Order-Embedding + LN", "none": "Order-Embedding"},
        paper_data="coco_captions",
        xlabel="iteration x 300",
        xlim=(0, 300),
        steps_per_x=300,
    ),
    2: Figure(
        title="Figure 2, Attentive reader",
        experiment="attentive_reader",
        panels=(Panel("validation error rate", ("valid/error",), (0.4, 1.0)),),
        legends={
            "none": "LSTM",
            "batch": "BN-LSTM",
            "batch_everywhere": "BN-everywhere",
            "layer": "LN-LSTM",
            # The paper does not have it.
            "layer_everywhere": "LN-everywhere",
        },
        paper_data="cnn_top4",
        xlabel="training steps (thousands)",
        xlim=(0, 800),
        steps_per_x=1000,
    ),
    3: Figure(
        title="Figure 3, Skip-thoughts",
        experiment="skip_thoughts",
        panels=(
            _sick("r", "Pearson", 82, 86),
            _sick("MSE", "MSE", 27, 34),
            _accuracy("MR", 70, 82),
            _accuracy("CR", 74, 86),
            _accuracy("SUBJ", 90, 94.5),
            _accuracy("MPQA", 83, 91),
        ),
        legends={"layer": "Skip-Thoughts + LN", "none": "Skip-Thoughts"},
        paper_data="bookcorpus",
        xlabel="iteration x 50000",
        xlim=(0, 20),
        steps_per_x=50_000,
    ),
    4: Figure(
        title="Figure 4, DRAW",
        experiment="draw",
        panels=(
            Panel(
                "Test Variational Bound",
                ("test/bound_{data}",),
                (80, 100),
                printed=_BOUNDS,
            ),
        ),
        legends={"none": "Baseline", "weight": "WN", "layer_cell": "LN"},
        paper_data="binarized_mnist",
        xlabel="Epoch",
        xlim=(0, 100),
        steps_per_x=None,
    ),
    5: Figure(
        title="Figure 5, Handwriting",
        experiment="handwriting",
        panels=(
            Panel(
                "Negative Log Likelihood",
                ("valid/nll", "train/nll"),
                (-900, -100),
            ),
        ),
        legends={"none": "Baseline", "layer": "LN"},
        paper_data="iam_ondb",
        xlabel="Updates x 200",
        xlim=(1, 1000),
        steps_per_x=200,
        xscale="log",
    ),
    6: Figure(
        title="Figure 6, Permutation-invariant MNIST",
        experiment="mnist",
        panels=(
            _mnist(128, "Train NLL", "train/nll", (1e-7, 1e0), "log"),
            _mnist(4, "Train NLL", "train/nll", (1e-7, 1e0), "log"),
            _mnist(128, "Test Err.", "test/error", (0.005, 0.025)),
            _mnist(4, "Test Err.", "test/error", (0.005, 0.025)),
        ),
        legends=_THREE,
        paper_data="mnist",
        xlabel="Epoch",
        xlim=(0, 60),
        steps_per_x=None,
        columns=2,
    ),
    7: Figure(
        title="Section 6.7, Convolutional networks",
        experiment="convnet",
        panels=(
            Panel("Test Err.", ("test/error",)),
            Panel("Train NLL", ("train/nll",), yscale="log"),
        ),
        legends=_THREE,
        xlabel="Epoch",
        steps_per_x=None,
    ),
}
