"""Encode sentences as vectors with a trained skip-thoughts network.

    python scripts/encode_sentences.py --workdir RUN < sentences.txt > vectors.npy

Standard input has one sentence a line. Standard output is a NumPy file, float32
[sentences, units], with rows of length 1; an empty line gives the row of the empty
sentence. Sentences are encoded in blocks, so that the input may have any size.

With --word2vec FILE.bin, words that the network was not trained on get vectors too:
word2vec's vectors are mapped into the network's word table.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import pathlib
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from lnrepro.data import files
from lnrepro.engine import inputs
from lnrepro.engine.command_line import Parser, print_warning
from lnrepro.errors import UserError, ended

if TYPE_CHECKING:
    from experiments.skip_thoughts.use import Model

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
        "--word2vec",
        metavar="FILE",
        help="word vectors in word2vec's binary or text format",
    )
    args = parser.parse_args(argv)
    warnings.showwarning = print_warning
    refuse_terminal_input("sentence", "encode_sentences.py")
    refuse_terminal_output()
    run = open_run(args.workdir)
    encoder = run.encoder(args.word2vec)
    blocks = read_input("sentence")
    encode = functools.partial(encoder, end_token=args.end_token)
    with rewritable(sys.stdout.buffer) as file:
        count = write(file, encode, blocks)
    # stdout belongs to the vectors.
    share = encoder.words.unknown / max(encoder.words_read, 1)
    print(
        f"{count:,} sentences encoded; {share:.1%} of {encoder.words_read:,} words are "
        "not in the vocabulary",
        file=sys.stderr,
    )


def open_run(workdir: pathlib.Path) -> Model:
    """Open a run of skip-thoughts.

    Args:
      workdir: the run directory.

    Raises:
      UserError: there is no such run.
    """
    import lnrepro

    return lnrepro.load(workdir, experiment="experiments.skip_thoughts")


def refuse_terminal_input(what: str, script: str) -> None:
    """Raise UserError where a script would wait for a keyboard.

    Args:
      what: what a line is.
      script: name of the script.
    """
    if sys.stdin.isatty():
        raise UserError(
            f"no {what}s: give a file on standard input, python scripts/{script} "
            "--workdir RUN < FILE"
        )


def refuse_terminal_output() -> None:
    """Raise UserError where the bytes of vectors would go to a terminal."""
    if sys.stdout.isatty():
        raise UserError(
            "the vectors are a NumPy file: send standard output to one, ... > "
            "vectors.npy"
        )


def read_input(what: str) -> Iterator[list[str]]:
    """Return the blocks of standard input, of which the first has been read.

    Nothing has been written then, so that an empty input writes no file.

    Args:
      what: what a line is.

    Raises:
      UserError: the input is empty, or no text.
    """
    blocks = read(sys.stdin.buffer)
    first = next(blocks, None)
    if first is None:
        raise UserError(f"standard input is empty: one {what} a line is needed")
    return itertools.chain([first], blocks)


def read(stream: io.BufferedReader | io.BytesIO) -> Iterator[list[str]]:
    """Yield blocks of lines of text, which end with LF or CR LF.

    Warns of lines that are not UTF-8.

    Raises:
      UserError: it is not text. The line is named.
    """
    block = []
    # read1 returns what is there, so that a line of a pipe need not wait for others.
    pieces = iter(functools.partial(stream.read1, files.BLOCK), b"")
    for _, text in files.decode_blocks(pieces, "standard input"):
        for line in text.removesuffix("\n").split("\n"):
            block.append(line.removesuffix("\r"))
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
        start = out.tell()
        try:
            yield out
        except BaseException:
            # Half of a file would look like a whole one.
            out.seek(start)
            out.truncate()
            raise
        return
    with tempfile.TemporaryFile() as file:
        yield file
        file.seek(0)
        shutil.copyfileobj(file, out)
        out.flush()


def write(
    file: BinaryIO,
    encode: Callable[[list[str]], np.ndarray],
    blocks: Iterable[list[str]],
) -> int:
    """Encode blocks of sentences into a .npy file.

    Args:
      file: a file that can be rewound.
      encode: sentences -> [sentences, units].
      blocks: one block or more.

    Returns:
      The number of sentences.

    Raises:
      UserError: a vector is not finite.
    """
    start, count, began = file.tell(), 0, time.monotonic()

    def write_header(units):
        form = {"descr": "<f4", "fortran_order": False, "shape": (count, units)}
        np.lib.format.write_array_header_1_0(file, form)

    for block in blocks:
        what = f"vectors of the lines after {count:,}"
        vectors = inputs.finite(encode(block), what, inputs.BROKEN).astype("<f4")
        units = vectors.shape[1]
        if not count:
            # It leaves room for any number of rows, which is known at the end.
            write_header(units)
        file.write(vectors.tobytes())
        count += len(vectors)
        rate = count / max(time.monotonic() - began, 1e-9)
        line = f"\r{count:,} sentences, {rate:,.0f} a second"
        print(line, end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    file.seek(start)
    write_header(units)
    # To the end, so that nothing is overwritten by what is written next.
    file.seek(0, 2)
    file.flush()
    return count


if __name__ == "__main__":
    ended(main, "encoding")
