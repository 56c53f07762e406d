"""Encode sentences as vectors with a trained skip-thoughts network.

    python scripts/encode.py --workdir RUN < sentences.txt > vectors.npy

Standard input has one sentence a line. Standard output is a NumPy file, float32
[sentences, units], with rows of length 1; an empty line gives the row of the empty
sentence. Sentences are encoded in blocks, so that the input may have any size.

With --word2vec FILE.bin, words that the network was not trained on get vectors too:
word2vec's vectors are mapped into the network's word table.
"""

import contextlib
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np

from lnrepro.engine.errors import UserError, ended
from scripts.commands import Parser

# Number of sentences that are encoded together.
BLOCK = 4096


def main(argv: list[str]) -> None:
    """Encode standard input.

    Raises:
      UserError: a wrong flag, no such run, or an input that is not text.
    """
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--workdir",
        required=True,
        type=pathlib.Path,
        help="a run of configs/skip_thoughts.py",
    )
    parser.add_argument(
        "--end_token",
        action="store_true",
        help="also read the end token, as for pairs of sentences",
    )
    parser.add_argument(
        "--word2vec", metavar="FILE", help="word vectors in word2vec's binary format"
    )
    args = parser.parse_args(argv)
    # Without these checks the program would wait for a keyboard, or print bytes to a
    # terminal.
    if sys.stdin.isatty():
        raise UserError(
            "no sentences: give a file on standard input, python scripts/encode.py "
            "--workdir RUN < FILE"
        )
    if sys.stdout.isatty():
        raise UserError(
            "the vectors are a NumPy file: send standard output to one, ... > "
            "vectors.npy"
        )
    encode = open_run(args.workdir, args.word2vec)
    blocks = read(sys.stdin.buffer)
    # The first block is read before anything is written, so that an empty input writes
    # no file.
    first = next(blocks, None)
    if first is None:
        raise UserError("standard input is empty: one sentence a line is needed")
    with rewritable(sys.stdout.buffer) as file:
        count = write(file, encode, first, blocks, args.end_token)
    # stdout belongs to the vectors.
    print(f"{count:,} sentences encoded", file=sys.stderr)


def open_run(
    workdir: pathlib.Path, word2vec: str | None = None
) -> Callable[..., np.ndarray]:
    """Return the encoder of a run.

    Args:
      workdir: the run directory.
      word2vec: a file of word vectors, or None.

    Returns:
      (sentences, end_token=...) -> [sentences, units].

    Raises:
      UserError: there is no such run, or it has no checkpoint.
    """
    from lnrepro.engine import runs

    run = runs.load(workdir, "experiments.skip_thoughts")
    from experiments.skip_thoughts.experiment import encoder

    if word2vec:
        # The encoder of the experiment reads this field.
        run.config.encoding.word2vec = word2vec
    return encoder(run.config, run.vars()["params"], run.facts)


def read(stream: BinaryIO) -> Iterator[list[str]]:
    """Yield blocks of lines of UTF-8 text, which end with LF or CR LF.

    Raises:
      UserError: a line is not text; it is named.
    """
    block = []
    for number, line in enumerate(stream, 1):
        try:
            text = line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"standard input, line {number}: not UTF-8 text") from None
        if "\0" in text:
            raise UserError(
                f"standard input, line {number}: a NUL byte; text is needed"
            )
        block.append(text)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


@contextlib.contextmanager
def rewritable(out: BinaryIO) -> Iterator[BinaryIO]:
    """Yield a file that can be rewound, and whose content goes to `out`.

    A pipe cannot be rewound. Its content is collected in a temporary file.
    """
    if out.seekable():
        yield out
        return
    with tempfile.TemporaryFile() as file:
        yield file
        file.seek(0)
        shutil.copyfileobj(file, out)
        out.flush()


def write(
    file: BinaryIO,
    encode: Callable[..., np.ndarray],
    first: list[str],
    blocks: Iterator[list[str]],
    end_token: bool,
) -> int:
    """Encode blocks of sentences into a .npy file.

    Args:
      file: a file that can be rewound.
      encode: (sentences, end_token=...) -> [sentences, units].
      first: the first block.
      blocks: the other blocks.
      end_token: whether the end token is read.

    Returns:
      The number of sentences.
    """
    start, count, began = file.tell(), 0, time.monotonic()

    def write_header(units):
        form = {"descr": "<f4", "fortran_order": False, "shape": (count, units)}
        np.lib.format.write_array_header_1_0(file, form)

    block = first
    while block is not None:
        vectors = encode(block, end_token=end_token).astype("<f4")
        units = vectors.shape[1]
        if not count:
            # It leaves room for any number of rows, which is known at the end.
            write_header(units)
        file.write(vectors.tobytes())
        count += len(vectors)
        rate = count / max(time.monotonic() - began, 1e-9)
        line = f"\r{count:,} sentences, {rate:,.0f} a second"
        print(line, end="", file=sys.stderr, flush=True)
        block = next(blocks, None)
    print(file=sys.stderr)
    file.seek(start)
    write_header(units)
    # To the end, so that nothing is overwritten by what is written next.
    file.seek(0, 2)
    file.flush()
    return count


if __name__ == "__main__":
    ended(main, "encoding")
