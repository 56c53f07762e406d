"""IAM-OnDB: lines of English written on a whiteboard by 221 people, as pen strokes with their text.

The official files: `lineStrokes/a01/a01-000/a01-000u-01.xml` (one line each) and `ascii/a01/a01-000/a01-000u.txt` (a
form's text), as folders or as lineStrokes-all and ascii-all (.tar, .tar.gz, .tgz, .tar.xz), and the four lists of forms
of task IAM-OnDB-t1. Splits are those of Graves (2013): train = trainset, testset_t and testset_f, 10,741 lines; valid =
testset_v, 1,438.

An example is one line:
  strokes        (t, 3) int32: dx, dy from point to point in the whiteboard's units (y grows downwards), and 1 where the
                 point reached ends a stroke
  text           (u,) uint8: symbol numbers, see `encode`
  transcription  UTF-8 bytes of the text as it stands in the file;   id  ASCII bytes, "a01-000u-01"
  list           place in LISTS

`data.facts`: "mean" and "std" of (dx, dy) over the training lines, "symbols", "other" (how often each character is
none of them), "skipped" (forms), "lines" (of each list).
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from xml.parsers import expat

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.raw import Raw, RawFile
from lnrepro.engine.errors import DataError

LISTS = ("trainset", "testset_v", "testset_t", "testset_f")
VALID = "testset_v"
OTHER = "<other>"
SYMBOLS = (
    OTHER,
    *" ',.",
    *map(chr, range(ord("A"), ord("Z") + 1)),
    *map(chr, range(ord("a"), ord("z") + 1)),
)
NUMBERS = {symbol: i for i, symbol in enumerate(SYMBOLS)}

LIMIT = 4 << 20  # bytes of one file; the largest of the official ones has 110,000
FARTHEST = (
    100_000  # units from the whiteboard's corner; the official lines stay below 10,000
)
LINE = re.compile(r"(?:^|/)([a-z]\d\d-\d{3}[a-z]?)-(\d\d)\.xml$")
FORM = re.compile(r"(?:^|/)([a-z]\d\d-\d{3}[a-z]?)\.txt$")
AGAIN = "get the official file"

FEATURES = {
    "strokes": array((None, 3), np.int32),
    "text": array((None,), np.uint8),
    "transcription": array((None,), np.uint8),
    "id": array((None,), np.uint8),
    "list": array((), np.uint8),
}


class IamOndb(Builder):
    """IAM On-Line Handwriting Database: 12,179 lines of pen strokes, written on a whiteboard, with their text."""

    source = "https://fki.tic.heia-fr.ch/databases/iam-on-line-handwriting-database"
    licence = "free for non-commercial research after registration; cite Liwicki and Bunke (2005)"
    size = "10,741 train, 1,438 valid; 33 MB to download after registration, 190 MB prepared"
    files = (
        RawFile("lineStrokes-all.tar"),
        RawFile("ascii-all.tar"),
        *(RawFile(f"{name}.txt") for name in LISTS),
    )

    def features(self):
        """Strokes, text, transcription, id, list."""
        return FEATURES

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Reads the four lists, all transcriptions and the listed forms' lines."""
        lists = {name: _forms(raw, f"{name}.txt") for name in LISTS}
        listed = {form: k for k, name in enumerate(LISTS) for form in lists[name]}
        texts = {
            found[1]: transcription(content, path)
            for path, content in raw.tree(
                "ascii", ("ascii-all",), suffix=".txt", limit=LIMIT
            )
            if (found := FORM.search(path)) and found[1] in listed
        }
        strokes: dict[str, dict[int, np.ndarray]] = {}
        for path, content in raw.tree(
            "lineStrokes", ("lineStrokes-all",), suffix=".xml", limit=LIMIT
        ):
            if (found := LINE.search(path)) and found[1] in listed:
                if found[2] == "00":
                    raise DataError(f"{path}: lines are numbered from 01; {AGAIN}")
                strokes.setdefault(found[1], {})[int(found[2])] = offsets(
                    points(content, path)
                )
        lines, skipped, other = [], [], Counter()
        for form, k in listed.items():
            missing = (
                "stroke files"
                if form not in strokes
                else "a transcription"
                if form not in texts
                else ""
            )
            if missing:
                raise DataError(
                    f"{raw.folder / LISTS[k]}.txt lists {form}, of which there are no {missing}; {AGAIN}s"
                )
            if max(strokes[form]) > len(texts[form]):
                skipped.append(form)
                continue
            for number, line in sorted(strokes[form].items()):
                lines.append(
                    example(
                        line, texts[form][number - 1], f"{form}-{number:02}", k, other
                    )
                )
        if skipped:
            warnings.warn(
                f"{len(skipped)} forms have fewer lines of text than of strokes and are left out: {', '.join(skipped[:9])}",
                stacklevel=2,
            )
        splits = {
            "train": [line for line in lines if line["list"] != LISTS.index(VALID)],
            "valid": [line for line in lines if line["list"] == LISTS.index(VALID)],
        }
        if splits["train"]:
            self.facts |= facts(splits["train"], other)
        counts = Counter(int(line["list"]) for line in lines)
        self.facts |= {
            "skipped": skipped,
            "lines": {name: counts[k] for k, name in enumerate(LISTS)},
        }
        return splits


def example(
    strokes: np.ndarray, text: str, name: str, number: int, other: Counter
) -> Example:
    """One example; counts in `other` the characters that are no symbols."""
    tokens, unknown = encode(text)
    other.update(unknown)
    return {
        "strokes": strokes.astype(np.int32),
        "text": tokens,
        "transcription": np.frombuffer(text.encode(), np.uint8),
        "id": np.frombuffer(name.encode(), np.uint8),
        "list": np.uint8(number),
    }


def facts(train: Iterable[Example], other: Counter) -> dict:
    """Mean and standard deviation of the training lines' offsets, the symbols, and what was none of them."""
    steps = np.concatenate([line["strokes"][:, :2] for line in train]).astype(
        np.float64
    )
    return {
        "mean": steps.mean(0).tolist(),
        "std": steps.std(0).tolist(),
        "symbols": list(SYMBOLS),
        "other": dict(other.most_common()),
    }


def encode(text: str) -> tuple[np.ndarray, list[str]]:
    """Symbol numbers (u,) uint8 of a text, and its characters that have none and become number 0."""
    tokens = np.array([NUMBERS.get(c, 0) for c in text], np.uint8)
    return tokens, [c for c, token in zip(text, tokens, strict=True) if token == 0]


def points(content: bytes, where: object) -> np.ndarray:
    """A lineStrokes XML file -> (n, 3) int32: x, y in the whiteboard's units, and 1 at the end of a stroke.

    A document type, and with it every entity and external reference, is refused. Raises DataError, beginning with
    `where` and the line, for broken XML, no StrokeSet, a stroke without points, coordinates that are no integers.
    """
    parser = expat.ParserCreate()
    found: list[int] = []
    ends: list[int] = []
    sets = 0

    def fail(what):
        raise DataError(f"{where}, line {parser.CurrentLineNumber}: {what}; {AGAIN}")

    def start(name, attributes):
        nonlocal sets
        if name == "Point":
            try:
                texts = attributes["x"], attributes["y"]
                x, y = map(int, texts)
            except KeyError as e:
                fail(f"a Point without {e.args[0]}")
            except ValueError:
                fail(
                    f"a Point at {texts[0][:12]!a}, {texts[1][:12]!a}, which are not integers"
                )
            if not (-FARTHEST < x < FARTHEST and -FARTHEST < y < FARTHEST):
                fail(
                    f"a Point at {texts[0][:12]}, {texts[1][:12]}, farther than {FARTHEST} units away"
                )
            if not sets:
                fail("a Point outside of a StrokeSet")
            found.append(x)
            found.append(y)
        elif name == "StrokeSet":
            sets += 1

    def end(name):
        if name == "Stroke":
            if len(found) == (2 * ends[-1] if ends else 0):
                fail("a Stroke without points")
            ends.append(len(found) // 2)

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = lambda *_: fail(
        "a document type, which these files do not have"
    )
    try:
        parser.Parse(content, True)
    except expat.ExpatError as e:
        raise DataError(
            f"{where}, line {e.lineno}: broken XML ({expat.ErrorString(e.code)}); {AGAIN}"
        ) from None
    except (LookupError, ValueError) as e:  # from Python's codecs
        raise DataError(
            f"{where}, line 1: an encoding that cannot be read ({str(e)[:60]!a}); {AGAIN}"
        ) from None
    if not sets:
        raise DataError(f"{where}: no StrokeSet; {AGAIN}")
    if len(found) < 4 or not ends or 2 * ends[-1] != len(found):
        raise DataError(
            f"{where}: {len(found) // 2} points in {len(ends)} strokes are no line of handwriting; {AGAIN}"
        )
    line = np.zeros((len(found) // 2, 3), np.int32)
    line[:, :2] = np.array(found, np.int32).reshape(-1, 2)
    line[np.array(ends) - 1, 2] = 1
    return line


def offsets(line: np.ndarray) -> np.ndarray:
    """Points (n, 3) -> (n - 1, 3): from each point to the next, with the next one's end of stroke."""
    return np.concatenate([np.diff(line[:, :2], axis=0), line[1:, 2:]], axis=1)


def transcription(content: bytes, where: object) -> list[str]:
    """The corrected lines of an ascii file, those below "CSR:"; a run of % within one is a line break. Raises DataError."""
    _, found, body = content.decode("latin-1").replace("\r\n", "\n").partition("\nCSR:")
    if not found:
        raise DataError(f"{where}: no line says 'CSR:'; {AGAIN}")
    return [
        part.strip()
        for line in body.split("\n")
        for part in re.split("%+", line)
        if part.strip()
    ]


def _forms(raw: Raw, name: str) -> list[str]:
    """The form ids in one of the lists, in its order."""
    forms = []
    for number, line in enumerate(raw.read(name).decode("latin-1").split("\n"), 1):
        for form in line.split():
            if not FORM.fullmatch(f"{form}.txt"):
                raise DataError(
                    f"{raw.path(name)}, line {number}: {form[:20]!a} is no form id such as a01-000u; {AGAIN}"
                )
            forms.append(form)
    if not forms:
        raise DataError(f"{raw.path(name)}: lists no form; {AGAIN}")
    return forms
