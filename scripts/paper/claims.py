"""Claims of the paper about its curves, as comparisons of two norms."""

from collections.abc import Callable
from typing import NamedTuple

from ml_collections import ConfigDict

from scripts.paper.axes import Figure, any_run


class Claim(NamedTuple):
    """A claim of the paper.

    Attributes:
      part: the figure or section.
      experiment: config.experiment of its runs.
      better: the norm that is claimed to be better.
      baseline: the norm that it is compared with.
      metric: the metric; `{data}` stands for the data set.
      best: whether the "min" or the "max" is better.
      kind: "speed" or "end".
      paper: what the paper says.
      where: config -> whether a run belongs to this claim.
    """

    part: str
    experiment: str
    better: str
    baseline: str
    metric: str
    best: str
    kind: str
    paper: str
    where: Callable[[ConfigDict], bool] = any_run


def _speed_and_end(part, experiment, pairs, metric, best, papers, where=any_run):
    """Return both claims about each pair of norms."""
    found = []
    for better, baseline in pairs:
        for kind, paper in zip(("speed", "end"), papers, strict=True):
            found.append(
                Claim(
                    part,
                    f"experiments.{experiment}",
                    better,
                    baseline,
                    metric,
                    best,
                    kind,
                    paper,
                    where,
                )
            )
    return found


def _batch(size):
    return lambda config: config.batch_size == size


def _claims() -> list[Claim]:
    found = _speed_and_end(
        "Figure 1",
        "order_embeddings",
        [("layer", "none")],
        "valid/image_recall_sum",
        "max",
        ("60 % of the time", "R@1 37.8 and 38.9"),
    )
    found += _speed_and_end(
        "Figure 2",
        "attentive_reader",
        [("layer", "none"), ("layer", "batch"), ("layer", "batch_everywhere")],
        "valid/error",
        "min",
        ("faster", "lower error"),
    )
    # The paper normalises the whole network with batch norm only.
    found += _speed_and_end(
        "Figure 2",
        "attentive_reader",
        [("layer_everywhere", "layer"), ("layer_everywhere", "batch_everywhere")],
        "valid/error",
        "min",
        ("not tried", "not tried"),
    )
    tasks = ["mr", "cr", "subj", "mpqa"]
    metrics = [("sick/pearson", "max"), ("sick/mse", "min")]
    metrics += [(f"{task}/accuracy", "max") for task in tasks]
    for metric, best in metrics:
        found += _speed_and_end(
            "Figure 3",
            "skip_thoughts",
            [("layer", "none")],
            metric,
            best,
            ("faster", "better"),
        )
    found += _speed_and_end(
        "Figure 4",
        "draw",
        [("layer_cell", "none")],
        "test/bound_{data}",
        "min",
        ("almost twice as fast", "82.36 and 82.09 nats"),
    )
    found += _speed_and_end(
        "Figure 5",
        "handwriting",
        [("layer", "none")],
        "valid/nll",
        "min",
        ("much faster", "comparable"),
    )
    for size in (128, 4):
        for metric in ("train/nll", "test/error"):
            found += _speed_and_end(
                f"Figure 6, batch size {size}",
                "mnist",
                [("layer", "none"), ("layer", "batch")],
                metric,
                "min",
                ("faster", "lower"),
                _batch(size),
            )
    found += _speed_and_end(
        "Section 6.7",
        "convnet",
        [("layer", "none"), ("batch", "layer")],
        "test/error",
        "min",
        ("faster", "better"),
    )
    return found


CLAIMS = _claims()


def of_figure(figure: Figure) -> list[Claim]:
    """Return what is compared in a figure: layer norm with each other curve.

    Args:
      figure: the figure.
    """
    layer_norm = "layer_cell" if "layer_cell" in figure.curves else "layer"
    others = [norm for norm in figure.legends if norm != layer_norm]
    found = []
    for panel in figure.panels:
        # Errors go down also in a figure whose other panels go up.
        best = "min" if "MSE" in panel.ylabel else figure.best
        words = [figure.title, panel.ylabel, panel.title]
        part = ", ".join(word for word in words if word)
        pairs = [(layer_norm, norm) for norm in others]
        found += _speed_and_end(
            part,
            figure.experiment.rpartition(".")[2],
            pairs,
            panel.metric,
            best,
            ("", ""),
            panel.where,
        )
    return found
