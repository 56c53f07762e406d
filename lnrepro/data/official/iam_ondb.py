"""IAM-OnDB: lines of English handwriting on a whiteboard as pen strokes, with text.

There is one XML file per line, such as lineStrokes/a01/a01-000/a01-000u-01.xml:

    <WhiteboardCaptureSession><StrokeSet>
    <Stroke colour="black" start_time="1.00" end_time="1.05">
    <Point x="210" y="340" time="1.00"/>
    <Point x="215" y="352" time="1.05"/>
    </Stroke></StrokeSet></WhiteboardCaptureSession>

There is one text file per form, such as ascii/a01/a01-000/a01-000u.txt. The lines of
the form follow "CSR:". What stands before is not corrected and is not used. Line k is
the text of stroke file k. A run of "%" is also a line break, unless the form has as
many stroke files as lines without it:

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

Own files may have coordinates with decimals and any names of forms. Forms of one name
in several folders are told apart by their paths, such as "alice/page1". Their lists may
be missing or empty: then all forms that no list has are for training, and one in ten of
them is for validation. Forms with other numbers of lines than of stroke files are left
out.

An example is one line with these features, for T points and U characters:

    strokes        [T - 1, 3] int32: dx and dy to the next point in units of the
                   whiteboard, where y grows downwards; 1 if that point ends a stroke.
                   They are float32 if coordinates have decimals
    text           [U] uint8: symbol numbers, see `encode`
    transcription  UTF-8 bytes of the text in the file
    id             ASCII bytes, such as "a01-000u-01"
    list           index in LISTS

`data.facts` contains:

    mean, std  of dx and dy in the training lines
    symbols    the symbols
    other      how often each character occurs that is not a symbol
    skipped    forms that were left out for other numbers of lines than of stroke files
    lines      number of lines of each list
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.encodings import decode, visible
from lnrepro.data.official.iam_strokes import AGAIN, offsets, points
from lnrepro.data.raw import Raw, RawFile
from lnrepro.data.text import plain_punctuation
from lnrepro.errors import DataError

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
# Names of the files, with the id of the form and the number of the line. The ids of
# own forms are any names.
LINE = re.compile(r"(?:^|/)([a-z]\d\d-\d{3}[a-z]?)-(\d\d)\.xml$")
FORM = re.compile(r"(?:^|/)([a-z]\d\d-\d{3}[a-z]?)\.txt$")
OWN_LINE = re.compile(r"(?:^|/)([^/]+)-([0-9]{1,6})\.xml$")
OWN_FORM = re.compile(r"(?:^|/)([^/]+)\.txt$")
# The line before the corrected lines, and a line break within one of them.
CORRECTED = re.compile(r"^CSR:", re.MULTILINE)
BREAK = re.compile("%%+")
# Without testset_v.txt, one in so many own forms is for validation.
HELD_OUT = 10


def features_of_lines() -> dict:
    """Return the TFDS features of a line of pen strokes."""
    return {
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

    # Type of the offsets. `examples` sets it to float32 if coordinates have decimals.
    dtype = np.int32

    def features(self):
        """Return the features of an example, see the module."""
        return features_of_lines() | {"strokes": array((None, 3), self.dtype)}

    def examples(self, raw: Raw) -> Mapping[str, Sequence[Example]]:
        """Read the lists, the transcriptions and the strokes."""
        line_name, form_name = LINE, FORM
        if raw.any_checksum:
            line_name, form_name = OWN_LINE, OWN_FORM
        list_of = {}
        # A form that two lists have belongs to the later one.
        for name in LISTS:
            forms = _forms(raw, f"{name}.txt", form_name)
            list_of |= dict.fromkeys(forms, name)
        # Without a list of training forms, all forms are read.
        wanted = None
        if LISTS[0] in list_of.values():
            wanted = {_name(form) for form in list_of}
        texts = _texts(raw, form_name, wanted)
        # Archives are read once, in their own order. Therefore files are collected
        # first and put together below.
        strokes = _strokes(raw, line_name, wanted)
        texts, strokes, list_of = _by_name(raw, texts, strokes, list_of)
        forms = list(list_of)
        if raw.any_checksum and wanted is None:
            forms = sorted({*list_of, *strokes})
        _check_files(raw, forms, list_of, texts, strokes)
        # A text without strokes is no line of the set, and harmless.
        if unused := len(texts.keys() - strokes.keys()):
            raw.notes["texts of forms without strokes left out"] += unused
        lines = _lines(raw, forms, texts, strokes)
        kept = {form: name for form, name in list_of.items() if form in lines}
        if raw.any_checksum:
            _add_missing_lists(kept, lines, set(list_of.values()))
        # Official coordinates are whole numbers, which int32 keeps exactly.
        if any(line.dtype.kind == "f" for f in kept for line in strokes[f].values()):
            self.dtype = np.float32
        splits, other = {"train": [], "valid": []}, Counter()
        for form, name in kept.items():
            for number, line in sorted(strokes[form].items()):
                line_id, text = f"{form}-{number:02}", lines[form][number - 1]
                line = line.astype(self.dtype)
                # Graves trains on both test sets too and reports on testset_v.
                splits["valid" if name == VALID else "train"].append(
                    example(line, text, line_id, LISTS.index(name), other)
                )
        _check_symbols(raw, splits, other)
        # Mean and deviation are those of the training lines alone.
        if splits["train"]:
            self.facts |= facts(splits["train"], other)
        counts: dict[str, int] = dict.fromkeys(LISTS, 0)
        for form, name in kept.items():
            counts[name] += len(strokes[form])
        skipped = [form for form in forms if form not in lines]
        self.facts |= {"skipped": skipped, "lines": counts}
        return splits


def _texts(
    raw: Raw, form_name: re.Pattern, wanted: Collection[str] | None
) -> dict[str, tuple[bytes, str]]:
    """Read the text file of each form.

    Args:
      raw: the folder.
      form_name: pattern of the names of the files.
      wanted: names of forms, or None for all.

    Returns:
      Content and name of each file by the path of the form, such as "alice/page1".
    """
    texts = {}
    for path, content in raw.tree("ascii", ("ascii-all",), suffix=".txt", limit=LIMIT):
        found = form_name.search(path)
        if found and (wanted is None or found[1] in wanted):
            texts[path[: found.end(1)]] = content, path
    return texts


def _strokes(
    raw: Raw, line_name: re.Pattern, wanted: Collection[str] | None
) -> dict[str, dict[int, np.ndarray]]:
    """Read the offsets of each line, by the path of the form and the number."""
    strokes = defaultdict(dict)
    for path, content in raw.tree(
        "lineStrokes", ("lineStrokes-all",), suffix=".xml", limit=LIMIT
    ):
        found = line_name.search(path)
        if found and (wanted is None or found[1] in wanted):
            number = int(found[2])
            if number == 0:
                raise DataError(f"{path}: lines are numbered from 01; {AGAIN}")
            form = path[: found.end(1)]
            if number in strokes[form]:
                raise DataError(f"{path}: a second line {number} of this form")
            strokes[form][number] = offsets(points(content, path))
    return strokes


def _by_name(
    raw: Raw,
    texts: dict[str, tuple[bytes, str]],
    strokes: dict[str, dict[int, np.ndarray]],
    list_of: dict[str, str],
) -> tuple[dict, dict, dict[str, str]]:
    """Replace the paths of forms by their names, if no two forms have one name.

    Args:
      raw: the folder.
      texts: the texts by the path of the form.
      strokes: the strokes by the path of the form.
      list_of: the list of each form by its name or path.

    Returns:
      The texts, the strokes and the lists by name, or all by path.

    Raises:
      DataError: two official forms have one name, or a list has a name of two forms.
    """
    paths_of = defaultdict(set)
    for path in (*texts, *strokes):
        paths_of[_name(path)].add(path)
    # No two official forms have one name, so that the last part of a path is enough.
    folders = ([_name(path) for path in texts], [_name(path) for path in strokes])
    if all(len(names) == len(set(names)) for names in folders):
        texts = {_name(path): text for path, text in texts.items()}
        strokes = {_name(path): lines for path, lines in strokes.items()}
        return texts, strokes, {_name(path): k for path, k in list_of.items()}
    by_path = {}
    for form, name in list_of.items():
        known = {form} if "/" in form else paths_of[form] or {form}
        if len(known) > 1:
            shown = ", ".join(path[:80] for path in sorted(known)[:5])
            raise DataError(
                f"{raw.folder / name}.txt: {form} is the name of several forms "
                f"({shown}); write their paths, or rename them"
            )
        by_path |= dict.fromkeys(known, name)
    return texts, strokes, by_path


def _name(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def _lines(
    raw: Raw,
    forms: Iterable[str],
    texts: Mapping[str, tuple[bytes, str]],
    strokes: Mapping[str, Mapping[int, np.ndarray]],
) -> dict[str, list[str]]:
    """Read the lines of text of each form that has one stroke file for each.

    Args:
      raw: the folder.
      forms: the forms.
      texts: content and name of each text file.
      strokes: the strokes by form and number.

    Returns:
      The lines by form. Warns of other forms.
    """
    lines, skipped = {}, []
    for form in forms:
        numbers = sorted(strokes[form])
        content, where = texts[form]
        found = transcription(content, where, len(numbers), raw.notes)
        # A missing stroke file would give all lines behind it the text of another line.
        if numbers == list(range(1, len(found) + 1)):
            lines[form] = found
        else:
            skipped.append(f"{form} ({len(found)} and {len(numbers)})")
    if skipped:
        warnings.warn(
            f"{len(skipped)} forms have other numbers of lines of text than of stroke "
            f"files and are left out: {', '.join(skipped[:9])}",
            stacklevel=3,
        )
    return lines


def _add_missing_lists(
    list_of: dict[str, str], forms: Iterable[str], lists: Collection[str]
) -> None:
    """Divide own forms where lists are missing or empty.

    Without trainset.txt, all forms that no list has are for training. Without
    testset_v.txt, one in HELD_OUT training forms is for validation.

    Args:
      list_of: the list of each form, which is changed.
      forms: all forms.
      lists: the lists that are neither missing nor empty.
    """
    if LISTS[0] not in lists:
        list_of |= {form: LISTS[0] for form in sorted(forms) if form not in list_of}
    if VALID not in lists:
        train = [form for form, name in list_of.items() if name == LISTS[0]]
        # The last of every ten, and at least one.
        step = min(HELD_OUT, len(train))
        list_of |= dict.fromkeys(train[step - 1 :: step] if step > 1 else (), VALID)


def _check_files(
    raw: Raw,
    forms: Iterable[str],
    list_of: Mapping[str, str],
    texts: Collection,
    strokes: Collection,
) -> None:
    """Raise DataError if a form has no file."""
    for form in forms:
        for kind, present in (("stroke file", strokes), ("transcription", texts)):
            if form not in present:
                where = f"{raw.folder}: {form[:80]}"
                if form in list_of:
                    where = f"{raw.folder / list_of[form]}.txt lists {form[:80]}, which"
                raise DataError(f"{where} has no {kind}; {AGAIN}s")


def _check_symbols(
    raw: Raw, splits: Mapping[str, Sequence[Example]], other: Counter
) -> None:
    """Raise DataError if most characters are not symbols."""
    characters = sum(len(line["text"]) for split in splits.values() for line in split)
    if 2 * other.total() > characters:
        shown = " ".join(visible(c) for c, _ in other.most_common(5))
        raise DataError(
            f"{raw.folder}: {other.total():,} of {characters:,} characters are "
            f"not among the {len(SYMBOLS) - 1} symbols, such as {shown}; the texts "
            "must be English"
        )


def example(
    strokes: np.ndarray, text: str, name: str, number: int, other: Counter
) -> Example:
    """Return the example of a line.

    Args:
      strokes: offsets [T - 1, 3], int32 or float32.
      text: the transcription.
      name: id of the line.
      number: index of its list in LISTS.
      other: characters that are not symbols are counted here.
    """
    tokens, unknown = encode(text)
    other.update(unknown)
    return {
        "strokes": strokes,
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
    # Sums over millions of offsets are taken in float64.
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


def transcription(
    content: bytes,
    where: object,
    count: int | None = None,
    notes: Counter[str] | None = None,
) -> list[str]:
    """Parse an ascii file.

    Args:
      content: content of the file.
      where: name of the file, for error messages.
      count: number of stroke files of the form, if it is known. If the file has as many
        lines, "%" is no line break.
      notes: what is odd in the text is counted here.

    Returns:
      The corrected lines, which follow "CSR:".

    Raises:
      DataError: there is no "CSR:".
    """
    text = plain_punctuation(decode(content, where, notes)).replace("\r\n", "\n")
    # Only what follows "CSR:" was corrected.
    found = CORRECTED.search(text)
    if not found:
        raise DataError(f"{where}: no line says 'CSR:'; {AGAIN}")
    lines = _without_empty(text[found.end() :].split("\n"))
    if len(lines) == count:
        return lines
    return _without_empty(part for line in lines for part in BREAK.split(line))


def _without_empty(lines: Iterable[str]) -> list[str]:
    return [stripped for line in lines if (stripped := line.strip())]


def _forms(raw: Raw, name: str, form_name: re.Pattern) -> list[str]:
    """Return the ids of the forms in one of the lists, in its order.

    Args:
      raw: the folder.
      name: name of the list.
      form_name: pattern of the names of the forms' files.
    """
    if raw.any_checksum and not raw.find(name):
        return []
    forms = []
    text = decode(raw.read(name), raw.path(name), raw.notes)
    for number, line in enumerate(text.split("\n"), 1):
        for form in line.split():
            # Only own forms have paths.
            known = _name(form) if raw.any_checksum else form
            if not form_name.fullmatch(f"{known}.txt") or not form.isprintable():
                raise DataError(
                    f"{raw.path(name)}, line {number}: {form[:20]!a} is not an id of a "
                    f"form, such as a01-000u; {AGAIN}"
                )
            forms.append(form)
    if not forms and not raw.any_checksum:
        raise DataError(f"{raw.path(name)}: lists no form; {AGAIN}")
    return forms
