"""Write the numbers and pictures that the pages show, from the kept records.

    python -m scripts.paper.pages

rewrites the sections "written by scripts.paper.pages: NAME" of the pages, and the
pictures, points and tables of experiments/results and docs/pictures.
"""

import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from lnrepro.engine import json_files
from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, ended
from scripts import figures
from scripts.paper import curves, tables, verdicts
from scripts.paper.claims import CLAIMS
from scripts.paper.records import find

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments/results"
PICTURES = ROOT / "docs/pictures"


def sections() -> Iterator[tuple[pathlib.Path, str, str]]:
    """Yield page, name and text of each section."""
    runs = find([RESULTS / "small"])
    rows = verdicts.of_runs(runs, CLAIMS)
    page = ROOT / "experiments/README.md"
    yield page, "claims", verdicts.markdown(rows)
    yield page, "ends", tables.tuned(runs)
    page = ROOT / "docs/experiments/sequential-mnist.md"
    digits, pixels = find([RESULTS / "digits"]), find([RESULTS / "mnist_pixels"])
    yield page, "digits train/nll", tables.ends("train/nll", digits, "min")
    for metric in ("train/nll", "test/error"):
        yield page, f"mnist_pixels {metric}", tables.ends(metric, pixels, "min")


def with_section(page: pathlib.Path, name: str, text: str) -> str:
    """Return the text of a page with another text in a section.

    Raises:
      UserError: the page has no such section.
    """
    begin = f"<!-- written by scripts.paper.pages: {name} -->\n"
    before, found, after = page.read_text(encoding="utf-8").partition(begin)
    if not found:
        raise UserError(f"{page}: there is no line {begin.strip()}")
    _, end, after = after.partition("<!-- end -->")
    return "".join([before, begin, "\n", text.strip("\n"), "\n\n", end, after])


def draw(out: pathlib.Path) -> None:
    """Draw all kept pictures below a folder that stands for the root."""
    results = out / RESULTS.relative_to(ROOT)
    pictures = out / PICTURES.relative_to(ROOT)
    pictures.mkdir(parents=True)
    figures.draw_all(find([RESULTS / "small"]), results / "small/figures")
    figures.draw_all(find([RESULTS / "runs"]), results / "figures")
    pixels = find([RESULTS / "mnist_pixels"])
    figure = curves.of_metric("train/nll", pixels)
    curves.draw(figure, pixels, pictures / "mnist_pixels")


def main(argv: list[str]) -> None:
    """Rewrite the sections, and the kept files that are drawn.

    Raises:
      UserError: a wrong flag, or a page without the lines of a section.
    """
    parser = Parser(prog="python -m scripts.paper.pages", description=__doc__)
    parser.parse_args(argv)
    for page, name, text in sections():
        json_files.replace(page, with_section(page, name, text))
    with tempfile.TemporaryDirectory() as folder:
        draw(pathlib.Path(folder))
        for path in pathlib.Path(folder).rglob("*.*"):
            # Only what the repository has already is kept.
            kept = ROOT / path.relative_to(folder)
            if kept.exists():
                shutil.copy(path, kept)


if __name__ == "__main__":
    ended(main, "writing pages")
