"""Questions about news stories: the CNN corpus of Hermann et al. (2015), and sets in its layout that stand in for it.

`cnn`: the official .question files. `cnn_top4`: the pickles of Cooijmans et al. (2016), each story cut to four
sentences already. `gutenberg_cloze`: questions over novels, NOT the paper's data. `news_stories`: generated stories,
embedded (news.py). Results on one compare with nothing but results on the same one.

An example is {"passage": (T,) int32, "rank": (T,) uint8, "question": (S,) int32, "answer": () int32}: word ids; `rank` is how
relevant the token's sentence is to the question (question.py), so `rank < 4` picks the four best. Ids are 0 for padding,
1 to E for the entities, then the other words by frequency. `data.facts` gives
  words: the word of every id, V of them        entities: E
  counts: per split, {"questions", "answer not in passage", "answer not in four sentences", "left out"}
  left_out: up to ten reasons why files were.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.official import plain_pickle
from lnrepro.data.official.question import (
    ENTITY,
    FOLDERS,
    PLACEHOLDER,
    Question,
    parse,
    ranks,
)
from lnrepro.data.raw import Raw, RawFile
from lnrepro.engine.errors import DataError

FILE_LIMIT = (
    1 << 20
)  # bytes of one .question; the longest official passages have 2,000 tokens
PADDING, UNKNOWN, NUMBER = "<pad>", "<unk>", "<num>"
FIRST_ENTITY = 1
LEFT_OUT = 0.01  # the share of files out of layout beyond which the set is refused


class Cnn(Builder):
    """CNN questions: news stories with their entities anonymised, and a sentence of the summary with one of them left out."""

    source = "https://cs.nyu.edu/~kcho/DMQA/ (K. Cho's copy of K. M. Hermann et al.'s corpus)"
    licence = "the stories are CNN's; the questions by Hermann et al. (2015)"
    size = "380,298 train, 3,924 valid, 3,198 test; about 1.5 GB prepared"
    files = (
        RawFile("questions"),
    )  # a folder, or packed as questions.tar, cnn.tgz, ...
    archives = ("questions", "cnn")

    def features(self):
        """Word ids, how relevant their sentences are, and the answer's id."""
        return {
            "passage": array((None,), np.int32),
            "rank": array((None,), np.uint8),
            "question": array((None,), np.int32),
            "answer": array((), np.int32),
        }

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Reads <raw>/questions/{training,validation,test}/*.question, from folders or a tar archive."""
        return self.encoded(self.contents(raw))

    def contents(self, raw: Raw) -> Iterator[tuple[str, object, bytes]]:
        """(split, where, content) of every file."""
        for name, content in raw.tree(
            "questions", self.archives, suffix=".question", limit=FILE_LIMIT
        ):
            folder, _, file = name.rpartition("/")
            if folder not in FOLDERS:
                raise DataError(
                    f"questions/{name[:80]}: files lie in questions/{{{','.join(FOLDERS)}}}/ and nowhere else"
                )
            yield FOLDERS[folder], f"questions/{folder}/{file}", content

    def encoded(
        self, contents: Iterable[tuple[str, object, bytes]]
    ) -> dict[str, Sequence[Example]]:
        """Parse all files, number the words, and note the facts. Raises DataError if too many are out of layout."""
        words, splits = Provisional(), defaultdict(Examples)
        left_out, reasons = Counter(), []
        for i, (split, where, content) in enumerate(contents):
            if i % 1000 == 0:
                self._progress("reading questions", i, 0)
            try:
                splits[split].add(words, parse(content, where))
            except DataError as e:
                left_out[split] += 1
                reasons.append(str(e))
        if len(reasons) > LEFT_OUT * (sum(map(len, splits.values())) + len(reasons)):
            more = (
                f" ({len(reasons)} files are out of layout)" if len(reasons) > 1 else ""
            )
            raise DataError(f"{reasons[0]}{more}; get the official files")
        if not (splits.keys() >= {"train", "valid"} and splits["train"]):
            raise DataError(
                "questions: there must be files in questions/training and questions/validation"
            )
        listed, entities, new = words.numbered(splits["train"])
        self.facts |= {
            "words": listed,
            "entities": entities,
            "left_out": reasons[:10],
            "counts": {},
        }
        made = {
            split: splits[split].renumbered(new)
            for split in FOLDERS.values()
            if split in splits
        }
        for split, examples in made.items():
            self.facts["counts"][split] = examples.counts() | {
                "left out": left_out[split]
            }
        return made


class GutenbergCloze(Cnn):
    """Cloze questions over 19 novels of Project Gutenberg in the CNN layout: a stand-in, NOT the CNN corpus."""

    source = "made from https://www.gutenberg.org"
    licence = "public domain in the USA"
    size = "30,000 train, 1,500 valid, 1,500 test; 60 MB prepared"
    archives = ("questions",)


class NewsStories(Cnn):
    """Short generated news stories with a question whose answer needs the story; embedded, NOT the CNN corpus."""

    source = "generated by lnrepro/data/generated/news.py"
    licence = "Apache-2.0"
    size = "4,000 train, 400 valid, 400 test; nothing to download, 3 MB prepared"
    files = ()
    embedded = True

    def contents(self, raw: Raw) -> Iterator[tuple[str, object, bytes]]:
        """(split, where, content) of every generated file."""
        from lnrepro.data.generated import news

        return news.files()


class CnnTop4(Cnn):
    """CNN questions with four sentences each as Cooijmans et al. (2016) prepared them, from their pickles."""

    source = "http://www.cs.toronto.edu/~rkiros/top4.zip"
    size = "380,298 train, 3,924 valid; 130 MB prepared"
    files = tuple(RawFile(f"{name}.pkl") for name in ("dict", *(f"{s}4_{p}" for s in ("train", "valid") for p in ("pass", "qs", "ans"))))  # fmt: skip

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Reads dict.pkl (word -> number) and, for train and valid, the lists of passages, questions and answers.

        Passages and questions end with one more token, which is dropped, as the authors' batcher does. Nothing in a
        pickle is executed. Raises DataError for anything but lists of known numbers.
        """
        table = plain_pickle.load(raw.read("dict.pkl"), raw.path("dict.pkl"))
        if not isinstance(table, dict) or not all(
            type(k) is str and type(v) is int for k, v in table.items()
        ):
            raise DataError(
                f"{raw.path('dict.pkl')}: not a dict of words and their numbers"
            )
        if len(set(table.values())) < len(table) or min(table.values(), default=0) < 0:
            raise DataError(
                f"{raw.path('dict.pkl')}: two words have one number, or a number is negative"
            )
        of = {number: word for word, number in table.items()}
        words, splits = Provisional(), {}
        for split in ("train", "valid"):
            parts = {}
            for part in ("pass", "qs", "ans"):
                file = f"{split}4_{part}.pkl"
                parts[part] = lists(
                    plain_pickle.load(raw.read(file), raw.path(file)),
                    of,
                    raw.path(file),
                    part != "ans",
                )
            if len({len(p) for p in parts.values()}) > 1:
                raise DataError(
                    f"{raw.folder}: {split}4_pass, _qs and _ans.pkl hold different numbers of questions"
                )
            splits[split] = Examples()
            for passage, question, answer in zip(*parts.values(), strict=True):
                tokens = [[of[i] for i in part] for part in (passage, question, answer)]
                splits[split].append(
                    words, *tokens[:2], tokens[2][0], np.zeros(len(passage), np.uint8)
                )
        for word in table:
            words[
                word
            ]  # every word of the dictionary has a row, whether it occurs or not
        listed, entities, new = words.numbered(None)
        self.facts |= {"words": listed, "entities": entities, "left_out": []}
        made = {split: examples.renumbered(new) for split, examples in splits.items()}
        self.facts["counts"] = {
            split: examples.counts() | {"left out": 0}
            for split, examples in made.items()
        }
        return made


def lists(
    value: object, known: dict[int, str], where: object, longer: bool
) -> list[list[int]]:
    """Lists of known numbers, each less its last one if `longer`, none of them then empty. Raises DataError."""
    if not isinstance(value, list) or not all(isinstance(v, list) for v in value):
        raise DataError(f"{where}: not a list of lists")
    for i, v in enumerate(value):
        strange = [
            n
            for n in v[: -1 if longer else None]
            if type(n) is not int or n not in known
        ]
        if strange:
            bad = strange[0]
            shown = (
                ascii(bad)
                if type(bad) is int and abs(bad) < 10**18
                else f"a {type(bad).__name__}"
            )
            raise DataError(f"{where}, list {i}: {shown} is no number of dict.pkl")
        if len(v) < 1 + longer or (not longer and len(v) != 1):
            raise DataError(f"{where}, list {i}: {len(v)} numbers")
    return [v[:-1] for v in value] if longer else value


class Provisional(dict):
    """Words numbered as they appear: `words[token]`; at the end `numbered` says what they are to be called."""

    def __missing__(self, token: str) -> int:
        self[token] = number = len(self)
        return number

    def numbered(self, train: Examples | None) -> tuple[list[str], int, np.ndarray]:
        """(word of every id, E, the id of every provisional number), by frequency in `train`; None keeps all words.

        With `train`, words seen there less than twice are "<unk>" and numbers "<num>", and there is an entity for every
        N up to the largest. Source of these rules: the scripts of the code state 94f7398 (section 5.7).
        """
        present = {token for token in self if ENTITY.fullmatch(token)}
        if train is None:
            entities = sorted(present, key=lambda token: int(token[len("@entity") :]))
            chosen = [token for token in self if token not in present]
        else:
            largest = max(int(token[len("@entity") :]) for token in present)
            entities = [f"@entity{n}" for n in range(largest + 1)]
            counts = train.count(len(self))
            by_count = sorted(
                ((-counts[i], i, token) for token, i in self.items() if counts[i] > 1)
            )
            special = (PLACEHOLDER, UNKNOWN, NUMBER, PADDING)
            chosen = [
                *special[:3],
                *(
                    t
                    for _, _, t in by_count
                    if not (t in present or t in special or t.isdigit())
                ),
            ]
        listed = [PADDING, *entities, *chosen]
        ids = {token: i for i, token in enumerate(listed)}
        unknown, number = ids.get(UNKNOWN, 0), ids.get(NUMBER, 0)
        fallback = (
            ids.get(token, number if token.isdigit() else unknown) for token in self
        )
        return listed, len(entities), np.fromiter(fallback, np.int32, len(self))


class Examples(Sequence):
    """Examples as they are read: lists of arrays of ids."""

    def __init__(self):
        self.passages, self.questions, self.answers, self.ranks = [], [], [], []

    def add(self, words: Provisional, q: Question) -> None:
        """Append a parsed file."""
        self.append(
            words, q.passage, q.question, q.answer, ranks(q.passage, q.question)
        )

    def append(
        self, words: Provisional, passage, question, answer: str, rank: np.ndarray
    ) -> None:
        """Append tokens under their provisional numbers."""
        self.passages.append(np.array([words[token] for token in passage], np.int32))
        self.questions.append(np.array([words[token] for token in question], np.int32))
        self.answers.append(words[answer])
        self.ranks.append(rank)

    def count(self, size: int) -> np.ndarray:
        """How often each provisional number occurs in passages and questions."""
        total = np.zeros(size, np.int64)
        for part in (self.passages, self.questions):
            total += np.bincount(np.concatenate(part), minlength=size)
        return total

    def renumbered(self, new: np.ndarray) -> Examples:
        """The same under final ids."""
        out = Examples()
        out.passages, out.questions = (
            [new[p] for p in self.passages],
            [new[q] for q in self.questions],
        )
        out.answers, out.ranks = new[np.array(self.answers, int)], self.ranks
        return out

    def counts(self) -> dict[str, int]:
        """How many there are, and in how many the answer is not where it should be."""
        hits = [
            rank[passage == answer]
            for passage, rank, answer in zip(
                self.passages, self.ranks, self.answers, strict=True
            )
        ]
        return {
            "questions": len(self),
            "answer not in passage": sum(not len(hit) for hit in hits),
            "answer not in four sentences": sum(not (hit < 4).any() for hit in hits),
        }

    def __len__(self) -> int:
        return len(self.passages)

    def __getitem__(self, i: int) -> Example:
        return {
            "passage": self.passages[i],
            "rank": self.ranks[i],
            "question": self.questions[i],
            "answer": np.int32(self.answers[i]),
        }
