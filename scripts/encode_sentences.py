"""Encode sentences as vectors with a trained skip-thoughts network.

    python scripts/encode_sentences.py --workdir RUN < sentences.txt > vectors.npy

Standard input has one sentence a line. Standard output is a NumPy file, float32
[sentences, units], with rows of length 1. More: `encode` of `lnrepro.load(RUN)`.
"""

import io
import pathlib
import sys

import numpy as np

from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, run_script


def main(argv: list[str]) -> None:
    """Encode standard input.

    Raises:
      UserError: a wrong flag, no such run, or an input that is not text.
    """
    parser = Parser(description=__doc__)
    parser.add_argument("--workdir", required=True, type=pathlib.Path)
    args = parser.parse_args(argv)
    sentences = read_lines()
    import lnrepro

    run = lnrepro.load(args.workdir, experiment="experiments.skip_thoughts")
    write_array(run.encode(sentences))


def read_lines() -> list[str]:
    """Return the lines of standard input.

    Raises:
      UserError: it is a terminal, empty, or no text.
    """
    from lnrepro.data import files

    text = "" if sys.stdin.isatty() else sys.stdin.buffer.read()
    if not text:
        raise UserError("give a file on standard input, ... --workdir RUN < FILE")
    text = files.decode(text, "standard input")
    return text.removesuffix("\n").replace("\r\n", "\n").split("\n")


def write_array(vectors: np.ndarray) -> None:
    """Write a NumPy file to standard output, which may be a pipe."""
    file = io.BytesIO()
    np.save(file, vectors)
    sys.stdout.buffer.write(file.getvalue())
    sys.stdout.flush()


if __name__ == "__main__":
    run_script(main, "encoding")
