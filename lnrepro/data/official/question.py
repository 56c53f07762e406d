"""Cloze questions in the layout of Hermann et al. (2015), one .question file each, and which sentences they are about.

    address            line 1     -- an empty line after each of the first four parts --
    passage            line 3     tokens between blanks, names as @entityN
    question           line 5     the same with one @placeholder
    answer             line 7     @entityN
    @entityN:surface   from line 9 on, one for each entity; may be missing

UTF-8. The file's name is 40 hex digits. Source: generate_questions.py of Hermann et al., "Teaching Machines to Read and
Comprehend".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lnrepro.engine.errors import DataError

PLACEHOLDER = "@placeholder"
ENTITY = re.compile(r"@entity(0|[1-9][0-9]{0,4})")
FOLDERS = {
    "training": "train",
    "validation": "valid",
    "test": "test",
}  # below questions/, and our names of splits
STOPS = frozenset(".!?")
PARTS = ("address", "passage", "question", "answer")
LAST_RANK = 255


class Question(NamedTuple):
    """A parsed file: tokens of passage and question, the answer's token, and what the entities are called."""

    address: str
    passage: list[str]
    question: list[str]
    answer: str
    names: dict[str, str]


def parse(content: bytes, where: object) -> Question:
    """A .question file's content. Raises DataError, beginning with `where` and the line, for anything out of layout."""

    def wrong(line: int, what: str) -> DataError:
        return DataError(f"{where}, line {line}: {what}")

    try:
        lines = [line.rstrip("\r") for line in content.decode("utf-8").split("\n")]
    except UnicodeDecodeError as e:
        line = content.count(b"\n", 0, e.start) + 1
        raise wrong(
            line,
            f"not UTF-8 (the byte {content[e.start]:#04x}); convert or remove the file",
        ) from None
    parts = {}
    for i, name in enumerate(PARTS):
        if len(lines) <= 2 * i or not lines[2 * i].strip():
            raise wrong(2 * i + 1, f"the {name} is missing")
        if len(lines) > 2 * i + 1 and lines[2 * i + 1].strip():
            raise wrong(2 * i + 2, f"not empty, as it must be after the {name}")
        parts[name] = lines[2 * i].strip()
    passage, question, answer = (parts[name].split() for name in PARTS[1:])
    if (found := question.count(PLACEHOLDER)) != 1:
        raise wrong(
            5, f"{found} times {PLACEHOLDER} in the question; there must be one"
        )
    if len(answer) != 1 or not ENTITY.fullmatch(answer[0]):
        raise wrong(7, f"the answer {parts['answer'][:40]!a} is no @entityN")
    names = {}
    for number, line in enumerate(lines[2 * len(PARTS) :], 2 * len(PARTS) + 1):
        entity, colon, name = line.partition(":")
        if line.strip() and not (colon and ENTITY.fullmatch(entity)):
            raise wrong(number, f"{line[:40]!a} is not of the form @entityN:name")
        if colon:
            names[entity] = name
    return Question(parts["address"], passage, question, answer[0], names)


def sentences(passage: Sequence[str]) -> list[slice]:
    """The sentences of a tokenised passage: each ends with its ".", "!" or "?", the last one also without."""
    ends = [i + 1 for i, token in enumerate(passage) if token in STOPS]
    if not ends or ends[-1] < len(passage):
        ends.append(len(passage))
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def ranks(passage: Sequence[str], question: Sequence[str]) -> np.ndarray:
    """How relevant each token's sentence is to the question, (T,) uint8: 0 for the most relevant sentence, 255 at most.

    A sentence's score is the number of the question's different tokens that it holds, entities counted twice; of equal
    ones the earlier is the more relevant. The tokens of rank below 4 are the passage's "top 4" sentences in their order.
    Source: Cooijmans et al. (2016), appendix C, say "string matching procedure" and no more: this is our reading of it.
    """
    asked = set(question)
    found = sentences(passage)
    scores = [
        sum(1 + token.startswith("@entity") for token in asked.intersection(passage[s]))
        for s in found
    ]
    out = np.empty(len(passage), np.uint8)
    for rank, i in enumerate(sorted(range(len(found)), key=lambda i: -scores[i])):
        out[found[i]] = min(rank, LAST_RANK)
    return out
