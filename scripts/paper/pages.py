"""Write the measured numbers and the tables of the pages, from the kept records.

    python -m scripts.paper.pages

writes the pictures of cells and of PPO, and what stands between these comments:

    <!-- written by scripts.paper.pages: NAME -->table<!-- end -->
    <!--h100-cells-lstm:time,_ours_LN_/_Flax_LN-->0.46<!--/-->

The second one names a record and a key, with `_` for each space. A record is a file of
docs/benchmarks without its date, and the key is one of its ratios, which gets as many
decimals as stand there. `question-1` stands for the answer to the first question of the
plan. Its keys are word, number, seeds, p, end and at_one_rate.
"""

import pathlib
import re
from collections.abc import Iterator, Mapping

from lnrepro.engine import json_files
from lnrepro.engine.command_line import Parser
from lnrepro.errors import run_script
from scripts.benches import bars, records
from scripts.benches import tables as benchmarks
from scripts.paper import ROOT, ends, ppo, settings, tables, verdicts
from scripts.paper.claims import CLAIMS, PILOT
from scripts.paper.protocols import TUNED
from scripts.paper.records import find

RESULTS = ROOT / "experiments/results"
DOCS = ROOT / "docs"
SECTION = re.compile(
    r"(<!-- written by scripts\.paper\.pages: ([^\n]+) -->\n).*?(<!-- end -->)", re.S
)
NUMBER = re.compile(r"<!--([\w-]+):([^\s>]+)-->(.*?)<!--/-->", re.S)


def pages() -> Iterator[tuple[pathlib.Path, str]]:
    """Yield every page, and its text as the records write it.

    Raises:
      UserError: a comment names a record that does not exist.
      KeyError: a comment names a table or a key that does not exist.
    """
    # The pilot, and the seeds of the plan as far as they are trained.
    runs = find([RESULTS / "small", RESULTS / "fresh"])
    found = verdicts.answers(runs)
    answered = tables.answered(runs, found)
    answers = {f"question-{i}": answer for i, answer in enumerate(answered, 1)}
    texts = _tables(runs, found, answered)
    readmes = ROOT / "README.md", ROOT / "experiments/README.md"
    for path in [*readmes, *DOCS.rglob("*.md")]:
        own = texts.get(path.relative_to(ROOT).as_posix(), {})
        yield path, written(path.read_text(encoding="utf-8"), own, answers)


def _tables(runs, found, answered) -> dict[str, dict[str, str]]:
    """Return {page: {name: table}}.

    Args:
      runs: those of the pilot and of the plan.
      found: the answers to the plan's questions.
      answered: the same as text.
    """
    pilot = [run for run in runs if run.seed in PILOT]
    long = find([RESULTS / "runs"])
    order, skip = (tables.beside_the_paper(number, long) for number in tables.TABLES)
    of_pixels = {}
    for name in ("digits", "mnist_pixels"):
        own = find([RESULTS / name])
        of_pixels[f"{name} train/nll"] = ends.of_metric("train/nll", own, 1)
    return {
        **benchmarks.sections(),
        "README.md": {"answers": tables.groups(found[TUNED])},
        "experiments/README.md": {
            "answers": tables.answers(answered),
            "claims": tables.claims(verdicts.of_runs(pilot, CLAIMS)),
        },
        "docs/reproduce.md": {"plan": tables.plan(), "settings": settings.table()},
        "docs/training.md": {"defaults": tables.defaults()},
        "docs/should-i-normalise.md": {"ppo": ppo.table()},
        "docs/experiments/sequential-mnist.md": of_pixels,
        "docs/experiments/order-embeddings.md": {"table 2": order},
        "docs/experiments/skip-thoughts.md": {"table 3": skip},
    }


def written(
    text: str, tables: Mapping[str, str], answers: Mapping[str, Mapping[str, str]]
) -> str:
    """Return the text of a page with the tables and the numbers of the records.

    Args:
      text: the page.
      tables: {name: table} of the page.
      answers: those to the questions of the plan, {question-N: {key: text}}.

    Raises:
      UserError: a comment names a record that does not exist.
      KeyError: a comment names a table or a key that does not exist.
    """

    def table(match):
        begin, name, end = match.groups()
        return f"{begin}\n{tables[name].strip()}\n\n{end}"

    def number(match):
        record, key, shown = match.groups()
        source = answers.get(record) or records.kept(record)["ratios"]
        value = source[key.replace("_", " ")]
        # A ratio gets as many decimals as the number that it replaces.
        if not isinstance(value, str):
            value = f"{value:.{len(shown.partition('.')[2])}f}"
        return f"<!--{record}:{key}-->{value}<!--/-->"

    return NUMBER.sub(number, SECTION.sub(table, text))


def main(argv: list[str]) -> None:
    """Rewrite the pages.

    Raises:
      UserError: a wrong flag, or a comment that names a record that does not exist.
      KeyError: a comment names a table or a key that does not exist.
    """
    parser = Parser(prog="python -m scripts.paper.pages", description=__doc__)
    parser.parse_args(argv)
    for path, text in pages():
        if text != path.read_text(encoding="utf-8"):
            json_files.replace(path, text)
    bars.draw()
    ppo.draw()


if __name__ == "__main__":
    run_script(main, "writing pages")
