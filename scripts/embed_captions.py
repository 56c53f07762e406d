"""Embed captions and images with trained order-embeddings, and find images by captions.

    python scripts/embed_captions.py --workdir RUN < captions.txt > captions.npy
    python scripts/embed_captions.py --workdir RUN --images features.npy > images.npy
    python scripts/embed_captions.py --workdir RUN --find images.npy < captions.txt

Standard input has one caption a line. features.npy is an array [images, features], made
as those that the run was trained on. With --find, the output has a line for each
caption, with the numbers of the five best images, counted from 0.
"""

import pathlib

from lnrepro.data.files import load_npy
from lnrepro.engine.command_line import Parser
from lnrepro.errors import ended

BEST = 5


def main(argv: list[str]) -> None:
    """Embed captions or images.

    Raises:
      UserError: a wrong flag, no such run, or an input that does not fit it.
    """
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--workdir", required=True, type=pathlib.Path)
    add("--images", type=pathlib.Path, metavar="NPY", help="features to embed")
    add("--find", type=pathlib.Path, metavar="NPY", help="embedded images to find")
    args = parser.parse_args(argv)
    # Imported late: `ended` looks first whether these are of this checkout.
    import lnrepro
    from scripts.encode_sentences import read_lines, write_array

    captions = [] if args.images else read_lines()

    run = lnrepro.load(args.workdir, experiment="experiments.order_embeddings")
    if args.images:
        write_array(run.embed_images(load_npy(args.images)))
        return
    vectors = run.embed_captions(captions)
    if not args.find:
        write_array(vectors)
        return
    for ranks in run.rank(vectors, load_npy(args.find)):
        print(*ranks[:BEST], sep="\t")


if __name__ == "__main__":
    ended(main, "embedding")
