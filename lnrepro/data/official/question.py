"""Parser of the .question files of Hermann et al. (2015).

A file contains one cloze question about a news story. Its name is 40 hex digits, it is
text, and its tokens are separated by spaces. Each of the first four parts is one
line, followed by an empty line: address, passage, question with one @placeholder, and
answer. The last part has one line for each entity and may be missing:

    http://example.org/story/1

    @entity1 met @entity2 in a park . they fed 3 ducks .

    @placeholder was in a park with @entity2

    @entity1

    @entity1:Ada
    @entity2:Charles

References:
    Hermann et al. (2015), Teaching Machines to Read and Comprehend, and its program
    generate_questions.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lnrepro.data.encodings import decode
from lnrepro.errors import DataError

PLACEHOLDER = "@placeholder"
ENTITY = re.compile(r"@entity(0|[1-9][0-9]{0,4})")
# The folders below questions/, and the splits that they become.
FOLDERS = {"training": "train", "validation": "valid", "test": "test"}
SENTENCE_ENDS = frozenset(".!?")
PARTS = ("address", "passage", "question", "answer")
# Ranks are stored as uint8.
LARGEST_RANK = 255


class Question(NamedTuple):
    """A parsed file.

    Attributes:
      address: web address of the story.
      passage: tokens of the story.
      question: tokens of the question.
      answer: the token that belongs in place of @placeholder.
      names: the original text of each entity.
    """

    address: str
    passage: list[str]
    question: list[str]
    answer: str
    names: dict[str, str]


def parse(content: bytes, where: object, notes: Counter[str] | None = None) -> Question:
    """Parse a .question file.

    Args:
      content: content of the file.
      where: name of the file, for error messages.
      notes: what is odd in the text is counted here.

    Raises:
      DataError: the content does not have this format. The message begins with the name
        of the file and the number of the line.
    """

    def error(line: int, problem: str) -> DataError:
        return DataError(f"{where}, line {line}: {problem}")

    lines = [line.rstrip("\r") for line in decode(content, where, notes).split("\n")]
    # A missing line is the same as an empty one.
    lines += [""] * (2 * len(PARTS))
    texts = []
    for i, part in enumerate(PARTS):
        text, after = lines[2 * i].strip(), lines[2 * i + 1].strip()
        if not text:
            raise error(2 * i + 1, f"the {part} is missing")
        if after:
            raise error(2 * i + 2, f"the line after the {part} must be empty")
        texts.append(text)
    address, passage, question, answer = texts
    passage, question = passage.split(), question.split()
    # Messages name the line of the part: parts and empty lines alternate.
    count = question.count(PLACEHOLDER)
    if count != 1:
        raise error(5, f"the question has {count} {PLACEHOLDER} tokens instead of 1")
    if not ENTITY.fullmatch(answer):
        raise error(7, f"the answer {answer[:40]!a} is not of the form @entityN")
    names = {}
    # The names are not used for training, but a wrong line means a damaged file.
    for number, line in enumerate(lines[2 * len(PARTS) :], 2 * len(PARTS) + 1):
        if not line.strip():
            continue
        entity, colon, name = line.partition(":")
        if not (colon and ENTITY.fullmatch(entity)):
            raise error(number, f"{line[:40]!a} is not of the form @entityN:name")
        names[entity] = name
    return Question(address, passage, question, answer, names)


def sentences(passage: Sequence[str]) -> list[slice]:
    """Return where the sentences of a tokenised passage are.

    A sentence ends with ".", "!" or "?", or at the end of the passage.
    """
    # The corpus is tokenised: in "mr." the full stop is no token of its own.
    ends = [i for i, token in enumerate(passage, 1) if token in SENTENCE_ENDS]
    if not ends or ends[-1] < len(passage):
        ends.append(len(passage))
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def ranks(passage: Sequence[str], question: Sequence[str]) -> np.ndarray:
    """Rank the sentences of a passage by their relevance to a question.

    The score of a sentence is the number of different tokens of the question that it
    contains. Entities count twice. Of two sentences with the same score, the earlier
    one is more relevant. The tokens of rank 0 to 3 are the "top 4" sentences.

    Cooijmans et al. (2016), appendix C, only mention a "string matching procedure".
    This score is an interpretation of it.

    Args:
      passage: tokens of the passage.
      question: tokens of the question.

    Returns:
      The rank of the sentence of each token, [T] uint8. The most relevant sentence has
      rank 0. Ranks above 255 become 255.
    """
    asked = set(question)
    spans = sentences(passage)
    scores = []
    for span in spans:
        shared = asked.intersection(passage[span])
        scores.append(sum(1 + token.startswith("@entity") for token in shared))
    out = np.empty(len(passage), np.uint8)
    for rank, i in enumerate(np.argsort(np.negative(scores), kind="stable")):
        out[spans[i]] = min(rank, LARGEST_RANK)
    return out
