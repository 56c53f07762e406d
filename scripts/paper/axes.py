"""What the paper's figures show: panels, axes, ranges, curves, the numbers it prints, and which runs make them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Config = Mapping[str, Any]


class Panel(NamedTuple):
    """One panel. `metric` and the suffix of each curve are names in metrics.jsonl; `{data}` is the data set's name."""

    title: str
    ylabel: str
    metric: str
    ylim: tuple[float, float]
    yscale: str = "linear"
    factor: float = 1.0  # the paper's unit over the metric's
    where: Callable[[Config], bool] = lambda config: True
    second: str = ""  # a second curve of the same run, dashed (a training curve)
    original: float | None = None  # a horizontal line that the paper draws


class Figure(NamedTuple):
    """One figure of the paper."""

    number: int
    name: str
    experiment: str
    paper_data: str  # the data set on which its numbers may stand beside the paper's
    config: str  # what trains its runs
    panels: tuple[Panel, ...]
    curves: Mapping[
        str, str
    ]  # config.norm -> the legend's words, in the legend's order
    xlabel: str
    xlim: tuple[float, float]
    x: Callable[[Mapping[str, Any]], float]  # record -> x
    xscale: str = "linear"
    columns: int = 3
    reported: Mapping[
        str, float
    ] = {}  # config.norm -> a final value the paper prints for the first panel
    aim: str = "min"  # which end of the first panel is better


def _per(steps: int) -> Callable[[Mapping[str, Any]], float]:
    return lambda record: record["step"] / steps


def _epoch(record: Mapping[str, Any]) -> float:
    return record["epoch"]


def _batch(size: int) -> Callable[[Config], bool]:
    """Runs with this batch size; a default run on small data, with any other size, belongs to the left half."""
    return lambda config: (config["batch_size"] == 4) == (size == 4)


def _retrieval(k: int, low: float, high: float) -> Panel:
    return Panel(
        "Image Retrieval (Validation)",
        f"mean Recall@{k}",
        f"valid/image_r{k}",
        (low, high),
    )


def _mnist(size: int) -> tuple[Panel, Panel]:
    where = _batch(size)
    return (
        Panel(
            f"batch size {size}",
            "Train NLL",
            "train/nll",
            (1e-7, 1e0),
            "log",
            where=where,
        ),
        Panel(
            f"batch size {size}", "Test Err.", "test/error", (0.005, 0.025), where=where
        ),
    )


def _transfer(
    title: str,
    ylabel: str,
    metric: str,
    low: float,
    high: float,
    original: float,
    factor=1.0,
) -> Panel:
    return Panel(title, ylabel, metric, (low, high), factor=factor, original=original)


FIGURES = {
    figure.number: figure
    for figure in (
        Figure(
            1,
            "Order-embeddings",
            "experiments.order_embeddings",
            "coco_captions",
            "configs/order_embeddings.py:paper",
            (_retrieval(1, 34, 43), _retrieval(5, 71, 78), _retrieval(10, 84, 90)),
            {"layer": "Order-Embedding + LN", "none": "Order-Embedding"},
            "iteration x 300",
            (0, 300),
            _per(300),
            aim="max",
        ),
        Figure(
            2,
            "Attentive reader",
            "experiments.attentive_reader",
            "cnn_top4",
            "configs/attentive_reader.py:paper",
            (Panel("", "validation error rate", "valid/error", (0.4, 1.0)),),
            {
                "none": "LSTM",
                "batch": "BN-LSTM",
                "batch_everywhere": "BN-everywhere",
                "layer": "LN-LSTM",
            },
            "training steps (thousands)",
            (0, 800),
            _per(1000),
        ),
        Figure(
            3,
            "Skip-thoughts",
            "experiments.skip_thoughts",
            "bookcorpus",
            "configs/skip_thoughts.py:paper",
            (
                _transfer(
                    "SICK (r)", "Pearson x 100", "sick/pearson", 82, 86, 84.8, 100.0
                ),
                _transfer("SICK (MSE)", "MSE x 100", "sick/mse", 27, 34, 28.7, 100.0),
                _transfer("MR", "Accuracy", "mr/accuracy", 70, 82, 75.5),
                _transfer("CR", "Accuracy", "cr/accuracy", 74, 86, 79.3),
                _transfer("SUBJ", "Accuracy", "subj/accuracy", 90, 94.5, 92.1),
                _transfer("MPQA", "Accuracy", "mpqa/accuracy", 83, 91, 86.9),
            ),
            {"layer": "Skip-Thoughts + LN", "none": "Skip-Thoughts"},
            "iteration x 50000",
            (0, 20),
            _per(50_000),
            aim="max",
        ),
        Figure(
            4,
            "DRAW",
            "experiments.draw",
            "binarized_mnist",
            "configs/draw.py:paper",
            (Panel("", "Test Variational Bound", "test/bound_{data}", (80, 100)),),
            {"none": "Baseline", "weight": "WN", "layer_cell": "LN"},
            "Epoch",
            (0, 100),
            _epoch,
            reported={"none": 82.36, "layer_cell": 82.09},
        ),
        Figure(
            5,
            "Handwriting",
            "experiments.handwriting",
            "iam_ondb",
            "configs/handwriting.py:paper",
            (
                Panel(
                    "",
                    "Negative Log Likelihood",
                    "valid/nll",
                    (-900, -100),
                    second="train/nll",
                ),
            ),
            {"none": "Baseline", "layer": "LN"},
            "Updates x 200",
            (1, 1000),
            _per(200),
            "log",
        ),
        Figure(
            6,
            "Permutation-invariant MNIST",
            "experiments.mnist",
            "mnist",
            "configs/mnist.py:paper and :paper_bz4",
            (_mnist(128)[0], _mnist(4)[0], _mnist(128)[1], _mnist(4)[1]),
            {"batch": "BatchNorm", "none": "Baseline", "layer": "LayerNorm"},
            "Epoch",
            (0, 60),
            _epoch,
            columns=2,
        ),
    )
}
"""Figure number -> what it shows."""
