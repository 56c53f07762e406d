"""The pictures and files in a run's artifacts folder."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lnrepro import optional
from lnrepro.engine import metrics
from lnrepro.engine.experiment import Evaluation

# Height of the letters above a picture, in pixels.
CAPTION_SIZE = 13
# What the legends of curves call the parts of the data.
PARTS = {"train": "training", "valid": "validation"}


def write(folder: pathlib.Path, evaluation: Evaluation) -> list[pathlib.Path]:
    """Write the images and files of an evaluation.

    Args:
      folder: where to write; it is made if need be.
      evaluation: what the experiment returned.

    Returns:
      The paths written.
    """
    paths = []
    images = evaluation.images
    if images and not optional.installed("PIL"):
        images = {}
    for name, image in images.items():
        # [height, width, 3] is a picture, [frames, height, width, 3] an animation.
        suffix = ".png" if image.ndim == 3 else ".gif"
        paths.append(_path(folder, name + suffix))
        _save_image(paths[-1], image, evaluation.captions.get(name, ""))
    for name, text in evaluation.files.items():
        paths.append(_path(folder, name))
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def _path(folder, name):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _save_image(path, image, caption):
    # Imported late: evaluations without pictures do not need it.
    from PIL import Image

    if caption:
        above = _drawn_text(caption, image.shape[-2])
        # Every frame of an animation has the caption.
        above = np.broadcast_to(above, (*image.shape[:-3], *above.shape))
        image = np.concatenate([above, image], axis=-3)
    if image.ndim == 3:
        Image.fromarray(image).save(path)
    else:
        # 80 ms a frame; loop=0 repeats forever.
        first, *rest = [Image.fromarray(frame) for frame in image]
        first.save(path, save_all=True, append_images=rest, duration=80, loop=0)


def _drawn_text(text: str, width: int) -> np.ndarray:
    """Return black text on white, broken into lines, as uint8 [H, width, 3]."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(CAPTION_SIZE)
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) > width - CAPTION_SIZE:
            lines.append(word)
        else:
            lines[-1] = longer
    # Lines are half a letter apart.
    height = int(CAPTION_SIZE * (1.5 * len(lines) + 0.5))
    picture = Image.new("RGB", (width, height), "white")
    margin = CAPTION_SIZE // 2
    ImageDraw.Draw(picture).multiline_text(
        (margin, margin), "\n".join(lines), "black", font, spacing=margin
    )
    return np.asarray(picture)


def curves(
    path: pathlib.Path,
    records: Sequence[Mapping[str, Any]],
    panels: Sequence,
    title: str,
) -> None:
    """Draw metrics against the epoch as a PNG.

    Args:
      path: the file to write.
      records: records of a metrics.jsonl.
      panels: (label, (metric, ...), "log" or "linear") for each panel. A fourth entry n
        draws the panel against updates in units of n, on a logarithmic axis.
      title: stands above the panels.
    """
    import matplotlib

    # The backend Agg draws without a display.
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(
        1,
        len(panels),
        figsize=(5 * len(panels), 3.6),
        squeeze=False,
        layout="constrained",
    )
    for ax, panel in zip(axes[0], panels, strict=True):
        _draw_panel(ax, records, *panel)
    fig.suptitle(title)
    fig.savefig(path, dpi=120)
    plt.close(fig)


def _draw_panel(ax, records, label, names, scale, unit=None):
    for name in names:
        there = [r for r in records if name in r]
        if not there:
            continue
        x = [r["step"] / unit if unit else r["epoch"] for r in there]
        # With more points the markers would cover the line.
        marker = "." if len(there) < 40 else None
        ax.plot(x, [r[name] for r in there], label=_in_words(name), marker=marker)
    ax.set(ylabel=label, yscale=scale, xlabel="epoch")
    if scale == "log":
        _label_decimals(ax.yaxis)
    if unit:
        ax.set(xlabel=f"updates / {unit}", xscale="log")
        _label_decimals(ax.xaxis)
    ax.grid(alpha=0.3)
    if ax.lines:
        ax.legend()


def _in_words(name: str) -> str:
    """Return "validation: entity error" for "valid/entity_error"."""
    part, _, scalar = name.partition("/")
    return f"{PARTS.get(part, part)}: {scalar}".replace("_", " ")


def _label_decimals(axis) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times powers of ten, as decimals."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_formatter(ticker.NullFormatter())


def title(config: Mapping[str, Any]) -> str:
    """Return what stands above the pictures of a run.

    Args:
      config: the config of the run, or its JSON.
    """
    name = str(config["experiment"]).rpartition(".")[2]
    return f"{name}, {config['norm']}, data: {config['data']['name']}"


def draw_curves(workdir: pathlib.Path, config: Mapping[str, Any]) -> list[pathlib.Path]:
    """Draw `config.curves` of a run directory as artifacts/curves.png.

    Args:
      workdir: the run directory.
      config: the config of the run, or its JSON.

    Returns:
      The path, or nothing where there are no curves or matplotlib is not installed.
    """
    if not config["curves"] or not optional.installed("matplotlib"):
        return []
    path = _path(workdir / "artifacts", "curves.png")
    records = metrics.read(workdir / "metrics.jsonl")
    curves(path, records, config["curves"], title(config))
    return [path]
