"""Parser of the .question files of Hermann et al. (2015).

A file contains one cloze question about a news story. Its name is 40 hex digits, it is
text, and its tokens are separated by spaces. Each of the first four parts is one
line, followed by an empty line: address, passage, question with one @placeholder, and
answer. What follows, one line for each entity, is not read:

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

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lnrepro.data.files import decode
from lnrepro.errors import DataError

PLACEHOLDER = "@placeholder"
ENTITY = re.compile(r"@entity(0|[1-9][0-9]{0,4})")
# The folders below questions/, and the splits that they become.
FOLDERS = {"training": "train", "validation": "valid", "test": "test"}
SENTENCE_ENDS = frozenset(".!?")
PARTS = ("address", "passage", "question", "answer")
LINES = 8
# Ranks are stored as uint8.
LARGEST_RANK = 255


class Question(NamedTuple):
    """A parsed file.

    Attributes:
      passage: tokens of the story.
      question: tokens of the question.
      answer: the token that belongs in place of @placeholder.
    """

    passage: list[str]
    question: list[str]
    answer: str


def parse(content: bytes, where: object) -> Question:
    """Parse a .question file.

    Args:
      content: content of the file.
      where: name of the file, for error messages.

    Raises:
      DataError: the content does not have this format. The message begins with the name
        of the file and the number of the line.
    """
    lines = [line.strip() for line in decode(content, where).split("\n")]
    # A missing line is the same as an empty one. What follows the parts is not read.
    lines = [*lines, *[""] * LINES][:LINES]
    # Parts and empty lines alternate.
    for i, line in enumerate(lines):
        part = PARTS[i // 2]
        wanted = f"an empty line after the {part}" if i % 2 else f"the {part}"
        if bool(line) == bool(i % 2):
            raise DataError(f"{where}, line {i + 1}: {wanted} is missing")
    _, passage, question, answer = lines[::2]
    asked = question.split()
    count = asked.count(PLACEHOLDER)
    if count != 1:
        raise DataError(
            f"{where}, line 5: the question has {count} {PLACEHOLDER} tokens instead "
            "of 1"
        )
    if not ENTITY.fullmatch(answer):
        raise DataError(
            f"{where}, line 7: the answer {answer!r:.40} is not of the form @entityN"
        )
    return Question(passage.split(), asked, answer)


def ranks(passage: Sequence[str], question: Sequence[str]) -> np.ndarray:
    """Rank the sentences of a passage by their relevance to a question.

    A sentence ends with ".", "!" or "?", or at the end of the passage. The corpus is
    tokenised: in "mr." the full stop is no token of its own.

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
    is_end = [token in SENTENCE_ENDS for token in passage]
    # Number of the sentence of each token.
    number = np.cumsum([0, *is_end[:-1]])
    pairs = zip(number.tolist(), passage, strict=True)
    scores = np.zeros(number[-1] + 1, int)
    for sentence, token in set(pairs):
        if token in asked:
            scores[sentence] += 1 + token.startswith("@entity")
    # The rank of a sentence is its place in the order of the scores.
    rank = np.argsort(np.argsort(-scores, kind="stable"))
    return np.minimum(rank, LARGEST_RANK).astype(np.uint8)[number]
