r"""Sets to evaluate sentence vectors on: SICK, MR, CR, SUBJ and MPQA.

SICK is a table with tabs between its columns. Its lines end with "\n" or "\r\n":

    pair_ID  sentence_A    sentence_B       relatedness_score  entailment_judgment
    1        A dog sleeps  A dog is asleep  4.8                ENTAILMENT
    2        A man sings   A bird sings     2.4                NEUTRAL

Each other set has two files, with one sentence per line. Sentences of the first file
have label 1, and those of the second file have label 0. MR and SUBJ use Windows-1252,
in which 0x85 is an ellipsis. Lines end only at "\n", not where str.splitlines cuts:

    a warm and funny film .
    the ending is a surprise\x85

Examples contain sentences as UTF-8 bytes [t] uint8. A pair has "a", "b" and "score", []
float32 from 1 to 5, in the splits train, trial and test. A labelled sentence has "text"
and "label", [] int32, in the split "sentences", where label 1 comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.encodings import decode, quoted
from lnrepro.data.raw import Raw, RawFile, few
from lnrepro.errors import DataError

HEADER = [
    "pair_ID",
    "sentence_A",
    "sentence_B",
    "relatedness_score",
    "entailment_judgment",
]
CORNELL = "https://www.cs.cornell.edu/people/pabo/movie-review-data/"


def labelled(columns: Mapping[str, Any]) -> tuple[list[str], np.ndarray]:
    """Return the sentences and the labels [N] of a set's columns."""
    return _decode(columns["text"]), np.array(columns["label"])


def related(columns: Mapping[str, Any]) -> tuple[list[str], list[str], np.ndarray]:
    """Return the first and second sentences and the scores [N] of a split's columns."""
    return _decode(columns["a"]), _decode(columns["b"]), np.array(columns["score"])


def _decode(column: Sequence[np.ndarray]) -> list[str]:
    return [content.tobytes().decode("utf-8") for content in column]


def _encode(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-8"), np.uint8)


class Pairs(Builder):
    """Base class of the sets of pairs of sentences."""

    def features(self) -> dict[str, Any]:
        """Return the features of a pair."""
        return {
            "a": array((None,), np.uint8),
            "b": array((None,), np.uint8),
            "score": array((), np.float32),
        }

    @staticmethod
    def example(a: str, b: str, score: float) -> Example:
        """Return the example of a pair."""
        return {"a": _encode(a), "b": _encode(b), "score": np.float32(score)}


class LabelledSentences(Builder):
    """Base class of the sets of labelled sentences."""

    def features(self) -> dict[str, Any]:
        """Return the features of a sentence."""
        return {"text": array((None,), np.uint8), "label": array((), np.int32)}

    @staticmethod
    def example(text: str, label: int) -> Example:
        """Return the example of a sentence."""
        return {"text": _encode(text), "label": np.int32(label)}


class Sick(Pairs):
    """SICK (SemEval-2014 task 1): 9,927 pairs of sentences, relatedness 1 to 5."""

    source = (
        "https://alt.qcri.org/semeval2014/task1/ "
        "(SICK_train, SICK_trial and SICK_test_annotated)"
    )
    licence = "CC BY-NC-SA 3.0 (Marelli et al. 2014)"
    size = "4,500 train, 500 trial, 4,927 test; 1.1 MB"
    files = (
        RawFile(
            "SICK_train.txt",
            sha256="266cf8047149bd1d68138dd30439f3122bff30069740ac6705bb6197d9f1b48e",
        ),
        RawFile(
            "SICK_trial.txt",
            sha256="5a88cfb62f8c6bd2a3cce0f2421ba2cb8c2be5ab4a800f6f01e2c64aafb7db56",
        ),
        RawFile(
            "SICK_test_annotated.txt",
            sha256="2b8aa806658d6fc23c6824c83776c2d4fee7556000817b5ec0f982861413b7d0",
        ),
    )

    def examples(self, raw: Raw) -> Mapping[str, Sequence[Example]]:
        """Read the three tables."""
        examples = {}
        for split, file in zip(("train", "trial", "test"), self.files, strict=True):
            rows = parse_sick(raw.read(file.name), raw.path(file.name), raw.notes)
            raw.note_repeats("pairs", [row[:2] for row in rows])
            examples[split] = [self.example(*row) for row in rows]
        return examples


def parse_sick(
    content: bytes, where: object, notes: Counter[str] | None = None
) -> list[tuple[str, str, float]]:
    """Parse a SICK table.

    Pairs with an empty sentence are left out if they are few.

    Args:
      content: content of the file.
      where: name of the file, for error messages.
      notes: what is odd in the text is counted here.

    Returns:
      First sentence, second sentence and score of each pair.

    Raises:
      DataError: the header or a line is wrong. The message names the line.
    """

    def error(number: int, problem: str) -> DataError:
        return DataError(f"{where}, line {number}: {problem}; get the official file")

    notes = Counter() if notes is None else notes
    lines = _lines(content, where, notes)
    # A file with other columns may be one of the other releases of SICK.
    for number, line in lines[:1]:
        if line.split("\t") != HEADER:
            wanted = " ".join(HEADER)
            raise error(number, f"the header is {quoted(line)} instead of {wanted}")
    rows, empty = [], []
    for number, line in lines[1:]:
        fields = line.split("\t")
        if len(fields) != len(HEADER):
            raise error(number, f"{len(fields)} columns instead of {len(HEADER)}")
        _, a, b, score, _ = fields
        # A score that is no number is reported like one out of range: no comparison
        # with NaN is true.
        try:
            value = float(score)
        except ValueError:
            value = float("nan")
        if not 1 <= value <= 5:
            raise error(number, f"the score {score[:20]!a} is not a number from 1 to 5")
        # An own file may have a few gaps. Many of them mean that a column is missing.
        if a.strip() and b.strip():
            rows.append((a, b, value))
        else:
            empty.append(number)
    if len(empty) > few(len(lines)):
        raise error(empty[0], f"a sentence is empty ({len(empty)} such lines)")
    if not rows:
        raise DataError(f"{where}: contains no pair; get the official file")
    if empty:
        notes["pairs with an empty sentence left out"] += len(empty)
    return rows


def parse_lines(
    content: bytes, where: object, notes: Counter[str] | None = None
) -> list[str]:
    """Parse a file with one sentence per line.

    Args:
      content: content of the file.
      where: name of the file, for error messages.
      notes: empty lines and what is odd in the text are counted here.

    Returns:
      The lines without surrounding whitespace, except for empty ones.

    Raises:
      DataError: it is not text, or there is no sentence.
    """
    notes = Counter() if notes is None else notes
    found = [line.strip() for _, line in _lines(content, where, notes)]
    if not found:
        raise DataError(f"{where}: contains no sentence; get the official file")
    return found


def _lines(content: bytes, where: object, notes: Counter[str]) -> list[tuple[int, str]]:
    """Return the numbers and the texts of the lines that are not empty."""
    lines = decode(content, where, notes).removesuffix("\n").split("\n")
    found = []
    # Numbers count all lines, so that a message names the line of an editor.
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append((number, line.removesuffix("\r")))
    if empty := len(lines) - len(found):
        notes["empty lines left out"] += empty
    return found


class LabelledFiles(LabelledSentences):
    """Base class of the sets in two files, one for each label.

    Attributes:
      files: the file of label 1 and the file of label 0.
    """

    def examples(self, raw: Raw) -> Mapping[str, Sequence[Example]]:
        """Read both files."""
        examples, texts = [], []
        # Label 1 comes first, as in the evaluation code of Kiros et al. (2015). The
        # folds of the cross-validation depend on this order.
        for label, file in zip((1, 0), self.files, strict=True):
            found = parse_lines(raw.read(file.name), raw.path(file.name), raw.notes)
            examples += [self.example(text, label) for text in found]
            texts += found
        raw.note_repeats("sentences", texts)
        return {"sentences": examples}


class Mr(LabelledFiles):
    """MR (Pang and Lee 2005): 10,662 sentences of film reviews, 1 if positive."""

    source = CORNELL + "rt-polaritydata.tar.gz"
    licence = "none stated; research use, cite Pang and Lee (2005)"
    size = "5,331 positive, 5,331 negative; 1.2 MB"
    files = (
        RawFile(
            "rt-polarity.pos",
            sha256="d79ef14009bbf87cd6be21f91c3ea1a3cbcb73b34dfb4231aef7bbcd7677abc4",
        ),
        RawFile(
            "rt-polarity.neg",
            sha256="4af43bf489620b498a0852c5a8c6a535155dec7985fdfea782b8f7756b957ccc",
        ),
    )


class Cr(LabelledFiles):
    """CR (Hu and Liu 2004): 3,771 sentences of product reviews, 1 if positive."""

    source = (
        "https://nlp.stanford.edu/~sidaw/home/projects:nbsvm "
        "(custrev, one sentence a line)"
    )
    licence = "none stated; research use, cite Hu and Liu (2004)"
    size = "2,405 positive, 1,366 negative; 0.4 MB"
    files = (
        RawFile(
            "custrev.pos",
            sha256="15eeb0b9424043bb3755488e2d8ed97bdaeba464a5c230f213bad075125d2192",
        ),
        RawFile(
            "custrev.neg",
            sha256="8f29d7fa39f9862764b71f36b193f0674e0056287ffc5bf170edf6db42cc8f83",
        ),
    )


class Subj(LabelledFiles):
    """SUBJ (Pang and Lee 2004): 10,000 sentences about films, 1 if objective."""

    source = CORNELL + "rotten_imdb.tar.gz"
    licence = "none stated; research use, cite Pang and Lee (2004)"
    size = "5,000 objective, 5,000 subjective; 1.3 MB"
    files = (
        RawFile(
            "plot.tok.gt9.5000",
            sha256="5ddc9b44dc60d64d651347fcd7bdd489b0c70661e3f768215c16eea36f51204a",
        ),
        RawFile(
            "quote.tok.gt9.5000",
            sha256="73a2dcf8dc3cbcc7f068a70ef9f021c86b2a8e4dac81566b7fd015b3e938f2c5",
        ),
    )


class Mpqa(LabelledFiles):
    """MPQA (Wiebe et al. 2005): 10,603 phrases of opinion, 1 if positive."""

    source = (
        "https://nlp.stanford.edu/~sidaw/home/projects:nbsvm (mpqa, one phrase a line)"
    )
    licence = "terms of the MPQA site; cite Wiebe et al. (2005)"
    size = "3,311 positive, 7,292 negative; 0.2 MB"
    files = (
        RawFile(
            "mpqa.pos",
            sha256="f4aaafdd63c439fd2d056149f3b5d200416dabb200a8b7d8f4bf9903981ff8a5",
        ),
        RawFile(
            "mpqa.neg",
            sha256="02e193d98c7715bc6200bb23dc6d2903482bd80c0432c53c3f3738c636df3f72",
        ),
    )
