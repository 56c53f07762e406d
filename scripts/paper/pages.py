"""Write the tables that the pages show, from the kept records and the configs.

    python -m scripts.paper.pages

rewrites the sections "written by scripts.paper.pages: NAME" of the pages.
"""

import pathlib
from collections.abc import Iterator

from lnrepro.engine import json_files
from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, ended
from scripts.paper import settings, tables
from scripts.paper.claims import PILOT
from scripts.paper.records import find

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments/results"


def sections() -> Iterator[tuple[pathlib.Path, str, str]]:
    """Yield page, name and text of each section."""
    # The pilot, and the seeds of the plan as far as they are trained.
    kept = [RESULTS / "small", RESULTS / "fresh"]
    runs = find([folder for folder in kept if folder.exists()])
    pilot = [run for run in runs if run.config.seed in PILOT]
    page = ROOT / "experiments/README.md"
    yield page, "answers", tables.answers(runs)
    yield page, "claims", tables.claims(pilot)
    yield page, "ends", tables.tuned(pilot)
    yield ROOT / "docs/reproduce.md", "plan", tables.plan()
    yield ROOT / "docs/reproduce.md", "settings", settings.table()
    yield ROOT / "docs/training.md", "defaults", tables.defaults()
    page = ROOT / "docs/experiments/sequential-mnist.md"
    digits, pixels = find([RESULTS / "digits"]), find([RESULTS / "mnist_pixels"])
    yield page, "digits train/nll", tables.ends_of("train/nll", digits, 1)
    for metric in ("train/nll", "test/error"):
        yield page, f"mnist_pixels {metric}", tables.ends_of(metric, pixels, 1)


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


def main(argv: list[str]) -> None:
    """Rewrite the sections.

    Raises:
      UserError: a wrong flag, or a page without the lines of a section.
    """
    parser = Parser(prog="python -m scripts.paper.pages", description=__doc__)
    parser.parse_args(argv)
    for page, name, text in sections():
        json_files.replace(page, with_section(page, name, text))


if __name__ == "__main__":
    ended(main, "writing pages")
