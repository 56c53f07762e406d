"""Write a text in the handwriting that a network has learned.

    python scripts/write_handwriting.py --workdir=RUN --text="..." --out=line.svg

A long text is broken into lines. Other samples, neater or wilder: `write_lines` of
`lnrepro.load(RUN)`.
"""

import pathlib
import textwrap

from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, run_script


def main(argv: list[str]) -> None:
    """Write one text.

    Raises:
      UserError: a wrong flag, or no such run.
    """
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--workdir", required=True, type=pathlib.Path)
    add("--text", required=True, help="what to write")
    add("--out", type=pathlib.Path, default=pathlib.Path("line.svg"))
    args = parser.parse_args(argv)
    if args.out.suffix != ".svg":
        raise UserError(f"--out {args.out}: the name must end in .svg")
    import lnrepro

    run = lnrepro.load(args.workdir, experiment="experiments.handwriting")
    from experiments.handwriting import pictures

    lines = textwrap.wrap(args.text, run.config.model.characters)
    if not lines:
        raise UserError("--text is empty: give the text to write")
    written = run.write_lines(lines, seed=0, bias=1.0)
    svg = pictures.svg([line.strokes for line in written])
    args.out.write_text(svg, encoding="utf-8")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    run_script(main, "writing")
