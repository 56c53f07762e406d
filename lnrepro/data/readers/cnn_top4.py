"""CNN questions in the pickles of Cooijmans et al. (2016).

Each passage has been reduced to four sentences. dict.pkl maps words to numbers. The
other pickles are lists with one list of numbers per question. Passages and questions
end with one extra number, which is dropped:

    dict.pkl         {"the": 1, "@entity5": 2, "slept": 3, ".": 4, "@placeholder": 5}
    train4_pass.pkl  [[1, 2, 3, 4, 0], [2, 3, 4, 0], ...]
    train4_qs.pkl    [[5, 3, 0], [5, 3, 4, 0], ...]
    train4_ans.pkl   [[2], [2], ...]
    valid4_pass.pkl, valid4_qs.pkl, valid4_ans.pkl

An example has the features of lnrepro/data/readers/cnn.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lnrepro.data.files import quoted
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Content, Reader
from lnrepro.data.readers import plain_pickle
from lnrepro.data.readers.cnn import content_of, entity_number, example
from lnrepro.data.readers.question import ENTITY
from lnrepro.data.text import numbering
from lnrepro.errors import DataError

FILES = (
    "dict.pkl",
    "train4_pass.pkl",
    "train4_qs.pkl",
    "train4_ans.pkl",
    "valid4_pass.pkl",
    "valid4_qs.pkl",
    "valid4_ans.pkl",
)


def read(raw: RawFolder) -> Content:
    """Read the pickles. Nothing in them is executed."""
    where = raw.path("dict.pkl")
    table = plain_pickle.load(raw.read("dict.pkl"), where)
    # Words of the passages are numbers here. They are turned back into words, so that
    # the rest is the same as for text files.
    word_of = {}
    if isinstance(table, dict):
        word_of = {n: w for w, n in table.items() if type(n) is int and type(w) is str}
    if not word_of or len(word_of) < len(table):
        raise DataError(
            f"{where}: not a dict of words and their numbers, all of them different; "
            "get the official file"
        )
    words, splits = numbering(), {"train": [], "valid": []}
    for split, examples in splits.items():
        passages = _word_lists(raw, f"{split}4_pass.pkl", word_of, -1)
        questions = _word_lists(raw, f"{split}4_qs.pkl", word_of, -1)
        answers = _word_lists(raw, f"{split}4_ans.pkl", word_of, None)
        if not len(passages) == len(questions) == len(answers):
            raise DataError(
                f"{raw.folder}: {split}4_pass, _qs and _ans.pkl contain different "
                "numbers of questions; get the official files"
            )
        rows = zip(passages, questions, answers, strict=True)
        for i, (passage, question, answer) in enumerate(rows):
            if len(answer) > 1 or not ENTITY.fullmatch(answer[0]):
                where = raw.path(f"{split}4_ans.pkl")
                raise DataError(
                    f"{where}, list {i}: {quoted(' '.join(answer))} is not an entity; "
                    "get the official file"
                )
            # The four sentences were chosen by the authors, so all of them have the
            # best rank.
            rank = np.zeros(len(passage), np.uint8)
            examples.append(example(words, passage, question, answer[0], rank))
    # Words of the dictionary that do not occur also get an id.
    for word in table:
        words[word]
    entities = sorted(filter(ENTITY.fullmatch, words), key=entity_number)
    others = [word for word in words if not ENTITY.fullmatch(word)]
    return content_of(splits, words, entities, others, dict.fromkeys(splits, ()))


def _word_lists(
    raw: RawFolder, name: str, word_of: Mapping[int, str], end: int | None
) -> list[list[str]]:
    """Read a pickle of lists of lists of numbers.

    Args:
      raw: the folder.
      name: name of the file.
      word_of: the word of each number.
      end: end of the numbers of a list that are used; -1 leaves out the last one.

    Raises:
      DataError: the pickle holds anything else, or a list is empty.
    """
    where = raw.path(name)
    lists = plain_pickle.load(raw.read(name), where)
    found = []
    try:
        for numbers in lists:
            found.append([word_of[number] for number in numbers[:end]])
            # An empty list is an IndexError.
            found[-1][0]
    except (TypeError, LookupError) as e:
        raise DataError(
            f"{where}, list {len(found)}: not a list of numbers of dict.pkl "
            f"({quoted(repr(e))}); get the official file"
        ) from e
    return found


CNN_TOP4 = Reader(
    title="CNN questions with four sentences each, prepared by Cooijmans et al. (2016)",
    read=read,
    configs=("configs/attentive_reader.py",),
    source="http://www.cs.toronto.edu/~rkiros/top4.zip",
    licence="the stories are CNN's; the questions by Hermann et al. (2015)",
    size="380,298 train, 3,924 valid; 130 MB prepared",
    files=dict.fromkeys(FILES),
    # Hermann et al. (2015), Table 1.
    published={"train": 380_298, "valid": 3_924},
)
