"""Sentence vectors from a trained skip-thoughts run: scripts/encode.py --workdir RUN < sentences.txt > vectors.npy

One sentence a line in, one row of a NumPy file (sentences, units) float32 out, each of length 1; an empty line gives the
empty sentence's row. Lines are encoded as they come, BLOCK at a time, so the input may be of any size. --word2vec FILE.bin
maps the words of word2vec vectors into the run's table first, so that words the run has never seen mean something.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import BinaryIO

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np

from lnrepro.engine.errors import UserError, ended

BLOCK = 4096  # lines encoded together


def main(argv: list[str]) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workdir", required=True, help="a run of configs/skip_thoughts.py"
    )
    parser.add_argument(
        "--end_token",
        action="store_true",
        help="read the end token too, as for pairs of sentences",
    )
    parser.add_argument(
        "--word2vec", metavar="FILE", help="word vectors in word2vec's binary format"
    )
    args = parser.parse_args(argv)
    if sys.stdin.isatty():
        raise UserError(
            "no sentences: give a file on standard input, python scripts/encode.py --workdir RUN < FILE"
        )
    if sys.stdout.isatty():
        raise UserError(
            "the vectors are a NumPy file: send standard output to one, ... > vectors.npy"
        )
    encode = open_run(pathlib.Path(args.workdir), args.word2vec)
    blocks = read(sys.stdin.buffer)
    first = next(blocks, None)
    if first is None:
        raise UserError("standard input is empty: one sentence a line is needed")
    out = sys.stdout.buffer
    with rewritable(out) as file:
        count = write(file, encode, first, blocks, args.end_token)
    print(f"{count:,} sentences encoded", file=sys.stderr)


def open_run(workdir: pathlib.Path, word2vec: str | None = None):
    """`encode(sentences, end_token=...)` of a run's best checkpoint, or of its last. Raises UserError."""
    path = workdir / "config.json"
    if not path.is_file():
        raise UserError(
            f"--workdir {workdir}: there is no {path}; give the directory of a run"
        )
    from ml_collections import ConfigDict

    try:
        config = ConfigDict(
            _tuples(json.loads(path.read_text(encoding="utf-8"))["config"])
        )
        name = config.experiment
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{path} is not a run's config.json; give the directory of a run"
        ) from None
    if name != "experiments.skip_thoughts":
        raise UserError(
            f"--workdir {workdir} is a run of {name}; sentences are encoded by runs of experiments.skip_thoughts"
        )
    from experiments import skip_thoughts
    from lnrepro.engine import train

    if word2vec:
        config.encoding.word2vec = word2vec
    saved = train.Run(config, workdir).chosen()
    if saved is None:
        raise UserError(f"--workdir {workdir}: there is no checkpoint yet")
    return skip_thoughts.encoder(config, saved.state.params)


def _tuples(value):
    """JSON's lists as the tuples that they were in the config."""
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def read(stream: BinaryIO) -> Iterator[list[str]]:
    """Blocks of lines of UTF-8 text; "\\r\\n" ends a line as "\\n" does. Raises UserError that names the line."""
    block = []
    for number, line in enumerate(stream, 1):
        try:
            block.append(line.rstrip(b"\r\n").decode("utf-8"))
        except UnicodeDecodeError:
            raise UserError(f"standard input, line {number}: not UTF-8 text") from None
        if "\0" in block[-1]:
            raise UserError(
                f"standard input, line {number}: a NUL byte; text is needed"
            )
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


def rewritable(out: BinaryIO):
    """A file that can be written at its beginning again: `out` itself, or a temporary one that is copied to it at the end."""

    @contextlib.contextmanager
    def through_a_file():
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            shutil.copyfileobj(file, out)
            out.flush()

    return contextlib.nullcontext(out) if out.seekable() else through_a_file()


def write(
    file: BinaryIO,
    encode,
    first: list[str],
    blocks: Iterator[list[str]],
    end_token: bool,
) -> int:
    """Encode block by block into a .npy file; how many rows it has is written into its header at the end."""
    start, count, began = file.tell(), 0, time.monotonic()

    def header(units: int) -> None:
        form = {"descr": "<f4", "fortran_order": False, "shape": (count, units)}
        np.lib.format.write_array_header_1_0(file, form)

    block = first
    while block is not None:
        vectors = encode(block, end_token=end_token).astype("<f4")
        if not count:
            header(vectors.shape[1])
        file.write(vectors.tobytes())
        count += len(vectors)
        rate = count / max(time.monotonic() - began, 1e-9)
        print(
            f"\r{count:,} sentences, {rate:,.0f} a second",
            end="",
            file=sys.stderr,
            flush=True,
        )
        block = next(blocks, None)
    print(file=sys.stderr)
    file.seek(start)
    header(vectors.shape[1])
    file.seek(0, 2)
    file.flush()
    return count


if __name__ == "__main__":
    ended(main, "encoding")
