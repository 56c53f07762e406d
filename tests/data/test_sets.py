"""Small sets of every format: from official files to columns, and what is refused."""

import json
import pickle

import numpy as np
import pytest

from lnrepro import data
from tests.data import idx, lines
from tests.data.lines import ROW, table
from tests.data.reading import read, refused, write
from tests.data.test_captions import ROWS, as_text, image, lines_of, npy, unit_rows
from tests.data.test_cnn import text
from tests.data.test_iam_ondb import xml
from tests.hardening.formats import FORM, FORMATS, SETS, archived

# The beginnings of the checksums of the sets. No change of this package changes them.
CHECKSUMS = {
    "mnist": "c1794ed97234791b",
    "binarized_mnist": "832fe4cf12461e59",
    "iam_ondb": "bd8ad5124ea3adf0",
    "cnn": "de8a0a2ab207d20c",
    "cnn_top4": "f73f693eaabd5644",
    "coco_captions": "4811fbfba2cc5b78",
    "bookcorpus": "d05ed0c3f2636e85",
    "sick": "27e032840aff8787",
    "cr": "4f90581dbc69e373",
}


def changed(dataset, changes):
    """The files of a small set, some of which are others or, for None, missing."""
    files = {**SETS[dataset], **changes}
    return {name: content for name, content in files.items() if content is not None}


def prepare(root, dataset, changes):
    """Prepare a small set in which some files are others."""
    write(root / "raw", changed(dataset, changes))
    data.prepare(dataset, root / "raw", root / "data", own_name="own")
    return data.open_set("own", root / "data")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dataset", SETS)
def test_a_set_holds_what_its_reader_returns(dataset, tmp_path):
    opened = prepare(tmp_path, dataset, {})
    opened.verify()
    assert opened.fingerprint == f"own/1.0.0/{CHECKSUMS[dataset]}"
    assert opened.folder == tmp_path / "data/own/1.0.0"
    assert opened.files["files read"] == len(SETS[dataset])
    if opened.by_file:
        return
    content = read(data.reader_of(dataset), tmp_path / "raw")
    assert opened.facts == content.facts
    for split, wanted in content.splits.items():
        columns = opened.columns(split)
        for name, column in wanted.items():
            assert len(column) == opened.splits[split]
            for found, value in zip(columns[name], column, strict=True):
                np.testing.assert_array_equal(found, value)


def karpathy(content):
    """Captions in JSON in place of text."""
    return {"train.txt": None, "dataset_coco.json": content}


def same_captions(six=True):
    """The small set in the JSON of Karpathy; the first image may have no caption."""
    images = []
    for stem, rows in ROWS.items():
        lines = lines_of(stem, rows)
        for n in range(rows):
            # A sixth caption is not used, and an empty one gives way to others.
            texts = ["", *lines[5 * n : 5 * n + 5], "x"] if six or n else []
            images.append(image(stem, n + 7 * (stem == "val"), texts))
    # The last training image is one of "restval".
    images[3]["split"] = "restval"
    return json.dumps({"images": images})


# Other files of the same sets.
AMAT = "binarized_mnist_train.amat"
TWO = lines.AMAT[: 2 * 1568]
ASKED = "questions/training/0.question"
QUESTION = SETS["cnn"][ASKED]
LINES = SETS["coco_captions"]["train.txt"]
SAME = [
    ("binarized_mnist", {AMAT: TWO.rstrip()}),
    ("binarized_mnist", {AMAT: TWO.replace(b"\n", b" \r\n") + b"\n"}),
    ("cnn", {ASKED: b"\xef\xbb\xbf" + QUESTION}),
    ("cnn", {ASKED: QUESTION.replace(b"\n", b"\r\n") + b"\r\n\n"}),
    ("cnn", {ASKED: QUESTION.rpartition(b"\n\n")[0]}),
    ("coco_captions", {"train.txt": LINES[:99] + b"\xef\xbb\xbf" + LINES[99:]}),
    ("coco_captions", {"train.txt": LINES.decode().encode("utf-16")}),
    ("coco_captions", {"val_ids.txt": as_text(np.repeat([7, 8, 9], 5))}),
    ("coco_captions", karpathy(same_captions())),
    ("sick", {"SICK_trial.txt": table(ROW, end="\r\n")}),
    ("sick", {"SICK_trial.txt": table(ROW, end="\r")}),
    ("cr", {"custrev.pos": "a fine film \u2026\n \ngood ."}),
    ("iam_ondb", dict.fromkeys(SETS["iam_ondb"]) | FORMATS["archive"].files),
    ("cnn", dict.fromkeys(SETS["cnn"]) | archived(SETS["cnn"], "questions", "cnn.tar")),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("dataset", "changes"), SAME)
def test_other_files_of_the_same_set(dataset, changes, tmp_path):
    assert prepare(tmp_path, dataset, changes).sha256[:16] == CHECKSUMS[dataset]


def pickles(**lists):
    return {f"{name}.pkl": pickle.dumps(values, 2) for name, values in lists.items()}


TRAIN, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
GOOD = SETS["mnist"]
XML = f"lineStrokes/{FORM}-02.xml"
XML_2 = xml([[(1, 2), (3, 4)]])
TRAIN_NPY, VAL_NPY = "images/10crop/train.npy", "images/10crop/val.npy"
INFINITE = unit_rows(4)
INFINITE[1, 5] = np.inf
JSON = "dataset_coco.json: not JSON with a list of images that have split, cocoid and"
UNLIKE = "train.txt: 20 captions are not the same number for each of 4 images; .*write"
# The set, the changes, and the error.
WRONG = [
    ("mnist", {TRAIN: GOOD[TRAIN][:-100]}, r"\[2051, 12, 28, 28\] .* the 9308 bytes"),
    ("mnist", {TRAIN: GOOD[LABELS]}, r"\[2049, 12, .*magic number 2051"),
    ("mnist", {TRAIN: idx.header(2051, 12, 14, 14) + bytes(12 * 196)}, r"\(12, 14, 14"),
    (
        "mnist",
        {LABELS: GOOD[LABELS][:-1] + b"\n"},
        "label of example .* is 10; .* 0 to 9",
    ),
    (
        "binarized_mnist",
        {AMAT: TWO[:9] + b"1" + TWO[9:]},
        "line 1: 785 .* 0 are neither",
    ),
    (
        "iam_ondb",
        {XML: XML_2[:-20]},
        r"u-02.xml: .* line \d+, column",
    ),
    ("iam_ondb", {XML: xml([[(1, 2)]])}, "strokes of .1. points; a line needs"),
    ("iam_ondb", {XML: xml([[(1, 2)], [], [(3, 4)]])}, "strokes of .1, 0, 1. points"),
    (
        "iam_ondb",
        {XML: xml([[(1, 2), (10**9, 4)]])},
        "point 2: .1000000000.0, 4.0. are",
    ),
    ("iam_ondb", {XML: xml([[(1, 2), (3, "nan")]])}, "point 2: .3.0, nan. are not two"),
    ("iam_ondb", {f"ascii/{FORM}.txt": "OCR:\n\nabc"}, "no line says 'CSR:'"),
    ("iam_ondb", {XML: None}, r"3 lines of text, and .* of the lines \[1, 3\]"),
    ("iam_ondb", {f"ascii/{FORM}.txt": None}, "a01-000u.txt: is missing"),
    ("iam_ondb", {"trainset.txt": "z99"}, "trainset.txt: 0 forms .* are called 'z99'"),
    ("iam_ondb", {"trainset.txt": None}, "trainset.txt: there is no such file"),
    ("cnn", {ASKED: text((1, "  "))}, "line 3: the passage is missing"),
    (
        "cnn",
        {ASKED: text().replace(b"\n\n", b"\n", 1)},
        "line 2: an empty line after the",
    ),
    (
        "cnn",
        {ASKED: text((2, "who"))},
        "line 5: the question has 0 @placeholder tokens",
    ),
    (
        "cnn",
        {ASKED: text((3, "C"))},
        "line 7: the answer 'C' is not of the form @entityN",
    ),
    (
        "cnn",
        {ASKED: None},
        "there must be files in questions/training and questions/val",
    ),
    (
        "cnn",
        {"questions/dev/0.question": text()},
        r"must be in questions/\{training,val",
    ),
    (
        "cnn_top4",
        pickles(dict={"a": "b"}),
        "dict.pkl: not a dict of words and their num",
    ),
    ("cnn_top4", pickles(dict={"a": 1, "b": 1}), "dict.pkl: .* all of them different"),
    (
        "cnn_top4",
        pickles(train4_qs=[[6, 4, 0]]),
        "train4_pass, .* different numbers of",
    ),
    ("cnn_top4", pickles(valid4_pass=[[4, 99, 0]]), "valid4_pass.pkl, list 0: .*99"),
    ("cnn_top4", pickles(valid4_pass=[[4]]), "valid4_pass.pkl, list 0: .*out of range"),
    ("cnn_top4", pickles(valid4_ans=[[4]]), "list 0: not the number of an entity"),
    ("cnn_top4", pickles(valid4_ans=[[3, 3]]), "list 0: not the number of an entity"),
    ("cnn_top4", pickles(train4_ans={"a": 1}), "list 0: not a list of numbers"),
    ("coco_captions", {"train.txt": as_text(range(21))}, UNLIKE.replace("20", "21")),
    (
        "coco_captions",
        {"train.txt": LINES.replace(b"a train of image 3 caption 0", b" ")},
        "train.txt: image 4 has a ",
    ),
    ("coco_captions", karpathy(same_captions(six=False)), "image 1 has a caption w"),
    ("coco_captions", {"train.txt": "\n \n"}, "train.txt: contains no caption"),
    ("coco_captions", {"train_ids.txt": "1\nx\n"}, "not one image id per line .*'x'"),
    ("coco_captions", {"train_ids.txt": "1\n2\n"}, UNLIKE),
    ("coco_captions", {TRAIN_NPY: npy(unit_rows(4)[:0])}, r"float32 \(0, 8\) instead"),
    ("coco_captions", {TRAIN_NPY: npy(INFINITE)}, "image of example 1 of train is inf"),
    ("coco_captions", {VAL_NPY: npy(unit_rows(3))[:-9]}, "not a plain .npy array"),
    (
        "coco_captions",
        {VAL_NPY: npy(np.ones((3, 9), "f4"))},
        r"different shapes.*\(9,\)",
    ),
    ("coco_captions", karpathy(json.dumps({"images": [image("dev", 1, "a")]})), JSON),
    (
        "coco_captions",
        karpathy(b'{"images": [{"sentences": [{"tokens": "a"}]}]}'),
        JSON,
    ),
    (
        "coco_captions",
        karpathy(b'{"images": [{"sentences": [{"tokens": ["\\ud800"]}]}]}'),
        JSON,
    ),
    ("sick", {"SICK_trial.txt": table(ROW.replace("4.5", "high"))}, "line 2: .*'high'"),
    (
        "sick",
        {"SICK_trial.txt": table(ROW[:2] + " \tb\t2\tc")},
        "line 2: not five columns, w",
    ),
    ("sick", {"SICK_trial.txt": table(ROW, header="a\tb")}, "line 1: the header is"),
    ("cr", {"custrev.neg": " \n\n"}, "custrev.neg: contains no line of text"),
    (
        "cr",
        {"custrev.neg": b"a\nb\x00"},
        "custrev.neg, line 2: a NUL byte; save the file",
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("dataset", "changes", "message"), WRONG)
def test_wrong_files_are_named(dataset, changes, message, tmp_path):
    raw = write(tmp_path, changed(dataset, changes))
    with refused(f"{raw}.*{message}"):
        own_name = None if dataset == "iam_ondb" else "own"
        data.prepare(dataset, raw, tmp_path / "data", own_name=own_name)
    assert not list(tmp_path.glob("data/*/*"))
