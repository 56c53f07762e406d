"""The pictures and files in a run's artifacts folder."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from lnrepro.engine import metrics
from lnrepro.engine.experiment import Evaluation

# Frames of an animation in a second.
FPS = 12


def write(folder: pathlib.Path, evaluation: Evaluation) -> None:
    """Write the images and files of an evaluation.

    Args:
      folder: where to write; it is made if need be.
      evaluation: what the experiment returned.
    """
    for name, image in evaluation.images.items():
        suffix = ".png" if image.ndim == 3 else ".gif"
        _save_image(_path(folder, name + suffix), image)
    for name, text in evaluation.files.items():
        _path(folder, name).write_text(text, encoding="utf-8")


def _path(folder, name):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _save_image(path: pathlib.Path, image: np.ndarray) -> None:
    from PIL import Image

    # [height, width, 3] is a picture, [frames, height, width, 3] an animation.
    if image.ndim == 3:
        Image.fromarray(image).save(path)
        return
    first, *others = map(Image.fromarray, image)
    milliseconds = 1000 / FPS
    first.save(path, save_all=True, append_images=others, duration=milliseconds, loop=0)


def _draw_panel(ax, records, label, names, scale, unit=None):
    for name in names:
        there = [r for r in records if name in r]
        # With more points the markers would cover the line.
        marker = "." if len(there) < 40 else None
        x = [r["step"] / unit if unit else r["epoch"] for r in there]
        ax.plot(x, [r[name] for r in there], label=name, marker=marker)
    ax.set(ylabel=label, yscale=scale, xlabel="epoch")
    if unit:
        ax.set(xlabel=f"updates / {unit}", xscale="log")
    ax.grid(alpha=0.3)
    ax.legend()


def title(config: Mapping[str, Any] | ConfigDict) -> str:
    """Return what stands above the pictures of a run.

    Args:
      config: the config of the run, or its JSON.
    """
    name = str(config["experiment"]).rpartition(".")[2]
    return f"{name}, {config['norm']}, data: {config['data']['name']}"


def draw_curves(workdir: pathlib.Path, config: Mapping[str, Any]) -> None:
    """Draw `config.curves` of a run directory as artifacts/curves.png.

    Its panels are (label, (metric, ...), "log" or "linear"), against the epoch. A
    fourth entry n draws a panel against updates in units of n, on a logarithmic axis.

    Args:
      workdir: the run directory.
      config: the config of the run, or its JSON.
    """
    panels = config["curves"]
    if not panels:
        return
    from matplotlib.figure import Figure

    records = metrics.read(workdir / "metrics.jsonl")
    figure = Figure(figsize=(5 * len(panels), 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)
    for ax, panel in zip(axes[0], panels, strict=True):
        _draw_panel(ax, records, *panel)
    figure.suptitle(title(config))
    figure.savefig(_path(workdir / "artifacts", "curves.png"), dpi=120)
