"""Make the two moving pictures of README.md from embedded data.

    python scripts/readme_pictures.py

trains the defaults of DRAW and of handwriting, some minutes on two cores, and writes
docs/pictures/draw.gif and docs/pictures/handwriting.svg. Runs that have ended are used
as they are.
"""

import pathlib
import subprocess
import sys

from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, ended

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
TEXT = "layer normalization"
COLOURS = 24


def main(argv: list[str]) -> None:
    """Train both networks, and write the pictures.

    Raises:
      UserError: a wrong flag, or a program that failed.
    """
    parser = Parser(description=__doc__)
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs/readme")
    runs = parser.parse_args(argv).runs.resolve()
    for name in ("draw", "handwriting"):
        flags = [f"--config=configs/{name}.py", f"--workdir={runs / name}"]
        _python("-m", "lnrepro.main", *flags)
    shrink(runs / "draw/artifacts/samples_over_glimpses.gif", PICTURES / "draw.gif")
    flags = [f"--workdir={runs / 'handwriting'}", f"--text={TEXT}"]
    out = f"--out={PICTURES / 'handwriting.svg'}"
    _python("scripts/write_handwriting.py", *flags, out)


def shrink(animation: pathlib.Path, out: pathlib.Path) -> None:
    """Write an animation of DRAW, half as large and fast, without its caption.

    Args:
      animation: the GIF of a run: a caption of any height above 2 x 8 images.
      out: the GIF to write.
    """
    import numpy as np
    from PIL import Image, ImageSequence

    from experiments.draw.pictures import ZOOM

    frames = []
    durations = []
    with Image.open(animation) as whole:
        rows = 2 * (28 * ZOOM + 1) + 1
        picture = (0, whole.height - rows, whole.width, whole.height)
        size = (whole.width // 2, rows // 2)
        for frame in ImageSequence.Iterator(whole):
            image = frame.convert("RGB").crop(picture)
            frames.append(image.resize(size, Image.Resampling.BOX))
            durations.append(2 * frame.info["duration"])
    # One palette for all frames, without dithering, makes a small file.
    all_pixels = np.concatenate([np.asarray(frame) for frame in frames])
    palette = Image.fromarray(all_pixels).quantize(COLOURS)
    first, *others = (
        frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames
    )
    first.save(out, save_all=True, append_images=others, duration=durations, loop=0)


def _python(*arguments):
    code = subprocess.run([sys.executable, *arguments], cwd=ROOT).returncode
    if code:
        raise UserError(f"python {' '.join(arguments)} ended with exit code {code}")


if __name__ == "__main__":
    ended(main, "making the pictures")
