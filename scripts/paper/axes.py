"""The panels, axes, ranges, curves and printed numbers of the paper's figures."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

Record = Mapping[str, Any]


def any_run(config: ConfigDict) -> bool:
    """Return True, as the default of a condition on runs."""
    return True


class Panel(NamedTuple):
    """A panel of a figure.

    Attributes:
      ylabel: the label of the y axis.
      metric: name of the curves' metric; `{data}` stands for the data set.
      ylim: the paper's range.
      title: the title.
      yscale: "linear" or "log".
      factor: the paper's unit over the metric's.
      where: config -> whether a run belongs to this panel.
      second: name of the metric of a second, dotted curve.
      original: y of a horizontal line in the paper.
    """

    ylabel: str
    metric: str
    ylim: tuple[float, float]
    title: str = ""
    yscale: str = "linear"
    factor: float = 1.0
    where: Callable[[ConfigDict], bool] = any_run
    second: str = ""
    original: float | None = None


class Figure(NamedTuple):
    """A figure of the paper.

    Attributes:
      number: its number.
      name: its subject.
      experiment: config.experiment of its runs.
      paper_data: the data set whose runs may be compared with the paper's numbers.
      config: what trains its runs.
      panels: its panels.
      curves: {config.norm: text of the legend}, in the order of the legend.
      xlabel: the label of the x axis.
      xlim: the paper's range.
      x: record -> x.
      xscale: "linear" or "log".
      columns: number of panels in a row.
      reported: {config.norm: final value of the first panel that the paper prints}.
      best: whether the "min" or the "max" of the first panel is better.
      section: for curves that the paper describes and does not draw.
      added: like `curves`, for norms that the paper does not have.
    """

    number: int
    name: str
    experiment: str
    paper_data: str
    config: str
    panels: tuple[Panel, ...]
    curves: Mapping[str, str]
    xlabel: str
    xlim: tuple[float, float]
    x: Callable[[Record], float]
    xscale: str = "linear"
    columns: int = 3
    reported: Mapping[str, float] = {}
    best: str = "min"
    section: str = ""
    added: Mapping[str, str] = {}

    @property
    def legends(self) -> dict[str, str]:
        """The text of the legend of each norm."""
        return {**self.curves, **self.added}

    @property
    def title(self) -> str:
        """Such as "Figure 6"."""
        return f"Section {self.section}" if self.section else f"Figure {self.number}"


def _steps_over(steps) -> Callable[[Record], float]:
    def x(record):
        return record["step"] / steps

    return x


def _epoch(record):
    return record["epoch"]


def _retrieval(k, low, high):
    return Panel(
        f"mean Recall@{k}",
        f"valid/image_r{k}",
        (low, high),
        title="Image Retrieval (Validation)",
    )


def _mnist(size, ylabel, metric, ylim, yscale="linear"):
    def where(config):
        # Default runs on small data have other sizes. They belong to the left half.
        return (config.batch_size == 4) == (size == 4)

    title = f"batch size {size}"
    return Panel(ylabel, metric, ylim, title=title, yscale=yscale, where=where)


def _mnist_nll(size):
    return _mnist(size, "Train NLL", "train/nll", (1e-7, 1e0), "log")


def _mnist_error(size):
    return _mnist(size, "Test Err.", "test/error", (0.005, 0.025))


def _accuracy(task, low, high, original):
    metric = f"{task.lower()}/accuracy"
    return Panel("Accuracy", metric, (low, high), title=task, original=original)


# Axes, labels and ranges are those printed in the paper.
_FIGURES = (
    Figure(
        number=1,
        name="Order-embeddings",
        experiment="experiments.order_embeddings",
        paper_data="coco_captions",
        config="configs/order_embeddings.py:paper",
        panels=(_retrieval(1, 34, 43), _retrieval(5, 71, 78), _retrieval(10, 84, 90)),
        curves={"layer": "Order-Embedding + LN", "none": "Order-Embedding"},
        xlabel="iteration x 300",
        xlim=(0, 300),
        x=_steps_over(300),
        best="max",
    ),
    Figure(
        number=2,
        name="Attentive reader",
        experiment="experiments.attentive_reader",
        paper_data="cnn_top4",
        config="configs/attentive_reader.py:paper",
        panels=(Panel("validation error rate", "valid/error", (0.4, 1.0)),),
        curves={
            "none": "LSTM",
            "batch": "BN-LSTM",
            "batch_everywhere": "BN-everywhere",
            "layer": "LN-LSTM",
        },
        xlabel="training steps (thousands)",
        xlim=(0, 800),
        x=_steps_over(1000),
        added={"layer_everywhere": "LN-everywhere"},
    ),
    Figure(
        number=3,
        name="Skip-thoughts",
        experiment="experiments.skip_thoughts",
        paper_data="bookcorpus",
        config="configs/skip_thoughts.py:paper",
        panels=(
            Panel(
                "Pearson x 100",
                "sick/pearson",
                (82, 86),
                title="SICK (r)",
                factor=100.0,
                # The original skip-thought vectors of Table 3, times 100.
                original=84.8,
            ),
            Panel(
                "MSE x 100",
                "sick/mse",
                (27, 34),
                title="SICK (MSE)",
                factor=100.0,
                original=28.7,
            ),
            _accuracy("MR", 70, 82, 75.5),
            _accuracy("CR", 74, 86, 79.3),
            _accuracy("SUBJ", 90, 94.5, 92.1),
            _accuracy("MPQA", 83, 91, 86.9),
        ),
        curves={"layer": "Skip-Thoughts + LN", "none": "Skip-Thoughts"},
        xlabel="iteration x 50000",
        xlim=(0, 20),
        x=_steps_over(50_000),
        best="max",
    ),
    Figure(
        number=4,
        name="DRAW",
        experiment="experiments.draw",
        paper_data="binarized_mnist",
        config="configs/draw.py:paper",
        panels=(Panel("Test Variational Bound", "test/bound_{data}", (80, 100)),),
        curves={"none": "Baseline", "weight": "WN", "layer_cell": "LN"},
        xlabel="Epoch",
        xlim=(0, 100),
        x=_epoch,
        # Bounds in nats after 200 epochs, from section 6.4.
        reported={"none": 82.36, "layer_cell": 82.09},
    ),
    Figure(
        number=5,
        name="Handwriting",
        experiment="experiments.handwriting",
        paper_data="iam_ondb",
        config="configs/handwriting.py:paper",
        panels=(
            Panel(
                "Negative Log Likelihood",
                "valid/nll",
                (-900, -100),
                second="train/nll",
            ),
        ),
        curves={"none": "Baseline", "layer": "LN"},
        xlabel="Updates x 200",
        xlim=(1, 1000),
        x=_steps_over(200),
        xscale="log",
    ),
    Figure(
        number=6,
        name="Permutation-invariant MNIST",
        experiment="experiments.mnist",
        paper_data="mnist",
        config="configs/mnist.py:paper and :paper_bz4",
        panels=(_mnist_nll(128), _mnist_nll(4), _mnist_error(128), _mnist_error(4)),
        curves={"batch": "BatchNorm", "none": "Baseline", "layer": "LayerNorm"},
        xlabel="Epoch",
        xlim=(0, 60),
        x=_epoch,
        columns=2,
    ),
    Figure(
        number=7,
        name="Convolutional networks",
        experiment="experiments.convnet",
        # The paper names none.
        paper_data="",
        config="configs/convnet.py:paper",
        panels=(
            Panel("Test Err.", "test/error", (0, 0.1)),
            Panel("Train NLL", "train/nll", (1e-3, 1), yscale="log"),
        ),
        curves={"batch": "BatchNorm", "none": "Baseline", "layer": "LayerNorm"},
        xlabel="Epoch",
        xlim=(0, 5),
        x=_epoch,
        section="6.7",
    ),
)
FIGURES = {figure.number: figure for figure in _FIGURES}
