"""Pictures and files a run leaves in its artifacts/ folder."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lnrepro.engine import metrics


def write(
    folder: pathlib.Path, values: Mapping[str, Any]
) -> tuple[dict[str, float], list[pathlib.Path]]:
    """Write what an evaluation returned beside numbers; returns the numbers and the paths written.

    uint8 (H, W, 3) becomes NAME.png, uint8 (frames, H, W, 3) an animated NAME.gif, a str a text file NAME (with its own
    suffix, such as .html or .svg), any other array NAME.npy. Raises TypeError for anything else.
    """
    numbers, paths = {}, []
    for name, value in values.items():
        if isinstance(value, str):
            paths.append(_path(folder, name))
            paths[-1].write_text(value, encoding="utf-8")
            continue
        array = np.asarray(value)
        if array.ndim == 0 and array.dtype.kind in "fiu":
            numbers[name] = float(array)
        elif array.dtype == np.uint8 and array.ndim in (3, 4) and array.shape[-1] == 3:
            paths.append(_path(folder, name + (".png" if array.ndim == 3 else ".gif")))
            _picture(paths[-1], array)
        elif array.dtype.kind in "fiub":
            paths.append(_path(folder, name + ".npy"))
            np.save(paths[-1], array)
        else:
            raise TypeError(
                f"evaluate returned {name} of type {type(value).__name__}: not a number, array or str"
            )
    return numbers, paths


def _path(folder: pathlib.Path, name: str) -> pathlib.Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _picture(path: pathlib.Path, array: np.ndarray) -> None:
    from PIL import Image

    if array.ndim == 3:
        Image.fromarray(array).save(path)
    else:
        first, *rest = [Image.fromarray(frame) for frame in array]
        first.save(path, save_all=True, append_images=rest, duration=80, loop=0)


def curves(
    path: pathlib.Path,
    records: Sequence[Mapping[str, Any]],
    panels: Sequence,
    title: str,
) -> None:
    """Draw `panels` = ((label, (metric, ...), "log" or "linear"), ...) against the epoch, one panel each, as a PNG.

    A panel's fourth entry n > 0 draws it against the updates, in units of n of them, on a logarithmic axis.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(
        1,
        len(panels),
        figsize=(5 * len(panels), 3.6),
        squeeze=False,
        layout="constrained",
    )
    for ax, (label, names, scale, *unit) in zip(axes[0], panels, strict=True):
        at = (lambda r, n=unit[0]: r["step"] / n) if unit else (lambda r: r["epoch"])
        for name in names:
            points = [(at(r), r[name]) for r in records if name in r]
            if points:
                ax.plot(
                    *zip(*points, strict=True),
                    label=name,
                    marker="." if len(points) < 40 else None,
                )
        ax.set(
            xlabel=f"updates x {unit[0]}" if unit else "epoch",
            ylabel=label,
            yscale=scale,
        )
        if unit:
            ax.set_xscale("log")
        ax.grid(alpha=0.3)
        if ax.lines:
            ax.legend()
    fig.suptitle(title)
    fig.savefig(path, dpi=120)
    plt.close(fig)


def draw_curves(workdir: pathlib.Path, panels: Sequence, title: str) -> pathlib.Path:
    """`curves` of a run directory's metrics.jsonl, as artifacts/curves.png."""
    path = _path(workdir / "artifacts", "curves.png")
    curves(path, metrics.read(workdir / "metrics.jsonl"), panels, title)
    return path
