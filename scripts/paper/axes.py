"""The panels, axes, ranges, curves and printed numbers of the paper's figures."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments import paper_results as paper

Range = tuple[float, float]


class Panel(NamedTuple):
    """A panel of a figure.

    Attributes:
      ylabel: the label of the y axis.
      metrics: names of the curves' metrics. The curves of the second one are dotted.
      ylim: the paper's range.
      title: the title.
      yscale: "linear" or "log".
      factor: the paper's unit over the metric's.
      batch_of_4: whether runs with batches of 4 belong to this panel, or all others;
        None: all runs do.
      printed: {legend: number that the paper prints}, drawn as horizontal lines.
    """

    ylabel: str
    metrics: tuple[str, ...]
    ylim: Range = (0, 1)
    title: str = ""
    yscale: str = "linear"
    factor: float = 1.0
    batch_of_4: bool | None = None
    printed: Mapping[str, float] = {}


class Figure(NamedTuple):
    """A figure of the paper, or one with the same kind of curves.

    Attributes:
      title: such as "Figure 4, DRAW".
      experiment: name of the folder in experiments/ whose runs it shows.
      panels: its panels.
      norms: its values of config.norm, in the order of the legend.
      paper_data: the data set of the paper; "" where it names none, and has no axes.
      x: "step" or "epoch".
      xlim: the paper's range.
      xscale: "linear" or "log".
      columns: number of panels in a row.
    """

    title: str
    experiment: str
    panels: tuple[Panel, ...]
    norms: Sequence[str]
    paper_data: str = ""
    x: str = "step"
    xlim: Range = (0, 1)
    xscale: str = "linear"
    columns: int = 3


def _retrieval(k, low, high):
    title = "validation images"
    return Panel(f"recall@{k} (%)", (f"valid/image_r{k}",), (low, high), title)


def _task(title, ylabel, metric, low, high, factor=1.0):
    # The original skip-thought vectors are those of Table 3.
    original = paper.TABLE_3["original (Kiros et al. 2015)"]
    value = factor * original[list(paper.TABLE_3_COLUMNS).index(metric)]
    printed = {"original (the paper's)": value}
    axes = (low, high), title
    return Panel(ylabel, (metric,), *axes, factor=factor, printed=printed)


def _accuracy(task, low, high):
    return _task(task, "accuracy (%)", f"{task.lower()}/accuracy", low, high)


def _sick(quantity, metric, low, high):
    return _task("SICK", f"{quantity} x 100", f"sick/{metric}", low, high, 100.0)


def _mnist(size, ylabel, metric, ylim, yscale="linear", factor=1.0):
    # Default runs on small data have other sizes. They belong to the left half.
    settings = f"batch size {size}", yscale, factor, size == 4
    return Panel(ylabel, (metric,), ylim, *settings)


_BOUNDS = {f"{n}, the paper's end: {y}": y for n, y in paper.BOUNDS.items()}
_THREE = "batch", "none", "layer"
# Ranges are those printed in the paper, in steps and percent. It has six figures with
# results. 7 is the remark about convolutional networks in section 6.7.
FIGURES = {
    1: Figure(
        title="Figure 1, Order-embeddings",
        experiment="order_embeddings",
        panels=(_retrieval(1, 34, 43), _retrieval(5, 71, 78), _retrieval(10, 84, 90)),
        norms=("layer", "none"),
        paper_data="coco_captions",
        xlim=(0, 90_000),
    ),
    2: Figure(
        title="Figure 2, Attentive reader",
        experiment="attentive_reader",
        panels=(
            Panel("validation error (%)", ("valid/error",), (40, 100), factor=100.0),
        ),
        # The paper does not have the last one.
        norms=("none", "batch", "batch_everywhere", "layer", "layer_everywhere"),
        paper_data="cnn_top4",
        xlim=(0, 800_000),
    ),
    3: Figure(
        title="Figure 3, Skip-thoughts",
        experiment="skip_thoughts",
        panels=(
            _sick("Pearson r", "pearson", 82, 86),
            _sick("squared error", "mse", 27, 34),
            _accuracy("MR", 70, 82),
            _accuracy("CR", 74, 86),
            _accuracy("SUBJ", 90, 94.5),
            _accuracy("MPQA", 83, 91),
        ),
        norms=("layer", "none"),
        paper_data="bookcorpus",
        xlim=(0, 1_000_000),
    ),
    4: Figure(
        title="Figure 4, DRAW",
        experiment="draw",
        panels=(
            Panel(
                "test bound (nats)",
                ("test/bound",),
                (80, 100),
                printed=_BOUNDS,
            ),
        ),
        norms=("none", "weight", "layer_cell"),
        paper_data="binarized_mnist",
        x="epoch",
        xlim=(0, 100),
    ),
    5: Figure(
        title="Figure 5, Handwriting",
        experiment="handwriting",
        panels=(
            Panel(
                "NLL (nats per sequence)",
                ("valid/nll", "train/nll"),
                (-900, -100),
            ),
        ),
        norms=("none", "layer"),
        paper_data="iam_ondb",
        xlim=(200, 200_000),
        xscale="log",
    ),
    6: Figure(
        title="Figure 6, Permutation-invariant MNIST",
        experiment="mnist",
        panels=(
            _mnist(128, "training NLL (nats)", "train/nll", (1e-7, 1e0), "log"),
            _mnist(4, "training NLL (nats)", "train/nll", (1e-7, 1e0), "log"),
            # The paper's axes begin at 0.5, below all curves.
            _mnist(128, "test error (%)", "test/error", (1, 2.5), factor=100.0),
            _mnist(4, "test error (%)", "test/error", (1, 2.5), factor=100.0),
        ),
        norms=_THREE,
        paper_data="mnist",
        x="epoch",
        xlim=(0, 60),
        columns=2,
    ),
    7: Figure(
        title="Section 6.7, Convolutional networks",
        experiment="convnet",
        panels=(
            Panel("test error (%)", ("test/error",), factor=100.0),
            Panel("training NLL (nats)", ("train/nll",), yscale="log"),
        ),
        norms=_THREE,
        x="epoch",
        columns=2,
    ),
}
