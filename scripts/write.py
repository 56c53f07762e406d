"""Write a text in the hand of a trained synthesis network: python scripts/write.py --workdir=runs/... --text="..." --out=line.svg

    --bias=1.0                  0 is the density itself, larger values are neater
    --style=a01-000u-01         go on in the style of this line of the data set (its id, see --styles)
    --lines=40                  break the text into lines of at most so many characters
    --density=heat.png          where the next point was expected;  --alignment=window.png  which character was written when

--out ends in .svg or .png. Characters that are none of the 57 symbols are written as "other", and named.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from lnrepro.engine.errors import UserError, ended  # noqa: E402

LONGEST = 1000  # characters


def main(argv: list[str]) -> None:
    """Write one text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workdir", required=True, type=pathlib.Path, help="the run's directory"
    )
    parser.add_argument("--text", help="what to write")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("line.svg"),
        help="a .svg or .png file",
    )
    parser.add_argument("--bias", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps",
        type=int,
        default=0,
        help="pen steps of a line at most; 40 a character by default",
    )
    parser.add_argument(
        "--lines", type=int, default=0, metavar="N", help="characters of a line at most"
    )
    parser.add_argument(
        "--style", metavar="ID", help="id of a line of the data set to write like"
    )
    parser.add_argument(
        "--styles",
        action="store_true",
        help="list some ids of the data set and their texts",
    )
    parser.add_argument("--density", type=pathlib.Path, metavar="PNG")
    parser.add_argument("--alignment", type=pathlib.Path, metavar="PNG")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best")
    args = parser.parse_args(argv)
    config = run_config(args.workdir)
    if args.styles:
        for name, text in styles(config):
            print(f"{name}  {text}")
        return
    lines = broken(args.text, args.lines or config.model.characters)
    for path in filter(None, (args.out, args.density, args.alignment)):
        if path.suffix not in ((".svg", ".png") if path == args.out else (".png",)):
            raise UserError(
                f"{path}: the name must end in .png{' or .svg' if path == args.out else ''}"
            )
        if not path.absolute().parent.is_dir():
            raise UserError(f"{path}: there is no folder {path.parent}")
    if not 0 <= args.bias <= 20:
        raise UserError(f"--bias={args.bias}: it must lie between 0 and 20")
    if args.steps < 0:
        raise UserError(f"--steps={args.steps}: at least 1 is needed")
    draw(args, config, lines)


def run_config(folder: pathlib.Path):
    """The config of a run, which must be one of this experiment."""
    from ml_collections import ConfigDict

    try:
        config = ConfigDict(
            json.loads((folder / "config.json").read_text(encoding="utf-8"))["config"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"--workdir={folder} holds no run; train one: python -m lnrepro.main --config=configs/handwriting.py"
        ) from None
    if config.experiment != "experiments.handwriting":
        raise UserError(
            f"--workdir={folder} holds a run of {config.experiment}, not of experiments.handwriting"
        )
    return config


def broken(text: str | None, width: int) -> list[str]:
    """A text as lines of at most `width` characters, broken between words. Raises UserError for one that cannot be written."""
    if not text or not text.strip():
        raise UserError("--text is empty: give the text to write")
    if len(text) > LONGEST:
        raise UserError(
            f"--text has {len(text):,} characters: at most {LONGEST:,} are written at once"
        )
    if width < 1:
        raise UserError(f"--lines={width}: at least 1 is needed")
    return [line for part in text.splitlines() for line in textwrap.wrap(part, width)]


def styles(config, count: int = 20) -> list[tuple[str, str]]:
    """Ids and texts of some lines of the test set."""
    from lnrepro import data

    columns = data.open_columns(config.data.name, "valid", config.data.dir)
    rows = range(0, len(columns["id"]), max(1, len(columns["id"]) // count))
    return [
        (bytes(columns["id"][i]).decode(), bytes(columns["transcription"][i]).decode())
        for i in rows
    ]


def find_style(config, name: str):
    """The line of an id, as a Style."""
    from experiments.handwriting import open_lines
    from experiments.handwriting.writing import Style
    from lnrepro import data

    wanted = name.encode()
    for split in ("valid", "train"):
        ids = data.open_columns(config.data.name, split, config.data.dir)["id"]
        for i in (i for i in range(len(ids)) if len(ids[i]) == len(wanted)):
            if bytes(ids[i]) == wanted:
                lines = open_lines(config, split)
                return Style(lines.normalised(lines.strokes[i]), lines.texts[i])
    raise UserError(
        f"--style={name}: {config.data.name} has no line of this id; --styles lists some"
    )


def draw(args: argparse.Namespace, config, lines: list[str]) -> None:
    """Load the network, write the lines, and save the pictures."""
    import jax
    from PIL import Image

    from experiments.handwriting import Network, open_lines, pictures
    from experiments.handwriting.writing import write
    from lnrepro.data.official.iam_ondb import encode

    network = Network(config)
    encoded = [encode(line) for line in lines]
    if others := sorted({c for _, unknown in encoded for c in unknown}):
        print(
            f"not among the 57 symbols, written as 'other': {' '.join(others)}",
            file=sys.stderr,
        )
    params = load(config, args.workdir, args.checkpoint)
    data = open_lines(config, "valid")
    style = find_style(config, args.style) if args.style else None
    steps = args.steps or 40 * max(map(len, lines)) + 50
    key = jax.random.key(args.seed)
    made = write(
        network,
        params,
        [t for t, _ in encoded],
        key,
        bias=args.bias,
        steps=steps,
        style=style,
    )
    strokes = [pictures.strokes_of(data.original(w.steps), w.lifted) for w in made]
    for line, w in zip(lines, made, strict=True):
        if not w.ended:
            print(
                f"{line!r} was not finished within {steps} steps; try --bias=1, --steps, or train longer",
                file=sys.stderr,
            )
    if args.out.suffix == ".svg":
        args.out.write_text(pictures.svg(strokes), encoding="utf-8")
    else:
        Image.fromarray(pictures.page(strokes)).save(args.out)
    if args.density:
        Image.fromarray(pictures.density(made[0], data)).save(args.density)
    if args.alignment:
        Image.fromarray(pictures.aligned(strokes[0], made[0].phi, lines[0])).save(
            args.alignment
        )
    print(
        f"wrote {', '.join(str(p) for p in (args.out, args.density, args.alignment) if p)}"
    )


def load(config, folder: pathlib.Path, name: str):
    """The parameters of a run's checkpoint: of the best, or the last where no best is kept."""
    from lnrepro.engine.train import Run

    run = Run(config, folder)
    try:
        like = run.initial()
        saved = (
            run.store.restore(name, like) if name == "best" else None
        ) or run.store.restore("last", like)
    finally:
        run.store.close()
    if saved is None:
        raise UserError(f"--workdir={folder} has no checkpoint yet")
    return run.placement.vars(run.placement.place(saved.state)).vars["params"]


if __name__ == "__main__":
    ended(main, "writing")
