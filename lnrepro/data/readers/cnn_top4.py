"""CNN questions in the pickles of Cooijmans et al. (2016).

Each passage has been reduced to four sentences. dict.pkl maps words to numbers. The
other pickles are lists with one list of numbers per question. Passages and questions
end with one extra number, which is dropped:

    dict.pkl         {"the": 1, "@entity5": 2, "slept": 3, ".": 4, "@placeholder": 5}
    train4_pass.pkl  [[1, 2, 3, 4, 0], [2, 3, 4, 0], ...]
    train4_qs.pkl    [[5, 3, 0], [5, 3, 4, 0], ...]
    train4_ans.pkl   [[2], [2], ...]
    valid4_pass.pkl, valid4_qs.pkl, valid4_ans.pkl

An example has the features of lnrepro/data/readers/cnn.py. This is the only module of
the package that imports pickle.
"""

import io
import pickle
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

from lnrepro.data.files import AGAIN
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Content, Reader
from lnrepro.data.readers.cnn import COLUMNS, content_of, entity_number, example
from lnrepro.data.readers.question import ENTITY, Question
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
    table, where = load(raw, "dict.pkl"), raw.path("dict.pkl")
    word_of = {}
    for word, n in table.items() if isinstance(table, dict) else ():
        if type(n) is int and type(word) is str:
            word_of[n] = unicodedata.normalize("NFC", word)
    if not word_of or len(word_of) < len(table):
        raise DataError(
            f"{where}: not a dict of words and their numbers, all of them different; "
            f"{AGAIN}"
        )
    # The words follow by first appearance, and then as in the dict.
    words = numbering()
    splits = {"train": [], "valid": []}
    for split, examples in splits.items():
        files = {"pass": -1, "qs": -1, "ans": None}
        lists = [
            _texts(raw, f"{split}4_{file}.pkl", word_of, end)
            for file, end in files.items()
        ]
        if len({len(texts) for texts in lists}) > 1:
            raise DataError(
                f"{raw.folder}: {split}4_pass, _qs and _ans.pkl contain different "
                f"numbers of questions; {AGAIN}s"
            )
        for i, (passage, question, answer) in enumerate(zip(*lists, strict=True)):
            if len(answer) > 1 or not ENTITY.fullmatch(answer[0]):
                raise DataError(
                    f"{raw.path(f'{split}4_ans.pkl')}, list {i}: not the number of an "
                    f"entity; {AGAIN}"
                )
            # The four sentences were chosen by the authors, so all of them have the
            # best rank.
            rank = np.zeros(len(passage), np.uint8)
            found = Question(passage, question, answer[0])
            examples.append(example(found, rank, words))
    for word in word_of.values():
        words.setdefault(word, len(words))
    entities = sorted(filter(ENTITY.fullmatch, words), key=entity_number)
    others = [word for word in words if not ENTITY.fullmatch(word)]
    return content_of(splits, words, entities, others)


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler that refuses to import anything.

    A pickle is a program for a stack machine, which can import and call any function.
    """

    def find_class(self, module: str, name: str) -> None:
        raise pickle.UnpicklingError(
            f"it names {module}.{name}, and may contain plain data only"
        )


def load(raw: RawFolder, name: str) -> Any:
    """Load a pickle of lists, dicts, numbers and text.

    Byte strings of Python 2 are decoded as UTF-8.

    Args:
      raw: the folder.
      name: the file.

    Raises:
      DataError: the pickle is damaged or names a class or a function, which is not
        called.
    """
    content = io.BytesIO(raw.read(name))
    try:
        return _PlainUnpickler(content, encoding="utf-8").load()
    # A damaged pickle can raise any error.
    except Exception as e:
        raise DataError(
            f"{raw.path(name)}: not a plain pickle ({e!r:.80}); {AGAIN}"
        ) from e


def _texts(
    raw: RawFolder, name: str, word_of: Mapping[int, str], end: int | None
) -> list[list[str]]:
    """Read a pickle of lists of lists of numbers.

    Args:
      raw: the folder.
      name: name of the file.
      word_of: the word of each number.
      end: end of the numbers of a list that are used; -1 leaves out the last one.

    Returns:
      The words of each list.

    Raises:
      DataError: the pickle holds anything else, or a list is empty.
    """
    found = []
    try:
        for numbers in load(raw, name):
            words = [word_of[number] for number in numbers[:end]]
            # An empty list is an IndexError.
            _ = words[0]
            found.append(words)
    except (TypeError, LookupError) as e:
        raise DataError(
            f"{raw.path(name)}, list {len(found)}: not a list of numbers of dict.pkl "
            f"({e!r:.80}); {AGAIN}"
        ) from e
    return found


CNN_TOP4 = Reader(
    title="CNN questions with four sentences each, prepared by Cooijmans et al. (2016)",
    read=read,
    configs=("configs/attentive_reader.py",),
    source="http://www.cs.toronto.edu/~rkiros/top4.zip",
    licence="the stories are CNN's; the questions by Hermann et al. (2015)",
    size="380,298 train, 3,924 valid; 130 MB prepared",
    columns=COLUMNS,
    files=dict.fromkeys(FILES),
    # Hermann et al. (2015), Table 1.
    published={"train": 380_298, "valid": 3_924},
)
