"""Write the measured numbers and the tables of the pages, from the kept records.

    python -m scripts.paper.pages

rewrites the sections "written by scripts.paper.pages: NAME" of the pages, the numbers
that `scripts.paper.numbers` finds in their sentences, and the pictures of cells and of
PPO.
"""

import pathlib
from collections.abc import Iterator

from lnrepro.engine import json_files
from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, run_script
from scripts.benches import bars
from scripts.benches import tables as benchmarks
from scripts.paper import numbers, ppo, settings, tables, verdicts
from scripts.paper.claims import PILOT
from scripts.paper.protocols import TUNED
from scripts.paper.records import find

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments/results"
DOCS = ROOT / "docs"


def written() -> Iterator[tuple[pathlib.Path, str]]:
    """Yield every page that has something written, and its text.

    Raises:
      UserError: a page without the lines of a section, or a number without a record.
    """
    # The pilot, and the seeds of the plan as far as they are trained.
    runs = find([RESULTS / "small", RESULTS / "fresh"])
    found = verdicts.answers(runs)
    answered = tables.answered(runs, found)
    answers = {}
    for place, row in enumerate(answered, 1):
        share = row["number"].partition(" (")[0]
        answers[f"question-{place}"] = row | {"share": share}
    names = "README.md", "experiments/README.md"
    paths = [*(ROOT / name for name in names), *DOCS.rglob("*.md")]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    for name, section, text in sections(runs, found, answered):
        path = ROOT / name
        texts[path] = with_section(path, texts[path], section, text)
    for path, text in texts.items():
        yield path, numbers.written(text, answers)


def sections(runs, found, answered) -> Iterator[tuple[str, str, str]]:
    """Yield the name of the page, the name and the text of each section.

    Args:
      runs: those of the pilot and of the plan.
      found: the answers to the plan's questions.
      answered: the same as text.
    """
    yield "README.md", "answers", tables.groups(found[TUNED])
    pilot = [run for run in runs if run.config.seed in PILOT]
    yield "experiments/README.md", "answers", tables.answers(answered)
    yield "experiments/README.md", "claims", tables.claims(pilot)
    yield "docs/reproduce.md", "plan", tables.plan()
    yield "docs/reproduce.md", "settings", settings.table()
    yield "docs/training.md", "defaults", tables.defaults()
    for name in ("digits", "mnist_pixels"):
        text = tables.ends_of("train/nll", find([RESULTS / name]), 1)
        yield "docs/experiments/sequential-mnist.md", f"{name} train/nll", text
    yield "docs/should-i-normalise.md", "ppo", ppo.table()
    long = find([RESULTS / "runs"])
    page = "docs/experiments/order-embeddings.md"
    yield page, "table 2", tables.order_embeddings(long)
    page = "docs/experiments/skip-thoughts.md"
    yield page, "table 3", tables.skip_thoughts(long)
    for name, section, text in benchmarks.sections():
        yield f"docs/{name}", section, text


def with_section(path: pathlib.Path, page: str, name: str, text: str) -> str:
    """Return the text of a page with another text in a section.

    Args:
      path: where the page is, for the error.
      page: its text.
      name: that of the section.
      text: the new text of the section.

    Raises:
      UserError: the page has no such section.
    """
    begin = f"<!-- written by scripts.paper.pages: {name} -->\n"
    before, found, after = page.partition(begin)
    if not found:
        raise UserError(f"{path}: there is no line {begin.strip()}")
    _, end, after = after.partition("<!-- end -->")
    return "".join([before, begin, "\n", text.strip("\n"), "\n\n", end, after])


def main(argv: list[str]) -> None:
    """Rewrite the pages.

    Raises:
      UserError: a wrong flag, a page without the lines of a section, or a number
        without a record.
    """
    parser = Parser(prog="python -m scripts.paper.pages", description=__doc__)
    parser.parse_args(argv)
    for path, text in written():
        if text != path.read_text(encoding="utf-8"):
            json_files.replace(path, text)
    bars.draw(bars.PICTURE)
    ppo.draw()


if __name__ == "__main__":
    run_script(main, "writing pages")
