"""IAM-OnDB: lines of English handwriting on a whiteboard as pen strokes, with text.

There is one XML file per line, such as lineStrokes/a01/a01-000/a01-000u-01.xml:

    <WhiteboardCaptureSession><StrokeSet>
    <Stroke colour="black" start_time="1.00" end_time="1.05">
    <Point x="210" y="340" time="1.00"/>
    <Point x="215" y="352" time="1.05"/>
    </Stroke></StrokeSet></WhiteboardCaptureSession>

There is one text file per form, such as ascii/a01/a01-000/a01-000u.txt. The lines of
the form follow "CSR:". What stands before is not corrected and is not used. A run of
"%" is also a line break:

    OCR:
    The boat cane back
    CSR:
    The boat came back
    at noon . %%% Nobody spoke .

The four lists of the task IAM-OnDB-t1, such as trainset.txt, contain ids of forms:

    a01-000u
    a01-002

lineStrokes and ascii are folders, or archives such as lineStrokes-all.tar.gz. The
splits are those of Graves (2013). train is trainset, testset_t and testset_f, 10,741
lines. valid is testset_v, 1,438 lines.

An example is one line with these features, for T points and U characters:

    strokes        [T - 1, 3] int32: dx and dy to the next point in units of the
                   whiteboard, where y grows downwards; 1 if that point ends a stroke
    text           [U] uint8: symbol numbers, see `encode`
    transcription  UTF-8 bytes of the text in the file
    id             ASCII bytes, such as "a01-000u-01"
    list           index in LISTS

`data.facts` contains:

    mean, std  of dx and dy in the training lines
    symbols    the symbols
    other      how often each character occurs that is not a symbol
    skipped    forms that were left out
    lines      number of lines of each list
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from xml.parsers import expat

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.raw import Raw, RawFile
from lnrepro.data.text import is_utf8, plain_punctuation
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

# Bytes of a file. The largest official file has 110,000.
LIMIT = 4 << 20
# Largest coordinate. The official lines stay below 10,000.
FARTHEST = 100_000
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
    """IAM On-Line Handwriting Database: 12,179 lines of pen strokes with their text."""

    configs = ("configs/handwriting.py",)
    source = "https://fki.tic.heia-fr.ch/databases/iam-on-line-handwriting-database"
    licence = (
        "free for non-commercial research after registration; "
        "cite Liwicki and Bunke (2005)"
    )
    size = (
        "10,741 train, 1,438 valid; "
        "33 MB to download after registration, 190 MB prepared"
    )
    files = (
        RawFile("lineStrokes-all.tar"),
        RawFile("ascii-all.tar"),
        *(RawFile(f"{name}.txt") for name in LISTS),
    )

    def features(self):
        """Return the features of an example, see the module."""
        return FEATURES

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Read the lists, the transcriptions and the strokes."""
        list_of = {}
        for name in LISTS:
            list_of |= dict.fromkeys(_forms(raw, f"{name}.txt"), name)
        texts: dict[str, list[str]] = {}
        for path, content in raw.tree(
            "ascii", ("ascii-all",), suffix=".txt", limit=LIMIT
        ):
            if (found := FORM.search(path)) and found[1] in list_of:
                texts[found[1]] = transcription(content, path)
        strokes: dict[str, dict[int, np.ndarray]] = defaultdict(dict)
        for path, content in raw.tree(
            "lineStrokes", ("lineStrokes-all",), suffix=".xml", limit=LIMIT
        ):
            if (found := LINE.search(path)) and found[1] in list_of:
                number = int(found[2])
                if number == 0:
                    raise DataError(f"{path}: lines are numbered from 01; {AGAIN}")
                strokes[found[1]][number] = offsets(points(content, path))
        splits, skipped = {"train": [], "valid": []}, []
        other, counts = Counter(), dict.fromkeys(LISTS, 0)
        for form, name in list_of.items():
            for kind, present in (("stroke file", strokes), ("transcription", texts)):
                if form not in present:
                    raise DataError(
                        f"{raw.folder / name}.txt lists {form}, which has no {kind}; "
                        f"{AGAIN}s"
                    )
            if max(strokes[form]) > len(texts[form]):
                skipped.append(form)
                continue
            counts[name] += len(strokes[form])
            for number, line in sorted(strokes[form].items()):
                line_id, text = f"{form}-{number:02}", texts[form][number - 1]
                splits["valid" if name == VALID else "train"].append(
                    example(line, text, line_id, LISTS.index(name), other)
                )
        if skipped:
            warnings.warn(
                f"{len(skipped)} forms have fewer lines of text than of strokes and "
                f"are left out: {', '.join(skipped[:9])}",
                stacklevel=2,
            )
        characters = sum(
            len(line["text"]) for split in splits.values() for line in split
        )
        if 2 * other.total() > characters:
            shown = " ".join(c for c, _ in other.most_common(5))
            raise DataError(
                f"{raw.folder}: {other.total():,} of {characters:,} characters are "
                f"not among the {len(SYMBOLS) - 1} symbols, such as {shown}; the texts "
                "must be English"
            )
        if splits["train"]:
            self.facts |= facts(splits["train"], other)
        self.facts |= {"skipped": skipped, "lines": counts}
        return splits


def example(
    strokes: np.ndarray, text: str, name: str, number: int, other: Counter
) -> Example:
    """Return the example of a line.

    Args:
      strokes: offsets [T - 1, 3].
      text: the transcription.
      name: id of the line.
      number: index of its list in LISTS.
      other: characters that are not symbols are counted here.
    """
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
    """Return the facts of the training lines.

    Args:
      train: the training lines.
      other: how often each character occurs that is not a symbol.
    """
    steps = np.concatenate([line["strokes"][:, :2] for line in train])
    steps = steps.astype(np.float64)
    return {
        "mean": steps.mean(0).tolist(),
        "std": steps.std(0).tolist(),
        "symbols": list(SYMBOLS),
        "other": dict(other.most_common()),
    }


def encode(text: str) -> tuple[np.ndarray, list[str]]:
    """Return the symbol numbers of a text [U] uint8, and its other characters.

    Characters that are not symbols have number 0.
    """
    tokens = np.array([NUMBERS.get(c, 0) for c in text], np.uint8)
    return tokens, [c for c in text if c not in NUMBERS]


def points(content: bytes, where: object) -> np.ndarray:
    """Parse a lineStrokes XML file.

    Args:
      content: content of the file.
      where: name of the file, for error messages.

    Returns:
      The points [T, 3] int32: x, y, and 1 if the point ends a stroke.

    Raises:
      DataError: the XML is broken or is not a line of handwriting. Document types are
        an error, and therefore also all entities and external references.
    """
    parser = expat.ParserCreate()
    seen: set[str] = set()
    found: list[tuple[int, int]] = []
    # Number of points at the end of each stroke.
    ends: list[int] = []

    def fail(problem: str):
        raise DataError(f"{where}, line {parser.CurrentLineNumber}: {problem}; {AGAIN}")

    def start(name: str, attributes: dict[str, str]):
        seen.add(name)
        if name != "Point":
            return
        for key in ("x", "y"):
            if key not in attributes:
                fail(f"a Point without {key}")
        x, y = attributes["x"], attributes["y"]
        try:
            point = int(x), int(y)
        except ValueError:
            fail(f"a Point at {x[:12]!a}, {y[:12]!a}, which are not integers")
        if max(map(abs, point)) >= FARTHEST:
            fail(f"a Point at {x[:12]}, {y[:12]}, which is {FARTHEST} or more")
        if "StrokeSet" not in seen:
            fail("a Point outside of a StrokeSet")
        found.append(point)

    def end(name: str):
        if name == "Stroke":
            if len(found) == (ends[-1] if ends else 0):
                fail("a Stroke without points")
            ends.append(len(found))

    def document_type(*_):
        fail("a document type, which these files do not have")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = document_type
    try:
        parser.Parse(content, True)
    except expat.ExpatError as e:
        problem = expat.ErrorString(e.code)
        raise DataError(
            f"{where}, line {e.lineno}: broken XML ({problem}); {AGAIN}"
        ) from None
    # Python's codecs raise these errors.
    except (LookupError, ValueError) as e:
        raise DataError(
            f"{where}, line 1: unknown encoding ({str(e)[:60]!a}); {AGAIN}"
        ) from None
    if "StrokeSet" not in seen:
        raise DataError(f"{where}: no StrokeSet; {AGAIN}")
    if len(found) < 2 or not ends or ends[-1] != len(found):
        raise DataError(
            f"{where}: {len(found)} points in {len(ends)} strokes are not a line of "
            f"handwriting; {AGAIN}"
        )
    line = np.zeros((len(found), 3), np.int32)
    line[:, :2] = found
    line[np.array(ends) - 1, 2] = 1
    return line


def offsets(line: np.ndarray) -> np.ndarray:
    """Convert points [T, 3] to offsets between them [T - 1, 3].

    The third column is 1 if the point at the end of the offset ends a stroke.
    """
    return np.concatenate([np.diff(line[:, :2], axis=0), line[1:, 2:]], axis=1)


def transcription(content: bytes, where: object) -> list[str]:
    """Parse an ascii file.

    Args:
      content: content of the file.
      where: name of the file, for error messages.

    Returns:
      The corrected lines, which follow "CSR:".

    Raises:
      DataError: there is no "CSR:".
    """
    text = plain_punctuation(_decoded(content)).replace("\r\n", "\n")
    _, found, body = text.partition("\nCSR:")
    if not found:
        raise DataError(f"{where}: no line says 'CSR:'; {AGAIN}")
    return [line for part in re.split("\n|%+", body) if (line := part.strip())]


def _decoded(content: bytes) -> str:
    """Decode text in UTF-8, or else in Latin-1. The official files are in ASCII."""
    return content.decode("utf-8-sig" if is_utf8(content) else "latin-1")


def _forms(raw: Raw, name: str) -> list[str]:
    """Return the ids of the forms in one of the lists, in its order."""
    forms = []
    for number, line in enumerate(_decoded(raw.read(name)).split("\n"), 1):
        for form in line.split():
            if not FORM.fullmatch(f"{form}.txt"):
                raise DataError(
                    f"{raw.path(name)}, line {number}: {form[:20]!a} is not an id of a "
                    f"form, such as a01-000u; {AGAIN}"
                )
            forms.append(form)
    if not forms:
        raise DataError(f"{raw.path(name)}: lists no form; {AGAIN}")
    return forms
