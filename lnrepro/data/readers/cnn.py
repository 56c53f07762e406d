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
              sentences", and "left out", always 0
    left_out  always empty: a malformed file is refused. The fingerprints of kept runs
              contain it
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import BYTES, INDEX, INDICES, Content, Reader
from lnrepro.data.readers.question import (
    ENTITY,
    FOLDERS,
    PLACEHOLDER,
    Question,
    parse,
    ranks,
)
from lnrepro.data.text import numbering
from lnrepro.errors import DataError

PADDING, UNKNOWN, NUMBER = "<pad>", "<unk>", "<num>"
FIRST_ENTITY = 1
FILE = re.compile(r".+\.question")


class Example(NamedTuple):
    """A question, with preliminary word ids; see the module."""

    passage: np.ndarray
    rank: np.ndarray
    question: np.ndarray
    answer: int


def example(found: Question, rank: np.ndarray, words: dict[str, int]) -> Example:
    """Return a question with the ids of its words.

    Args:
      found: the question.
      rank: the rank of the sentence of each token of the passage.
      words: the preliminary id of each word. New words get the next ones.
    """
    passage = np.array([words[token] for token in found.passage], np.int32)
    question = np.array([words[token] for token in found.question], np.int32)
    return Example(passage, rank, question, words[found.answer])


def read(raw: RawFolder) -> Content:
    """Read questions/{training,validation,test}/*.question."""
    return encode(raw.tree("questions", ("questions", "cnn"), FILE.fullmatch), raw)


def encode(files: Iterable[tuple[str, bytes]], raw: RawFolder) -> Content:
    """Parse questions and choose the vocabulary.

    Args:
      files: the path below questions/ and the content of each file, in any order.
      raw: the folder, for messages and progress.

    Raises:
      DataError: a split is missing, or a file is malformed.
    """
    waiting = []
    for name, content in files:
        # The folder says the split. Other folders would be left out without a word.
        folder = name.rpartition("/")[0]
        if folder not in FOLDERS:
            raise DataError(
                f"{raw.folder / 'questions' / name[:80]}: the files must be in "
                f"questions/{{{','.join(FOLDERS)}}}/"
            )
        # Sorted by split, address and name. Numbers in an address are compared as
        # numbers.
        address = content[:1000].partition(b"\n")[0]
        padded = re.sub(rb"[0-9]+", lambda number: number[0].zfill(20), address)
        waiting.append((list(FOLDERS).index(folder), padded, name, content))
    # From the last to the first, because each content is dropped when it is parsed.
    waiting.sort(reverse=True)
    total = len(waiting)
    words, counts = numbering(), Counter()
    splits = {split: [] for split in FOLDERS.values()}
    while waiting:
        number, _, name, content = waiting.pop()
        split = list(splits)[number]
        raw.progress("reading questions", total - len(waiting), total)
        found = parse(content, raw.folder / "questions" / name)
        rank = ranks(found.passage, found.question)
        splits[split].append(example(found, rank, words))
        if split == "train":
            counts.update([*found.passage, *found.question])
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
    # The special tokens come first. The words that occur at least twice in the training
    # split follow by frequency, except for numbers. This is the rule of the authors'
    # scripts, commit 94f7398. Words of the same frequency follow by first appearance.
    others = [PLACEHOLDER, UNKNOWN, NUMBER]
    excluded = {PADDING, *others, *entities}
    for token, count in counts.most_common():
        if count > 1 and token not in excluded and not token.isdigit():
            others.append(token)
    return content_of(splits, words, entities, others)


def content_of(
    splits: Mapping[str, Sequence[Example]],
    words: Mapping[str, int],
    entities: Sequence[str],
    others: Sequence[str],
) -> Content:
    """Replace the preliminary ids of the examples by the final ones.

    Args:
      splits: the examples.
      words: preliminary id of each word.
      entities: entities in the order of their final ids, after that of padding.
      others: the other words that get an id, after the entities.
    """
    tokens = [PADDING, *entities, *others]
    ids = {token: i for i, token in enumerate(tokens)}
    # Preliminary ids are in the order of first appearance. One table maps all examples.
    final = np.empty(len(words), np.int32)
    for token, i in words.items():
        final[i] = ids.get(read_as(token, ids), 0)
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
            "left out": 0,
        }
    facts = {
        "words": tokens,
        "entities": len(entities),
        "counts": counts,
        "left_out": [],
    }
    return Content(columns, facts)


def read_as(token: str, ids: Container[str]) -> str:
    """Return the word as which a token is read: itself, if it has an id."""
    if token in ids:
        return token
    return NUMBER if token.isdigit() else UNKNOWN


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
