"""Write a text in the handwriting that a network has learned.

    python scripts/write_handwriting.py --workdir=RUN --text="..." --out=line.svg

    --bias=1.0              0 samples from the density itself; larger values are neater
    --style=a01-000u-01     continue the line of the data set with this id; see --styles
    --lines=40              break the text into lines of at most this many characters
    --density=heat.png      draw where the next point was expected
    --alignment=window.png  draw which character was written when

--out ends in .svg or .png. A character that is not one of the 57 symbols is written as
"other" and named on stderr.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import textwrap
from typing import TYPE_CHECKING

from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, ended

if TYPE_CHECKING:
    from experiments.handwriting.use import Model
    from experiments.handwriting.writing import Style

# The only experiment whose runs are accepted: a config.json may name any module.
EXPERIMENT = "experiments.handwriting"


def main(argv: list[str]) -> None:
    """Write one text.

    Raises:
      UserError: a wrong flag, or no such run.
    """
    args = _arguments(argv)
    import lnrepro

    run = lnrepro.load(args.workdir, checkpoint=args.checkpoint, experiment=EXPERIMENT)
    if args.styles:
        for name, text in styles(run):
            print(f"{name}  {text}")
        return
    # The window was trained on texts of at most this many characters.
    width = run.config.model.characters if args.lines is None else args.lines
    lines = break_lines(args.text, width)
    # These flags are checked before the network is loaded, and `Model.write_lines`
    # checks the others.
    _check_picture(args.out, (".png", ".svg"))
    for path in (args.density, args.alignment):
        if path:
            _check_picture(path, (".png",))
    draw(args, run, lines)


def _arguments(argv):
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--workdir", required=True, type=pathlib.Path, help="the run directory")
    add("--text", help="what to write")
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("line.svg"),
        help="an .svg or .png file",
    )
    add("--bias", type=float, default=1.0)
    add("--seed", type=int, default=0)
    add(
        "--steps",
        type=int,
        help="largest number of pen steps in a line; 40 for each character by default",
    )
    add("--lines", type=int, metavar="N", help="largest number of characters in a line")
    add("--style", metavar="ID", help="id of a line of the data set to continue")
    add(
        "--styles",
        action="store_true",
        help="list some ids of the data set and their texts",
    )
    add("--density", type=pathlib.Path, metavar="PNG")
    add("--alignment", type=pathlib.Path, metavar="PNG")
    add("--checkpoint", choices=("best", "last"), default="best")
    return parser.parse_args(argv)


def _check_picture(path, suffixes):
    """Raise UserError where a picture cannot be written."""
    if path.suffix not in suffixes:
        raise UserError(f"{path}: the name must end in {' or '.join(suffixes)}")
    if not path.absolute().parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}")


def break_lines(text: str | None, width: int) -> list[str]:
    """Break a text between words into lines.

    Args:
      text: the text.
      width: the largest number of characters in a line.

    Raises:
      UserError: the text is empty or too long, or the width is below 1.
    """
    from experiments.handwriting.use import MAX_CHARACTERS

    if not text or not text.strip():
        raise UserError("--text is empty: give the text to write")
    if len(text) > MAX_CHARACTERS:
        raise UserError(
            f"--text has {len(text):,} characters: at most {MAX_CHARACTERS:,} are "
            "written at once"
        )
    if width < 1:
        raise UserError(f"--lines={width}: at least 1 is needed")
    lines = []
    # Line breaks of the text are kept.
    for paragraph in text.splitlines():
        lines += textwrap.wrap(paragraph, width)
    return lines


def styles(run: Model) -> list[tuple[str, str]]:
    """Return ids and texts of about 20 lines of the validation set.

    Args:
      run: the run; the data must be the set that it was trained on.

    Raises:
      UserError: the data here is another.
    """
    from lnrepro import data

    _check_data(run)
    spec = run.config.data
    columns = data.open_columns(spec.name, "valid", spec.dir)
    ids, texts = columns["id"], columns["transcription"]
    # Evenly spaced over the set.
    rows = range(0, len(ids), max(1, len(ids) // 20))
    return [(bytes(ids[i]).decode(), bytes(texts[i]).decode()) for i in rows]


def _check_data(run):
    """Check that the data set here is the one that the run was trained on."""
    from lnrepro import data

    spec, there = run.config.data, run.about["data"]["fingerprint"]
    fingerprint = data.fingerprint(spec.name, spec.dir)
    if fingerprint != there:
        raise UserError(
            f"{run.folder} was trained on {there}, but the data set here is "
            f"{fingerprint}; name the folder of the right one with LNREPRO_DATA"
        )


def find_style(run: Model, name: str) -> Style:
    """Find a line of the data set.

    Args:
      run: the run; the data must be the set that it was trained on.
      name: the id of the line.

    Raises:
      UserError: there is no such line, or other data.
    """
    from experiments.handwriting.data import open_lines
    from experiments.handwriting.writing import Style
    from lnrepro import data

    _check_data(run)
    config, wanted = run.config, name.encode()
    for split in ("valid", "train"):
        # Styles are usually taken from the validation set, which --styles lists.
        ids = data.open_columns(config.data.name, split, config.data.dir)["id"]
        for i in range(len(ids)):
            if bytes(ids[i]) == wanted:
                lines = open_lines(config, split)
                return Style(lines.normalise(lines.strokes[i]), lines.texts[i])
    raise UserError(
        f"--style={name}: {config.data.name} has no line of this id; --styles lists "
        "some"
    )


def draw(args: argparse.Namespace, run: Model, lines: list[str]) -> None:
    """Write the lines with the network of a run, and save the pictures.

    Args:
      args: the flags.
      run: the run.
      lines: the text.
    """
    from PIL import Image

    from experiments.handwriting import pictures

    written = run.write_lines(
        lines,
        args.seed,
        bias=args.bias,
        steps=args.steps,
        style=find_style(run, args.style) if args.style else None,
    )
    other = sorted({c for line in written for c in line.other})
    if other:
        _say(run.describe_other(other))
    for line in written:
        if not line.written.ended:
            _say(
                f"{line.text!r} was not finished within {len(line.written.steps)} "
                "steps; try --bias=1, --steps, or train longer"
            )
    strokes = [line.strokes for line in written]
    if args.out.suffix == ".svg":
        args.out.write_text(pictures.svg(strokes), encoding="utf-8")
    else:
        Image.fromarray(pictures.page(strokes)).save(args.out)
    paths = [args.out]
    # Both show the first line of the text only.
    first = written[0]
    if args.density:
        Image.fromarray(pictures.density(first.written, run.scale)).save(args.density)
        paths.append(args.density)
    if args.alignment:
        alignment = pictures.alignment(first.strokes, first.written.phi, first.text)
        Image.fromarray(alignment).save(args.alignment)
        paths.append(args.alignment)
    print(f"wrote {', '.join(str(path) for path in paths)}")


def _say(line):
    print(line, file=sys.stderr)


if __name__ == "__main__":
    ended(main, "writing")
