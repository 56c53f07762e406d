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

Own files may have coordinates with decimals and any names of forms. A form is called by
its path below ascii/ and lineStrokes/, such as "alice/page1", and a list may leave out
the folders where no other form has the name. The lists may be missing or empty: then
all forms that no list has are for training, and one in ten of them is for validation.
A form with other numbers of lines than of stroke files is refused.

An example is a line as handwriting.py describes it. Its strokes are int32, or float32
if coordinates have decimals. `SetFolder.facts` also contains:

    skipped    always empty; the fingerprints of kept runs contain it
    lines      number of lines of each list
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from lnrepro.data.files import AGAIN, decode
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Content, Reader
from lnrepro.data.readers.handwriting import COLUMNS, Line, content_of
from lnrepro.data.readers.iam_strokes import offsets, points
from lnrepro.data.text import plain_text
from lnrepro.errors import DataError

LISTS = ("trainset", "testset_v", "testset_t", "testset_f")
VALID = "testset_v"
# Name of a stroke file: the form and the number of the line.
STROKE_FILE = re.compile(r".+-[0-9]{1,6}\.xml")
# The line before the corrected lines, and a line break within one of them.
CORRECTED = re.compile(r"^CSR:", re.MULTILINE)
BREAK = re.compile("%%+")
# Without testset_v.txt, one in so many own forms is for validation.
HELD_OUT = 10
# The offsets of each line by its number, from 1.
Strokes = Mapping[int, np.ndarray]


def read(raw: RawFolder) -> Content:
    """Read the lists, the transcriptions and the strokes."""
    strokes = _read_strokes(raw)
    list_of = _read_lists(raw, strokes)
    texts = _read_texts(raw, list_of, strokes)
    splits = {"train": [], "valid": []}
    counts: dict[str, int] = dict.fromkeys(LISTS, 0)
    for form, name in list_of.items():
        # An official form is called by the last part of its path.
        form_id = form.rpartition("/")[2] if raw.official else form
        # Graves trains on both test sets too and reports on testset_v.
        lines = splits["valid" if name == VALID else "train"]
        for number, text in enumerate(texts[form], 1):
            line_id = f"{form_id}-{number:02}"
            lines.append(Line(strokes[form][number], text, line_id, LISTS.index(name)))
            counts[name] += 1
    if not splits["train"]:
        raise DataError(f"{raw.folder}: no line for training; {AGAIN}s")
    columns, facts, _ = content_of(splits)
    facts = {**facts, "skipped": [], "lines": counts}
    return Content(columns, facts, {"forms": len(list_of)})


def _read_strokes(raw: RawFolder) -> Mapping[str, Strokes]:
    """Read the strokes of all forms, by the path of the form below lineStrokes/."""
    strokes = defaultdict(dict)
    tree = raw.tree("lineStrokes", ("lineStrokes-all",), STROKE_FILE.fullmatch)
    for i, (path, content) in enumerate(tree):
        form, _, number = path.removesuffix(".xml").rpartition("-")
        line = points(content, raw.folder / "lineStrokes" / path)
        strokes[form][int(number)] = offsets(line)
        raw.progress("reading strokes", i, 0)
    return strokes


def _read_lists(raw: RawFolder, forms: Iterable[str]) -> dict[str, str]:
    """Read the lists. Return the list of each form by its path.

    A form that two lists have belongs to the later one. Without trainset.txt, all own
    forms that no list has are for training. Without testset_v.txt, one in HELD_OUT own
    training forms is for validation.

    Args:
      raw: the folder.
      forms: the paths of all forms with strokes.

    Raises:
      DataError: an official list is missing, or a list has a form without strokes or a
        name of several forms.
    """
    # A form is called by its path, or by the last part of it.
    paths = defaultdict(set)
    for form in forms:
        paths[form].add(form)
        paths[form.rpartition("/")[2]].add(form)
    list_of = {}
    for name in LISTS:
        file = f"{name}.txt"
        if not raw.official and not raw.find(file):
            continue
        where = raw.path(file)
        for entry in decode(raw.read(file), where).split():
            known = paths.get(entry, ())
            if len(known) != 1:
                raise DataError(
                    f"{where}: {len(known)} forms with strokes are called "
                    f"{entry!r:.80} instead of one; correct the list, or write the "
                    "path of the form"
                )
            list_of.update(dict.fromkeys(known, name))
    if raw.official:
        return list_of
    if LISTS[0] not in list_of.values():
        for form in sorted(forms):
            list_of.setdefault(form, LISTS[0])
    if VALID not in list_of.values():
        train = [form for form, name in list_of.items() if name == LISTS[0]]
        # The last of every ten, and at least one. A single form stays for training.
        step = max(2, min(HELD_OUT, len(train)))
        list_of.update(dict.fromkeys(train[step - 1 :: step], VALID))
    return list_of


def _read_texts(
    raw: RawFolder, forms: Iterable[str], strokes: Mapping[str, Strokes]
) -> dict[str, list[str]]:
    """Read the lines of text of each form, which has one stroke file for each.

    Args:
      raw: the folder.
      forms: the forms.
      strokes: the strokes of all forms.

    Raises:
      DataError: a form has no text file, one without corrected lines, or other numbers
        of lines than of stroke files.
    """
    names = {f"{form}.txt": form for form in forms}
    contents = dict(raw.tree("ascii", ("ascii-all",), names.__contains__))
    texts = {}
    for name, form in names.items():
        where = raw.folder / "ascii" / name
        if name not in contents:
            raise DataError(f"{where}: is missing; {AGAIN}")
        numbers = sorted(strokes[form])
        texts[form] = transcription(contents[name], where, len(numbers))
        # A missing stroke file would give all lines behind it the text of another line.
        count = len(texts[form])
        if numbers != list(range(1, count + 1)):
            raise DataError(
                f"{where}: {count} lines of text, and stroke files of the lines "
                f"{numbers[:99]}; one for each line is needed, from 1"
            )
    return texts


def transcription(content: bytes, where: object, count: int) -> list[str]:
    """Parse an ascii file.

    Args:
      content: content of the file.
      where: name of the file, for error messages.
      count: number of stroke files of the form. If the file has as many lines, "%" is
        no line break.

    Returns:
      The corrected lines, which follow "CSR:".

    Raises:
      DataError: there is no "CSR:".
    """
    text = plain_text(decode(content, where)).replace("\r\n", "\n")
    # Only what follows "CSR:" was corrected.
    found = CORRECTED.search(text)
    if not found:
        raise DataError(f"{where}: no line says 'CSR:'; {AGAIN}")
    lines = _without_empty(text[found.end() :].split("\n"))
    if len(lines) == count:
        return lines
    return _without_empty(BREAK.sub("\n", "\n".join(lines)).split("\n"))


def _without_empty(lines: Iterable[str]) -> list[str]:
    return [stripped for line in lines if (stripped := line.strip())]


IAM_ONDB = Reader(
    title="IAM On-Line Handwriting Database: 12,179 lines of pen strokes and text",
    read=read,
    configs=("configs/handwriting.py",),
    source="https://fki.tic.heia-fr.ch/databases/iam-on-line-handwriting-database",
    licence=(
        "free for non-commercial research after registration; "
        "cite Liwicki and Bunke (2005)"
    ),
    size=(
        "10,741 train, 1,438 valid; "
        "33 MB to download after registration, 95 MB prepared"
    ),
    columns=COLUMNS,
    files=dict.fromkeys(
        (
            "lineStrokes-all.tar",
            "ascii-all.tar",
            "trainset.txt",
            "testset_v.txt",
            "testset_t.txt",
            "testset_f.txt",
        )
    ),
    # Lines: Graves (2013), section 4, which counts 5,364 of trainset, 1,518 of
    # testset_t, 3,859 of testset_f, and 1,438 of testset_v. Forms: the lists of the
    # task IAM-OnDB-t1 have 775, 216, 544 and 192.
    published={"train": 10_741, "valid": 1_438, "forms": 1_727},
    sha256="07f2ff4037766602",
)
