"""The pictures and files in a run's artifacts folder."""

import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lnrepro import optional
from lnrepro.engine import metrics
from lnrepro.engine.experiment import Evaluation, FailedPicture, try_draw

# Pixels of an inch. A power of two, so that sizes in inches are exact.
DPI = 128
# Height of the letters above a picture, in pixels.
CAPTION_SIZE = 13
# Frames of an animation in a second.
FPS = 12


class Results(NamedTuple):
    """What a run or its evaluations gave.

    Attributes:
      numbers: {name: number}.
      paths: the files that were written.
      not_drawn: {name of a picture that could not be drawn: the reason}.
    """

    numbers: dict[str, float]
    paths: list[pathlib.Path]
    not_drawn: dict[str, str]

    def add(self, more: "Results") -> None:
        """Add other results, each file once."""
        self.numbers.update(more.numbers)
        self.paths.extend(path for path in more.paths if path not in self.paths)
        self.not_drawn.update(more.not_drawn)

    def lines(self) -> list[str]:
        """Return a line about each file, and about each picture that is missing."""
        missing = [f"not drawn  {name} ({why})" for name, why in self.not_drawn.items()]
        return [f"picture    {path}" for path in self.paths] + missing

    def to_json(self) -> dict[str, Any]:
        """Return the numbers, and the pictures that were not drawn, if any."""
        missing = list(self.not_drawn)
        return self.numbers | ({"not_drawn": missing} if missing else {})


def write(folder: pathlib.Path, evaluation: Evaluation) -> Results:
    """Write the images and files of an evaluation.

    Args:
      folder: where to write; it is made if need be.
      evaluation: what the experiment returned.
    """
    paths, not_drawn = [], {}
    images = evaluation.images
    if images and not optional.installed("matplotlib"):
        images = {}
    for name, image in images.items():
        saved = image
        if not isinstance(image, FailedPicture):
            caption = evaluation.captions.get(name, "")
            saved = try_draw(_save_image, folder, name, image, caption)
        if isinstance(saved, FailedPicture):
            not_drawn[name] = saved.reason
        else:
            paths.append(saved)
    for name, text in evaluation.files.items():
        paths.append(_path(folder, name))
        paths[-1].write_text(text, encoding="utf-8")
    return Results({}, paths, not_drawn)


def _path(folder, name):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _save_image(
    folder: pathlib.Path, name: str, image: np.ndarray, caption: str
) -> pathlib.Path:
    """Write an image whose pixels stay as they are, below its caption."""
    from matplotlib import animation
    from matplotlib.figure import Figure

    # [height, width, 3] is a picture, [frames, height, width, 3] an animation.
    path = _path(folder, name + (".png" if image.ndim == 3 else ".gif"))
    frames = image.reshape(-1, *image.shape[-3:])
    height, width = frames.shape[1:3]
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    # Point sizes are in 72nds of an inch.
    size = CAPTION_SIZE * 72 / DPI
    text = figure.text(0.5, 0.5, caption, ha="center", va="top", size=size, wrap=True)
    if caption:
        margin = CAPTION_SIZE // 4
        height += math.ceil(text.get_window_extent().height) + 2 * margin
        text.set_y(1 - margin / height)
        figure.set_size_inches(width / DPI, height / DPI)
    shown = figure.figimage(frames[0])
    if image.ndim == 3:
        figure.savefig(path)
        return path

    def draw(i):
        shown.set_data(frames[i])
        return ()

    film = animation.FuncAnimation(figure, draw, len(frames))
    film.save(path, animation.PillowWriter(fps=FPS))
    return path


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


def title(config: Mapping[str, Any]) -> str:
    """Return what stands above the pictures of a run.

    Args:
      config: the config of the run, or its JSON.
    """
    name = str(config["experiment"]).rpartition(".")[2]
    return f"{name}, {config['norm']}, data: {config['data']['name']}"


def draw_curves(workdir: pathlib.Path, config: Mapping[str, Any]) -> Results:
    """Draw `config.curves` of a run directory as artifacts/curves.png.

    Its panels are (label, (metric, ...), "log" or "linear"), against the epoch. A
    fourth entry n draws a panel against updates in units of n, on a logarithmic axis.

    Args:
      workdir: the run directory.
      config: the config of the run, or its JSON.

    Returns:
      The path; nothing where there are no curves or matplotlib is not installed.
    """
    if not config["curves"] or not optional.installed("matplotlib"):
        return Results({}, [], {})
    path = try_draw(_draw_curves, workdir, config)
    if isinstance(path, FailedPicture):
        return Results({}, [], {"curves": path.reason})
    return Results({}, [path], {})


def _draw_curves(workdir, config):
    from matplotlib.figure import Figure

    panels = config["curves"]
    records = metrics.read(workdir / "metrics.jsonl")
    figure = Figure(figsize=(5 * len(panels), 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)
    for ax, panel in zip(axes[0], panels, strict=True):
        _draw_panel(ax, records, *panel)
    figure.suptitle(title(config))
    path = _path(workdir / "artifacts", "curves.png")
    figure.savefig(path, dpi=120)
    return path
