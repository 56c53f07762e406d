"""Embed captions and images with trained order-embeddings, and find images by captions.

    python scripts/embed_captions.py --workdir RUN < captions.txt > captions.npy
    python scripts/embed_captions.py --workdir RUN --images features.npy > images.npy
    python scripts/embed_captions.py --workdir RUN --find images.npy < captions.txt

Standard input has one caption a line. features.npy is an array [images, features], made
as those that the run was trained on. Standard output is a NumPy file, float32 [captions
or images, dimensions].

With --find, which takes the embedded images, it is text instead: for each caption a
line with the numbers of the best images, counted from 0, separated by tabs.
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np

from lnrepro.data.files import check_finite, load_npy
from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, ended
from scripts.encode_sentences import (
    read_input,
    refuse_terminal_input,
    refuse_terminal_output,
    rewritable,
    write,
)


def main(argv: list[str]) -> None:
    """Embed captions or images.

    Raises:
      UserError: a wrong flag, no such run, or an input that does not fit it.
    """
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--workdir",
        required=True,
        type=pathlib.Path,
        help="a run of configs/order_embeddings.py",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--images", metavar="NPY", help="features of images to embed")
    what.add_argument("--find", metavar="NPY", help="embedded images to find")
    parser.add_argument(
        "--best", type=int, default=5, help="images found for a caption"
    )
    args = parser.parse_args(argv)
    if args.best < 1:
        raise UserError(f"--best={args.best}: at least 1 is needed")
    if not args.images:
        refuse_terminal_input("caption", "embed_captions.py")
    if not args.find:
        refuse_terminal_output()
    import lnrepro

    run = lnrepro.load(args.workdir, experiment="experiments.order_embeddings")
    if args.images:
        vectors = run.embed_images(open_array(args.images))
        with rewritable(sys.stdout.buffer) as file:
            np.lib.format.write_array(file, vectors)
        print(f"{len(vectors):,} images embedded", file=sys.stderr)
        return
    blocks = read_input("caption")
    if not args.find:
        with rewritable(sys.stdout.buffer) as file:
            count = write(file, run.embed_captions, blocks)
        print(f"{count:,} captions embedded", file=sys.stderr)
        return
    images = open_array(args.find)
    for block in blocks:
        for best in run.rank(run.embed_captions(block), images)[:, : args.best]:
            print(*best, sep="\t")


def open_array(path: str) -> np.ndarray:
    """Open a .npy file of finite numbers [N, ...].

    Raises:
      UserError: it is no such file.
    """
    found = load_npy(pathlib.Path(path))
    if found.dtype.kind not in "biuf" or not found.ndim:
        raise UserError(f"{path}: not a .npy file of numbers [images, ...]")
    check_finite(found, path)
    return found


if __name__ == "__main__":
    ended(main, "embedding")
