"""Sentences to judge: SICK's related pairs and the four classification sets MR, CR, SUBJ, MPQA, from their official files;
and generated sets of the same five kinds, for the embedded stories.

Sentences are UTF-8 bytes, (t,) uint8. A pair of SICK is {"a", "b", "score" () float32 in 1..5}, splits train, trial, test;
a sentence of the others {"text", "label" () int32}, one split "sentences", those labelled 1 first, as in the protocol.
MR and SUBJ's quotes are Windows-1252, in which 0x85 is an ellipsis: lines end at "\\n" alone, never where str.splitlines
would cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from lnrepro.data import open_columns
from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.generated import stories
from lnrepro.data.raw import Raw, RawFile
from lnrepro.engine.errors import DataError

HEADER = [
    "pair_ID",
    "sentence_A",
    "sentence_B",
    "relatedness_score",
    "entailment_judgment",
]
CORNELL = "https://www.cs.cornell.edu/people/pabo/movie-review-data/"
PAIRS = "https://alt.qcri.org/semeval2014/task1/ (SICK_train, SICK_trial and SICK_test_annotated)"


def labelled(name: str, data_dir: str | None = None) -> tuple[list[str], np.ndarray]:
    """(sentences, labels (N,)) of a prepared classification set. Raises DataError."""
    columns = open_columns(name, "sentences", data_dir)
    return _texts(columns["text"]), np.array(columns["label"])


def related(
    name: str, split: str, data_dir: str | None = None
) -> tuple[list[str], list[str], np.ndarray]:
    """(sentences, sentences, scores (N,)) of a split of a prepared set of pairs. Raises DataError."""
    columns = open_columns(name, split, data_dir)
    return _texts(columns["a"]), _texts(columns["b"]), np.array(columns["score"])


def _texts(column: Any) -> list[str]:
    return [column[i].tobytes().decode("utf-8") for i in range(len(column))]


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-8"), np.uint8)


class Pairs(Builder):
    """Pairs of sentences with a score of relatedness from 1 to 5."""

    def features(self) -> dict[str, Any]:
        """Two sentences and their score."""
        return {
            "a": array((None,), np.uint8),
            "b": array((None,), np.uint8),
            "score": array((), np.float32),
        }

    @staticmethod
    def example(a: str, b: str, score: float) -> Example:
        """One pair as it is stored."""
        return {"a": _bytes(a), "b": _bytes(b), "score": np.float32(score)}


class Judged(Builder):
    """Sentences labelled 1 or 0."""

    def features(self) -> dict[str, Any]:
        """A sentence and its label."""
        return {"text": array((None,), np.uint8), "label": array((), np.int32)}

    @staticmethod
    def example(text: str, label: int) -> Example:
        """One sentence as it is stored."""
        return {"text": _bytes(text), "label": np.int32(label)}


class Sick(Pairs):
    """SICK (SemEval-2014 task 1): 9,927 pairs of sentences about pictures and videos, relatedness 1 to 5."""

    source = PAIRS
    licence = "CC BY-NC-SA 3.0 (Marelli et al. 2014)"
    size = "4,500 train, 500 trial, 4,927 test; 1.1 MB"
    parts: ClassVar[dict[str, str]] = {
        "train": "SICK_train.txt",
        "trial": "SICK_trial.txt",
        "test": "SICK_test_annotated.txt",
    }
    files = (
        RawFile(
            "SICK_train.txt",
            None,
            "266cf8047149bd1d68138dd30439f3122bff30069740ac6705bb6197d9f1b48e",
        ),
        RawFile(
            "SICK_trial.txt",
            None,
            "5a88cfb62f8c6bd2a3cce0f2421ba2cb8c2be5ab4a800f6f01e2c64aafb7db56",
        ),
        RawFile(
            "SICK_test_annotated.txt",
            None,
            "2b8aa806658d6fc23c6824c83776c2d4fee7556000817b5ec0f982861413b7d0",
        ),
    )

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Reads the three tables."""
        return {
            split: [
                self.example(*row) for row in parse_sick(raw.read(name), raw.path(name))
            ]
            for split, name in self.parts.items()
        }


def parse_sick(content: bytes, where: object) -> list[tuple[str, str, float]]:
    """The content of a SICK table -> [(sentence, sentence, score)]; lines may end with CRLF.

    Raises DataError that begins with `where` and names the line, for missing columns and scores outside 1..5.
    """
    rows = []
    for i, (number, line) in enumerate(_lines(content, "utf-8", where)):
        fields = line.split("\t")
        if i == 0:
            if fields != HEADER:
                shown, wanted = ascii(line[:80]), " ".join(HEADER)
                raise DataError(
                    f"{where}, line {number}: the header is {shown} instead of {wanted}; get the official file"
                )
            continue
        if len(fields) != len(HEADER):
            raise DataError(
                f"{where}, line {number}: {len(fields)} columns instead of {len(HEADER)}; get the official file"
            )
        _, a, b, score, _ = fields
        try:
            value = float(score)
        except ValueError:
            value = float("nan")
        if not 1 <= value <= 5:
            raise DataError(
                f"{where}, line {number}: the score {score[:20]!a} is not a number from 1 to 5; get the official file"
            )
        if not a.strip() or not b.strip():
            raise DataError(
                f"{where}, line {number}: a sentence is empty; get the official file"
            )
        rows.append((a, b, value))
    if not rows:
        raise DataError(f"{where}: holds no pair; get the official file")
    return rows


def parse_lines(content: bytes, encoding: str, where: object) -> list[str]:
    """The non-empty lines of a classification file, stripped. Raises DataError that begins with `where`."""
    found = [
        text for _, line in _lines(content, encoding, where) if (text := line.strip())
    ]
    if not found:
        raise DataError(f"{where}: holds no sentence; get the official file")
    return found


def _lines(content: bytes, encoding: str, where: object) -> list[tuple[int, str]]:
    """(number, text) of the non-empty lines, cut at "\\n", a "\\r" before it dropped."""
    lines = []
    for number, line in enumerate(content.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if b"\0" in line:
            raise DataError(
                f"{where}, line {number}: a NUL byte; get the official file"
            )
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError as e:
            byte = f"{line[e.start]:#x}"
            raise DataError(
                f"{where}, line {number}: the byte {byte} is not {encoding}; get the official file"
            ) from None
        if text.strip():
            lines.append((number, text))
    return lines


class TwoFiles(Judged):
    """A set in two files, one sentence a line: `files` = those labelled 1, those labelled 0."""

    encoding: ClassVar[str] = "cp1252"

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Reads both files."""
        texts = [
            parse_lines(raw.read(file.name), self.encoding, raw.path(file.name))
            for file in self.files
        ]
        return {
            "sentences": [
                self.example(text, 1 - i) for i in (0, 1) for text in texts[i]
            ]
        }


class Mr(TwoFiles):
    """MR (Pang and Lee 2005): 10,662 sentences of film reviews, positive (1) or negative."""

    source = CORNELL + "rt-polaritydata.tar.gz"
    licence = "none stated; research use, cite Pang and Lee (2005)"
    size = "5,331 positive, 5,331 negative; 1.2 MB"
    files = (
        RawFile(
            "rt-polarity.pos",
            None,
            "d79ef14009bbf87cd6be21f91c3ea1a3cbcb73b34dfb4231aef7bbcd7677abc4",
        ),
        RawFile(
            "rt-polarity.neg",
            None,
            "4af43bf489620b498a0852c5a8c6a535155dec7985fdfea782b8f7756b957ccc",
        ),
    )


class Cr(TwoFiles):
    """CR (Hu and Liu 2004): 3,771 sentences of product reviews, positive (1) or negative."""

    source = "https://nlp.stanford.edu/~sidaw/home/projects:nbsvm (custrev, one sentence a line)"
    licence = "none stated; research use, cite Hu and Liu (2004)"
    size = "2,405 positive, 1,366 negative; 0.4 MB"
    files = (
        RawFile(
            "custrev.pos",
            None,
            "15eeb0b9424043bb3755488e2d8ed97bdaeba464a5c230f213bad075125d2192",
        ),
        RawFile(
            "custrev.neg",
            None,
            "8f29d7fa39f9862764b71f36b193f0674e0056287ffc5bf170edf6db42cc8f83",
        ),
    )


class Subj(TwoFiles):
    """SUBJ (Pang and Lee 2004): 10,000 sentences about films, telling the plot (1) or judging."""

    source = CORNELL + "rotten_imdb.tar.gz"
    licence = "none stated; research use, cite Pang and Lee (2004)"
    size = "5,000 objective, 5,000 subjective; 1.3 MB"
    files = (
        RawFile(
            "plot.tok.gt9.5000",
            None,
            "5ddc9b44dc60d64d651347fcd7bdd489b0c70661e3f768215c16eea36f51204a",
        ),
        RawFile(
            "quote.tok.gt9.5000",
            None,
            "73a2dcf8dc3cbcc7f068a70ef9f021c86b2a8e4dac81566b7fd015b3e938f2c5",
        ),
    )


class Mpqa(TwoFiles):
    """MPQA (Wiebe et al. 2005): 10,603 phrases of opinion, positive (1) or negative."""

    source = (
        "https://nlp.stanford.edu/~sidaw/home/projects:nbsvm (mpqa, one phrase a line)"
    )
    licence = "terms of the MPQA site; cite Wiebe et al. (2005)"
    size = "3,311 positive, 7,292 negative; 0.2 MB"
    files = (
        RawFile(
            "mpqa.pos",
            None,
            "f4aaafdd63c439fd2d056149f3b5d200416dabb200a8b7d8f4bf9903981ff8a5",
        ),
        RawFile(
            "mpqa.neg",
            None,
            "02e193d98c7715bc6200bb23dc6d2903482bd80c0432c53c3f3738c636df3f72",
        ),
    )


class StorySick(Pairs):
    """Generated pairs of sentences, relatedness 1 to 5 by topic, mood, character and manner shared."""

    source = "lnrepro/data/generated/stories.py"
    licence = "Apache-2.0, as the code that writes them"
    size = "600 train, 150 trial, 600 test; nothing to download"
    embedded = True

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Generates them."""
        return {
            split: [self.example(*row) for row in stories.pairs(split)]
            for split in stories.PAIRS
        }


class StoryJudged(Judged):
    """Generated sentences with labels; `task` is the set they stand in for."""

    source = "lnrepro/data/generated/stories.py"
    licence = "Apache-2.0, as the code that writes them"
    size = "100 and 100; nothing to download"
    embedded = True
    task: ClassVar[str]

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Generates them."""
        return {"sentences": [self.example(*row) for row in stories.labelled(self.task)]}


class StoryMr(StoryJudged):
    """Generated sentences of feeling, in a good mood (1) or a bad one."""

    task = "mr"


class StoryCr(StoryJudged):
    """Generated sentences about things, praised (1) or not."""

    task = "cr"


class StorySubj(StoryJudged):
    """Generated sentences, telling (1) or judging."""

    task = "subj"


class StoryMpqa(StoryJudged):
    """Generated phrases of opinion, positive (1) or negative."""

    task = "mpqa"
