"""Measured numbers in the sentences of pages, written from their records.

    <!--h100-cells-lstm:time,_ours_LN_/_Flax_LN-->0.46<!--/-->

A comment names the record and the key, with `_` for each space; what it shows ends at
the next `<!--/-->`. A record is a file of docs/benchmarks without its date, and the key
is one of its ratios, which gets as many decimals as stand there. `question-1` stands
for the answer to the first question of the plan. Its keys are word, share, number, p
and end.
"""

import re
from collections.abc import Mapping

from lnrepro.errors import UserError
from scripts.benches import records

MARKED = re.compile(r"<!--([\w-]+):([^\s>]+)-->(.*?)<!--/-->", re.S)
# {question-N: {key: text}}.
Answers = Mapping[str, Mapping[str, str]]


def written(text: str, answers: Answers) -> str:
    """Return the text of a page with the numbers of the records.

    Args:
      text: the page.
      answers: those to the questions of the plan.

    Raises:
      UserError: a comment names a record or a key that does not exist.
    """

    def number(match):
        record, key, shown = match.groups()
        name = key.replace("_", " ")
        source = answers.get(record) or records.kept(record)["ratios"]
        if name not in source:
            raise UserError(f"{match[0]}: {record} has no {name!r}")
        value = source[name]
        if not isinstance(value, str):
            value = f"{value:.{len(shown.partition('.')[2])}f}"
        return f"<!--{record}:{key}-->{value}<!--/-->"

    return MARKED.sub(number, text)


def bare(text: str) -> str:
    """Return the text of a page without the numbers and tables that are written."""
    tables = r"<!-- written by scripts\.paper\.pages: .*?<!-- end -->"
    return re.sub(tables, "", MARKED.sub("", text), flags=re.S)
