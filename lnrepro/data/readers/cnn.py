"""CNN corpus of Hermann et al. (2015), and own questions in its format.

question.py shows a file. Questions are sorted by the addresses of their stories, so
that a folder and an archive give the same set.

An example has these features, for T tokens in the passage and S in the question:

    passage   [T] int32: word ids
    rank      [T] uint8: relevance of the token's sentence. `rank < 4` selects the four
              most relevant sentences, see `question.ranks`.
    question  [S] int32: word ids
    answer    [] int32: word id

Id 0 is padding, the next ids are the entities, and the other words follow by frequency.
`SetFolder.facts` contains:

    words     the word of each id
    entities  number of entities
    counts    for each split: "questions", "answer not in passage", "answer not in four
              sentences", and "left out", the number of malformed files
    left_out  error messages of the first ten malformed files
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import BYTES, INDEX, INDICES, Content, Reader, leave_out
from lnrepro.data.readers.question import (
    ENTITY,
    FOLDERS,
    PLACEHOLDER,
    parse,
    ranks,
)
from lnrepro.data.text import numbering
from lnrepro.errors import DataError

PADDING, UNKNOWN, NUMBER = "<pad>", "<unk>", "<num>"
FIRST_ENTITY = 1


class File(NamedTuple):
    """A file with a question.

    Attributes:
      split: its split.
      name: its name.
      content: its content.
    """

    split: str
    name: str
    content: bytes


class Example(NamedTuple):
    """A question, with preliminary word ids; see the module."""

    passage: np.ndarray
    rank: np.ndarray
    question: np.ndarray
    answer: int


def read(raw: RawFolder) -> Content:
    """Read questions/{training,validation,test}/*.question."""
    return encode(_files(raw), raw)


def _files(raw: RawFolder) -> Iterator[File]:
    tree = raw.tree("questions", ("questions", "cnn"), ".question")
    for name, content in tree:
        # The folder says the split. Other folders would be left out without a word.
        folder = name.rpartition("/")[0]
        if folder not in FOLDERS:
            raise DataError(
                f"{raw.folder / 'questions' / name[:80]}: the files must be in "
                f"questions/{{{','.join(FOLDERS)}}}/"
            )
        yield File(FOLDERS[folder], f"questions/{name}", content)


def encode(files: Iterable[File], raw: RawFolder) -> Content:
    """Parse questions and choose the vocabulary.

    Args:
      files: the files, in any order.
      raw: the folder, for messages and progress.

    Raises:
      DataError: a split is missing, or too many files are malformed.
    """
    # From the last to the first, because each content is dropped when it is parsed.
    waiting = sorted(files, key=_order, reverse=True)
    total = len(waiting)
    words = numbering()
    splits = {split: [] for split in FOLDERS.values()}
    malformed = {split: [] for split in splits}
    while waiting:
        split, name, content = waiting.pop()
        raw.progress("reading questions", total - len(waiting), total)
        try:
            passage, question, answer = parse(content, name)
        except DataError as e:
            malformed[split].append(str(e))
            continue
        splits[split].append(
            Example(
                np.array([words[token] for token in passage], np.int32),
                ranks(passage, question),
                np.array([words[token] for token in question], np.int32),
                words[answer],
            )
        )
    errors = list(itertools.chain.from_iterable(malformed.values()))
    leave_out(raw.folder, "malformed questions", errors, total)
    if not splits["train"] or not splits["valid"]:
        raise DataError(
            f"{raw.folder}: there must be files in questions/training and "
            "questions/validation"
        )
    if not splits["test"]:
        del splits["test"]
    # All entities up to the largest number get an id, also those that do not occur: the
    # entities are renamed at random in training.
    largest = max(map(entity_number, filter(ENTITY.fullmatch, words)))
    entities = [f"@entity{n}" for n in range(largest + 1)]
    # The vocabulary is that of the training questions. Test words outside of it are
    # unknown.
    others = _frequent_words(words, splits["train"])
    return content_of(splits, words, entities, others, malformed)


def _order(file: File) -> tuple[int, bytes, str]:
    """Return the key to sort files by: split, address and name.

    Numbers in an address are compared as numbers.
    """
    address = file.content[:1000].partition(b"\n")[0]
    padded = re.sub(rb"[0-9]+", lambda number: number[0].zfill(20), address)
    return list(FOLDERS.values()).index(file.split), padded, file.name


def content_of(
    splits: Mapping[str, Sequence[Example]],
    words: Mapping[str, int],
    entities: Sequence[str],
    others: Sequence[str],
    malformed: Mapping[str, Sequence[str]],
) -> Content:
    """Replace the preliminary ids of the examples by the final ones.

    Args:
      splits: the examples.
      words: preliminary id of each word.
      entities: entities in the order of their final ids, after that of padding.
      others: the other words that get an id, after the entities.
      malformed: error messages of the malformed files of each split.
    """
    tokens = [PADDING, *entities, *others]
    ids = {token: i for i, token in enumerate(tokens)}
    # Preliminary ids are in the order of first appearance. One table maps all examples.
    final = np.empty(len(words), np.int32)
    for token, i in words.items():
        default = NUMBER if token.isdigit() else UNKNOWN
        final[i] = ids.get(token, ids.get(default, 0))
    columns, counts = {}, {}
    for split, examples in splits.items():
        columns[split] = {
            "passage": [final[e.passage] for e in examples],
            "rank": [e.rank for e in examples],
            "question": [final[e.question] for e in examples],
            "answer": final[[e.answer for e in examples]],
        }
        # The sentences of the answer. A rank of 0 to 3 is a sentence that
        # `config.data.sentences` = 4 keeps.
        found = [e.rank[e.passage == e.answer] for e in examples]
        counts[split] = {
            "questions": len(examples),
            "answer not in passage": sum(not len(rank) for rank in found),
            "answer not in four sentences": sum(not (rank < 4).any() for rank in found),
            "left out": len(malformed[split]),
        }
    facts = {
        "words": tokens,
        "entities": len(entities),
        "counts": counts,
        "left_out": list(itertools.chain.from_iterable(malformed.values()))[:10],
    }
    return Content(columns, facts)


def _frequent_words(words: Mapping[str, int], train: Sequence[Example]) -> list[str]:
    """Return the words that get their own id, without the entities.

    The special tokens come first. The words that occur at least twice in the training
    split follow by frequency, except for numbers. This is the rule of the authors'
    scripts, commit 94f7398.
    """
    # Answers are entities, which have ids anyway.
    parts = itertools.chain.from_iterable((e.passage, e.question) for e in train)
    counts = np.bincount(np.concatenate(list(parts)), minlength=len(words))
    chosen = [PLACEHOLDER, UNKNOWN, NUMBER]
    excluded = {PADDING, *chosen}
    tokens = list(words)
    # A stable sort leaves words of the same frequency in the order of appearance, so
    # that ids do not depend on the NumPy version.
    for i in np.argsort(-counts, kind="stable"):
        token = tokens[i]
        special = token in excluded or token.isdigit() or ENTITY.fullmatch(token)
        if counts[i] > 1 and not special:
            chosen.append(token)
    return chosen


def entity_number(token: str) -> int:
    """Return N of "@entityN"."""
    return int(token.removeprefix("@entity"))


# Ranks are stored as bytes.
COLUMNS = {"passage": INDICES, "rank": BYTES, "question": INDICES, "answer": INDEX}
CNN = Reader(
    title="CNN news stories and cloze questions about them, with anonymised entities",
    read=read,
    configs=("configs/attentive_reader.py",),
    source=(
        "https://cs.nyu.edu/~kcho/DMQA/ "
        "(K. Cho's copy of K. M. Hermann et al.'s corpus)"
    ),
    licence="the stories are CNN's; the questions by Hermann et al. (2015)",
    size="380,298 train, 3,924 valid, 3,198 test; about 1.5 GB prepared",
    # A folder, or an archive such as questions.tar or cnn.tgz.
    columns=COLUMNS,
    files={"questions": None},
    # Hermann et al. (2015), Table 1.
    published={"train": 380_298, "valid": 3_924, "test": 3_198},
)
