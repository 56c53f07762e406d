"""Embed captions or images with trained order-embeddings.

    python scripts/embed_captions.py --workdir RUN < captions.txt > captions.npy
    python scripts/embed_captions.py --workdir RUN --images features.npy > images.npy

Standard input has one caption a line. features.npy is an array [images, features], made
as those that the run was trained on. `rank` of `lnrepro.load(RUN)` finds the images of
captions.
"""

import pathlib

import lnrepro
from lnrepro.data.files import load_npy
from lnrepro.engine.command_line import Parser
from lnrepro.errors import run_script
from scripts.encode_sentences import read_lines, write_array


def main(argv: list[str]) -> None:
    """Embed captions or images.

    Raises:
      UserError: a wrong flag, no such run, or an input that does not fit it.
    """
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--workdir", required=True, type=pathlib.Path)
    add("--images", type=pathlib.Path, metavar="NPY", help="features to embed")
    args = parser.parse_args(argv)
    run = lnrepro.load(args.workdir, experiment="experiments.order_embeddings")
    if args.images:
        write_array(run.embed_images(load_npy(args.images)))
    else:
        write_array(run.embed_captions(read_lines()))


if __name__ == "__main__":
    run_script(main, "embedding")
