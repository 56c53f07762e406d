"""CNN corpus of Hermann et al. (2015), and sets in the same format.

`cnn` reads .question files, see question.py. `cnn_top4` reads the pickles of Cooijmans
et al. (2016), in which each passage has been reduced to four sentences. dict.pkl maps
words to numbers. The other pickles are lists with one list of numbers per question.
Passages and questions end with one extra number, which is dropped:

    dict.pkl         {"the": 1, "@entity5": 2, "slept": 3, ".": 4, "@placeholder": 5}
    train4_pass.pkl  [[1, 2, 3, 4, 0], [2, 3, 4, 0], ...]
    train4_qs.pkl    [[5, 3, 0], [5, 3, 4, 0], ...]
    train4_ans.pkl   [[2], [2], ...]
    valid4_pass.pkl, valid4_qs.pkl, valid4_ans.pkl

`gutenberg_cloze` is NOT the CNN corpus. Results on different sets cannot be compared.

An example has these features, for T tokens in the passage and S in the question:

    passage   [T] int32: word ids
    rank      [T] uint8: relevance of the token's sentence. `rank < 4` selects the four
              most relevant sentences, see `question.ranks`.
    question  [S] int32: word ids
    answer    [] int32: word id

Id 0 is padding, the next ids are the entities, and the other words follow by frequency.
`data.facts` contains:

    words     the word of each id
    entities  number of entities
    counts    for each split: "questions", "answer not in passage", "answer not in four
              sentences", and "left out", the number of malformed files
    left_out  error messages of the first ten malformed files
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.official import plain_pickle
from lnrepro.data.official.question import (
    ENTITY,
    FOLDERS,
    PLACEHOLDER,
    parse,
    ranks,
)
from lnrepro.data.raw import Raw, RawFile, few
from lnrepro.data.text import numbering
from lnrepro.errors import DataError

# Bytes of a .question file. The longest official passages have 2,000 tokens.
FILE_LIMIT = 1 << 20
PADDING, UNKNOWN, NUMBER = "<pad>", "<unk>", "<num>"
FIRST_ENTITY = 1


class Cnn(Builder):
    """CNN news stories and cloze questions about them, with anonymised entities."""

    configs = ("configs/attentive_reader.py",)
    source = (
        "https://cs.nyu.edu/~kcho/DMQA/ "
        "(K. Cho's copy of K. M. Hermann et al.'s corpus)"
    )
    licence = "the stories are CNN's; the questions by Hermann et al. (2015)"
    size = "380,298 train, 3,924 valid, 3,198 test; about 1.5 GB prepared"
    # A folder, or an archive such as questions.tar or cnn.tgz.
    files = (RawFile("questions"),)
    archives = ("questions", "cnn")

    def features(self):
        """Return the features of an example, see the module."""
        return {
            "passage": array((None,), np.int32),
            "rank": array((None,), np.uint8),
            "question": array((None,), np.int32),
            "answer": array((), np.int32),
        }

    def examples(self, raw: Raw) -> Mapping[str, Sequence[Example]]:
        """Read questions/{training,validation,test}/*.question."""
        return self.encode(self.contents(raw), raw)

    def contents(self, raw: Raw) -> Iterator[tuple[str, object, bytes]]:
        """Yield the split, the name and the content of each file."""
        for name, content in raw.tree(
            "questions", self.archives, suffix=".question", limit=FILE_LIMIT
        ):
            # The folder says the split. Other folders would be left out without a word.
            folder = name.rpartition("/")[0]
            if folder not in FOLDERS:
                folders = ",".join(FOLDERS)
                raise DataError(
                    f"questions/{name[:80]}: the files must be in "
                    f"questions/{{{folders}}}/"
                )
            yield FOLDERS[folder], f"questions/{name}", content

    def encode(
        self, contents: Iterable[tuple[str, object, bytes]], raw: Raw | None = None
    ) -> dict[str, list[dict[str, Any]]]:
        """Parse the files and choose the vocabulary.

        Args:
          contents: the split, the name and the content of each file.
          raw: what is odd in the files is counted in its notes.

        Raises:
          DataError: a split is missing, or too many files are malformed.
        """
        words, splits = numbering(), defaultdict(list)
        left_out, errors = Counter(), []
        notes = Counter() if raw is None else raw.notes
        seen = set()
        for i, (split, where, content) in enumerate(contents):
            if i % 1000 == 0:
                self._progress("reading questions", i, 0)
            # The split exists even if all of its files are malformed.
            examples = splits[split]
            # A few malformed files are left out. Many mean that these are other files.
            try:
                _, passage, question, answer, _ = parse(content, where, notes)
            except DataError as e:
                left_out[split] += 1
                errors.append(str(e))
                continue
            # Hashes take less memory than the texts.
            key = hash((split, *passage, *question, answer))
            if key in seen:
                notes["repeated questions"] += 1
            seen.add(key)
            rank = ranks(passage, question)
            examples.append(_example(words, passage, question, answer, rank))
        files = len(errors) + sum(map(len, splits.values()))
        if len(errors) > few(files):
            more = f" ({len(errors)} files are malformed)" if len(errors) > 1 else ""
            raise DataError(f"{errors[0]}{more}; get the official files")
        if errors:
            warnings.warn(
                f"{len(errors):,} of {files:,} files are malformed and left out; the "
                f"first one: {errors[0]}",
                stacklevel=2,
            )
        if not splits["train"] or "valid" not in splits:
            raise DataError(
                "questions: there must be files in questions/training and "
                "questions/validation"
            )
        # All entities up to the largest number get an id, also those that do not occur:
        # the entities are renamed at random in training.
        largest = max(map(_entity_number, filter(ENTITY.fullmatch, words)))
        entities = [f"@entity{n}" for n in range(largest + 1)]
        # The vocabulary is that of the training questions. Test words outside of it are
        # unknown.
        others = _frequent_words(words, splits["train"])
        ordered = {name: splits[name] for name in FOLDERS.values() if name in splits}
        return self._finish(ordered, words, [*entities, *others], left_out, errors)

    def _finish(
        self,
        splits: dict[str, list[dict[str, Any]]],
        words: dict[str, int],
        vocabulary: Sequence[str],
        left_out: Counter[str],
        errors: Sequence[str],
    ) -> dict[str, list[dict[str, Any]]]:
        """Replace the preliminary ids of the examples by the final ones.

        Args:
          splits: the examples, which are changed in place.
          words: preliminary id of each word.
          vocabulary: words in the order of their final ids, without padding.
          left_out: number of malformed files of each split.
          errors: their error messages.

        Returns:
          The splits.
        """
        tokens = [PADDING, *vocabulary]
        ids = {token: i for i, token in enumerate(tokens)}
        # Preliminary ids are in the order of first appearance. One table maps all
        # examples.
        final = np.empty(len(words), np.int32)
        for token, i in words.items():
            default = NUMBER if token.isdigit() else UNKNOWN
            final[i] = ids.get(token, ids.get(default, 0))
        self.facts["words"] = tokens
        self.facts["entities"] = sum(1 for _ in filter(ENTITY.fullmatch, tokens))
        self.facts["left_out"] = errors[:10]
        self.facts["counts"] = {}
        for split, examples in splits.items():
            for example in examples:
                for name in ("passage", "question", "answer"):
                    example[name] = final[example[name]]
            counts = _counts(examples) | {"left out": left_out[split]}
            self.facts["counts"][split] = counts
        return splits


class GutenbergCloze(Cnn):
    """Cloze questions about 19 novels of Project Gutenberg. NOT the CNN corpus."""

    source = "made from https://www.gutenberg.org"
    licence = "public domain in the USA"
    size = "30,000 train, 1,500 valid, 1,500 test; 60 MB prepared"
    archives = ("questions",)


class CnnTop4(Cnn):
    """CNN questions with four sentences each, prepared by Cooijmans et al. (2016)."""

    source = "http://www.cs.toronto.edu/~rkiros/top4.zip"
    size = "380,298 train, 3,924 valid; 130 MB prepared"
    files = (
        RawFile("dict.pkl"),
        RawFile("train4_pass.pkl"),
        RawFile("train4_qs.pkl"),
        RawFile("train4_ans.pkl"),
        RawFile("valid4_pass.pkl"),
        RawFile("valid4_qs.pkl"),
        RawFile("valid4_ans.pkl"),
    )

    def examples(self, raw: Raw) -> Mapping[str, Sequence[Example]]:
        """Read the pickles. Nothing in them is executed."""

        def load(file: str) -> object:
            return plain_pickle.load(raw.read(file), raw.path(file))

        table, where = load("dict.pkl"), raw.path("dict.pkl")
        if not isinstance(table, dict) or not all(
            type(k) is str and type(v) is int for k, v in table.items()
        ):
            raise DataError(f"{where}: not a dict of words and their numbers")
        # Words of the passages are numbers here. They are turned back into words, so
        # that the rest is the same as for text files.
        word_of = {number: word for word, number in table.items()}
        if len(word_of) < len(table) or min(word_of, default=0) < 0:
            raise DataError(
                f"{where}: two words have the same number, or a number is negative"
            )
        words, splits = numbering(), {"train": [], "valid": []}
        for split, examples in splits.items():
            parts = []
            for part in ("pass", "qs", "ans"):
                file = f"{split}4_{part}.pkl"
                ends = part != "ans"
                parts.append(check_lists(load(file), word_of, raw.path(file), ends))
            if len(set(map(len, parts))) > 1:
                raise DataError(
                    f"{raw.folder}: {split}4_pass, _qs and _ans.pkl contain different "
                    "numbers of questions"
                )
            for passage, question, (answer,) in zip(*parts, strict=True):
                passage_words = [word_of[number] for number in passage]
                question_words = [word_of[number] for number in question]
                # The four sentences were chosen by the authors, so all of them have the
                # best rank.
                rank = np.zeros(len(passage), np.uint8)
                examples.append(
                    _example(
                        words, passage_words, question_words, word_of[answer], rank
                    )
                )
        # Words of the dictionary that do not occur also get an id.
        for word in table:
            words[word]
        entities = sorted(filter(ENTITY.fullmatch, words), key=_entity_number)
        others = [word for word in words if not ENTITY.fullmatch(word)]
        return self._finish(splits, words, [*entities, *others], Counter(), [])


def check_lists(
    value: object, known: Collection[int], where: object, ends: bool
) -> list[list[int]]:
    """Check one of the pickles that are lists of lists of numbers.

    Args:
      value: what the pickle contains.
      known: the valid numbers.
      where: name of the file, for error messages.
      ends: True if each list ends with one extra number, which is dropped. At least one
        number must remain. False if each list must have exactly one number.

    Raises:
      DataError: the value does not have this form.
    """
    if not isinstance(value, list) or not all(isinstance(v, list) for v in value):
        raise DataError(f"{where}: not a list of lists")
    wanted = "at least 2" if ends else "1"
    checked = []
    for i, numbers in enumerate(value):
        kept = numbers[:-1] if ends else numbers
        for number in kept:
            if type(number) is not int or number not in known:
                shown = f"a value of type {type(number).__name__}"
                # Python refuses to print very large integers.
                if type(number) is int and abs(number) < 10**18:
                    shown = str(number)
                raise DataError(
                    f"{where}, list {i}: {shown} is not a number of dict.pkl"
                )
        if not kept or not (ends or len(kept) == 1):
            raise DataError(
                f"{where}, list {i}: {len(numbers)} numbers instead of {wanted}"
            )
        checked.append(kept)
    return checked


def _example(
    words: dict[str, int],
    passage: Sequence[str],
    question: Sequence[str],
    answer: str,
    rank: np.ndarray,
) -> dict[str, Any]:
    """Return an example with preliminary word ids."""
    return {
        "passage": np.array([words[token] for token in passage], np.int32),
        "rank": rank,
        "question": np.array([words[token] for token in question], np.int32),
        "answer": np.int32(words[answer]),
    }


def _frequent_words(words: dict[str, int], train: Sequence[Example]) -> list[str]:
    """Return the words that get their own id, without the entities.

    The special tokens come first. The words that occur at least twice in the training
    split follow by frequency, except for numbers. This is the rule of the authors'
    scripts, commit 94f7398.
    """
    counts = np.zeros(len(words), np.int64)
    # Answers are entities, which have ids anyway.
    for name in ("passage", "question"):
        ids = np.concatenate([example[name] for example in train])
        counts += np.bincount(ids, minlength=len(words))
    chosen, excluded = [PLACEHOLDER, UNKNOWN, NUMBER], {PADDING}
    excluded.update(chosen)
    tokens = list(words)
    # A stable sort leaves words of the same frequency in the order of appearance, so
    # that ids do not depend on the NumPy version.
    for i in np.argsort(-counts, kind="stable"):
        token = tokens[i]
        special = token in excluded or token.isdigit() or ENTITY.fullmatch(token)
        if counts[i] > 1 and not special:
            chosen.append(token)
    return chosen


def _entity_number(token: str) -> int:
    """Return N of "@entityN"."""
    return int(token.removeprefix("@entity"))


def _counts(examples: Sequence[Example]) -> dict[str, int]:
    """Count the questions, and those whose answer is not in the passage."""
    # A rank of 0 to 3 is a sentence that `config.data.sentences` = 4 keeps.
    ranks_of_answer = [e["rank"][e["passage"] == e["answer"]] for e in examples]
    return {
        "questions": len(examples),
        "answer not in passage": sum(not len(r) for r in ranks_of_answer),
        "answer not in four sentences": sum(not (r < 4).any() for r in ranks_of_answer),
    }
