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

import warnings
from collections.abc import Sequence

import numpy as np

from lnrepro.data.files import AGAIN, decode
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import TEXT, Columns, ColumnSpec, Content, Reader
from lnrepro.data.text import as_bytes
from lnrepro.errors import DataError

HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
CORNELL = "https://www.cs.cornell.edu/people/pabo/movie-review-data/"
NBSVM = "https://nlp.stanford.edu/~sidaw/home/projects:nbsvm"
# SHA-256 of the content of each official file.
PAIRS = {
    "SICK_train.txt": (
        "266cf8047149bd1d68138dd30439f3122bff30069740ac6705bb6197d9f1b48e"
    ),
    "SICK_trial.txt": (
        "5a88cfb62f8c6bd2a3cce0f2421ba2cb8c2be5ab4a800f6f01e2c64aafb7db56"
    ),
    "SICK_test_annotated.txt": (
        "2b8aa806658d6fc23c6824c83776c2d4fee7556000817b5ec0f982861413b7d0"
    ),
}


PAIR_COLUMNS = {"a": TEXT, "b": TEXT, "score": ColumnSpec(1, 5, ndim=0)}
LABELLED_COLUMNS = {"text": TEXT, "label": ColumnSpec(0, 1, integer=True, ndim=0)}


def columns_of_labelled(rows: Sequence[tuple[str, int]]) -> Columns:
    """Return the columns of sentences with labels."""
    texts, labels = zip(*rows, strict=True)
    return {"text": list(map(as_bytes, texts)), "label": np.array(labels, np.int32)}


def columns_of_pairs(rows: Sequence[tuple[str, str, float]]) -> Columns:
    """Return the columns of pairs of sentences with scores."""
    return {
        "a": [as_bytes(a) for a, _, _ in rows],
        "b": [as_bytes(b) for _, b, _ in rows],
        "score": np.array([score for _, _, score in rows], np.float32),
    }


def read_sick(raw: RawFolder) -> Content:
    """Read the three tables."""
    splits = {}
    for split, name in zip(("train", "trial", "test"), PAIRS, strict=True):
        splits[split] = columns_of_pairs(parse_sick(raw.read(name), raw.path(name)))
    return Content(splits)


def parse_sick(content: bytes, where: object) -> list[tuple[str, str, float]]:
    """Parse a SICK table.

    Args:
      content: content of the file.
      where: name of the file, for messages.

    Returns:
      First sentence, second sentence and score of each pair.

    Raises:
      DataError: the header or a line is wrong. The message names the line.
    """
    lines = _lines(content, where)
    # A file with other columns may be one of the other releases of SICK.
    first, header = lines[0]
    if header != HEADER:
        raise DataError(f"{where}, line {first}: the header is not {HEADER!a}; {AGAIN}")
    rows = []
    for number, line in lines[1:]:
        try:
            # Another number of columns is a ValueError too.
            _, a, b, text, _ = line.split("\t")
            score = float(text)
            # No comparison with NaN is true.
            if not (1 <= score <= 5 and a.strip() and b.strip()):
                raise ValueError(line)
        except ValueError as e:
            raise DataError(
                f"{where}, line {number}: not five columns, with two sentences and a "
                f"score from 1 to 5 ({e!r:.80}); {AGAIN}"
            ) from None
        rows.append((a, b, score))
    return rows


def read_labelled(raw: RawFolder) -> Content:
    """Read the file of label 1 and the file of label 0, in the order of `checksums`.

    Label 1 comes first, as in the evaluation code of Kiros et al. (2015). The folds of
    the cross-validation depend on this order.
    """
    rows = []
    for label, name in zip((1, 0), raw.checksums, strict=True):
        lines = _lines(raw.read(name), raw.path(name))
        rows += [(line.strip(), label) for _, line in lines]
    return Content({"sentences": columns_of_labelled(rows)})


def _lines(content: bytes, where: object) -> list[tuple[int, str]]:
    """Return the numbers and the texts of the lines that are not empty.

    Raises:
      DataError: all are empty.
    """
    lines = decode(content, where).removesuffix("\n").split("\n")
    found = []
    # Numbers count all lines, so that a message names the line of an editor.
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append((number, line.removesuffix("\r")))
    if not found:
        raise DataError(f"{where}: contains no line of text; {AGAIN}")
    if empty := len(lines) - len(found):
        warnings.warn(f"{where}: {empty:,} empty lines left out", stacklevel=3)
    return found


SICK = Reader(
    title="SICK (SemEval-2014 task 1): 9,927 pairs of sentences, relatedness 1 to 5",
    read=read_sick,
    source=(
        "https://alt.qcri.org/semeval2014/task1/ "
        "(SICK_train, SICK_trial and SICK_test_annotated)"
    ),
    licence="CC BY-NC-SA 3.0 (Marelli et al. 2014)",
    size="4,500 train, 500 trial, 4,927 test; 1.1 MB",
    columns=PAIR_COLUMNS,
    files=PAIRS,
)
MR = Reader(
    title="MR (Pang and Lee 2005): 10,662 sentences of film reviews, 1 if positive",
    read=read_labelled,
    source=CORNELL + "rt-polaritydata.tar.gz",
    licence="none stated; research use, cite Pang and Lee (2005)",
    size="5,331 positive, 5,331 negative; 1.2 MB",
    columns=LABELLED_COLUMNS,
    files={
        "rt-polarity.pos": (
            "d79ef14009bbf87cd6be21f91c3ea1a3cbcb73b34dfb4231aef7bbcd7677abc4"
        ),
        "rt-polarity.neg": (
            "4af43bf489620b498a0852c5a8c6a535155dec7985fdfea782b8f7756b957ccc"
        ),
    },
)
CR = Reader(
    title="CR (Hu and Liu 2004): 3,771 sentences of product reviews, 1 if positive",
    read=read_labelled,
    source=NBSVM + " (custrev, one sentence a line)",
    licence="none stated; research use, cite Hu and Liu (2004)",
    size="2,405 positive, 1,366 negative; 0.4 MB",
    columns=LABELLED_COLUMNS,
    files={
        "custrev.pos": (
            "15eeb0b9424043bb3755488e2d8ed97bdaeba464a5c230f213bad075125d2192"
        ),
        "custrev.neg": (
            "8f29d7fa39f9862764b71f36b193f0674e0056287ffc5bf170edf6db42cc8f83"
        ),
    },
)
SUBJ = Reader(
    title="SUBJ (Pang and Lee 2004): 10,000 sentences about films, 1 if objective",
    read=read_labelled,
    source=CORNELL + "rotten_imdb.tar.gz",
    licence="none stated; research use, cite Pang and Lee (2004)",
    size="5,000 objective, 5,000 subjective; 1.3 MB",
    columns=LABELLED_COLUMNS,
    files={
        "plot.tok.gt9.5000": (
            "5ddc9b44dc60d64d651347fcd7bdd489b0c70661e3f768215c16eea36f51204a"
        ),
        "quote.tok.gt9.5000": (
            "73a2dcf8dc3cbcc7f068a70ef9f021c86b2a8e4dac81566b7fd015b3e938f2c5"
        ),
    },
)
MPQA = Reader(
    title="MPQA (Wiebe et al. 2005): 10,603 phrases of opinion, 1 if positive",
    read=read_labelled,
    source=NBSVM + " (mpqa, one phrase a line)",
    licence="terms of the MPQA site; cite Wiebe et al. (2005)",
    size="3,311 positive, 7,292 negative; 0.2 MB",
    columns=LABELLED_COLUMNS,
    files={
        "mpqa.pos": "f4aaafdd63c439fd2d056149f3b5d200416dabb200a8b7d8f4bf9903981ff8a5",
        "mpqa.neg": "02e193d98c7715bc6200bb23dc6d2903482bd80c0432c53c3f3738c636df3f72",
    },
)
