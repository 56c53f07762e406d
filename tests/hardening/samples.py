"""Small files of every raw format, generated or cut from the official ones."""

import gzip
import io
import itertools
import json
import pathlib
import pickle
import struct
import tarfile
from typing import NamedTuple

import numpy as np

# One form of handwriting for each split list.
FORMS = {
    "trainset": "a01-000u",
    "testset_v": "a01-020x",
    "testset_t": "b01-000",
    "testset_f": "c01-000x",
}
SIDE = 28


class Sample(NamedTuple):
    """A small folder of official files, which `data.prepare(name, folder)` can read.

    Attributes:
      name: the data set.
      files: {path: content}.
    """

    name: str
    files: dict[str, bytes]


def samples(root: pathlib.Path | None = None) -> list[Sample]:
    """Return samples of every format.

    Args:
      root: folder with official files, of which further samples are cut; or None.
    """
    # Each sample is the smallest folder from which its set can be prepared.
    made = [
        Sample("mnist", _idx()),
        Sample("binarized_mnist", _amat(_matlab=False)),
        Sample("binarized_mnist", _amat(_matlab=True)),
        Sample("iam_ondb", _iam(_xml(), _ascii())),
        Sample("cnn", _questions()),
        Sample("cnn_top4", _pickles(2)),
        Sample("cnn_top4", _pickles(0)),
        Sample("captions_proxy", _captions()),
        Sample("captions_proxy", _karpathy()),
        Sample("captions_proxy", _coco()),
        Sample(
            "gutenberg",
            {
                "a.txt": b"one two three .\nfour .\n\nfive six .\nseven .\n",
                "b.txt.gz": gzip.compress(BOOK),
            },
        ),
        Sample(
            "sick",
            dict.fromkeys(
                ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"), SICK
            ),
        ),
        Sample(
            "mr",
            {
                "rt-polarity.pos": b"a fine film \x85\ngood .\n",
                "rt-polarity.neg": b"bad .\n caf\xe9\r\n",
            },
        ),
        Sample(
            "word2vec",
            {
                "vectors.bin": _word2vec(b""),
                "newlines.bin": _word2vec(b"\n"),
                "vectors.txt": "2 3\nthe 0.5 -1e-3 2\ncaf\u00e9 1 0 -7.25\n".encode(),
            },
        ),
    ]
    return made + (list(_official(root)) if root else [])


BOOK = "\n".join(
    f"the {w} said : \u00ab caf\u00e9 {i} \u00bb ."
    for i, w in enumerate(["cat", "dog", "cow", "hen", "fox"])
).encode()
SICK = (
    b"pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    b"1\tA man plays\tA man is playing\t4.5\tENTAILMENT\n"
    b"2\tA dog runs\tNobody runs\t1\tNEUTRAL\n"
)


def _idx(images=None, labels=None) -> dict[str, bytes]:
    """Return the files of MNIST: 12 images for training, the least, and 2 for test."""
    if images is None:
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (14, SIDE, SIDE), np.uint8)
        labels = rng.integers(0, 10, 14).astype(np.uint8)
    files = {}
    for part, cut in (("train", slice(0, 12)), ("t10k", slice(12, 14))):
        n = len(labels[cut])
        files[f"{part}-images-idx3-ubyte"] = (
            struct.pack(">4I", 2051, n, SIDE, SIDE) + images[cut].tobytes()
        )
        files[f"{part}-labels-idx1-ubyte"] = (
            struct.pack(">2I", 2049, n) + labels[cut].tobytes()
        )
    return files


def _amat(_matlab, rows=None) -> dict[str, bytes]:
    """Return the files of binarised MNIST, two images each, as text or for MATLAB."""
    from scipy.io import savemat

    if rows is None:
        rows = np.random.default_rng(1).integers(0, 2, (2, SIDE * SIDE), np.uint8)
    files = {}
    for split in ("train", "valid", "test"):
        if _matlab:
            out = io.BytesIO()
            savemat(
                out,
                {"X": rows.astype(np.float64 if split == "test" else np.uint8)},
                do_compression=split == "valid",
            )
            content = out.getvalue()
        else:
            content = "".join(" ".join(map(str, row)) + "\n" for row in rows).encode()
        files[f"binarized_mnist_{split}.amat"] = content
    return files


def _xml():
    strokes = "".join(
        '<Stroke colour="black" start_time="1.0" end_time="2.0">\n'
        + "".join(
            f'<Point x="{100 * s + 7 * i}" y="{900 - i}" time="1.0"/>\n'
            for i in range(4)
        )
        + "</Stroke>\n"
        for s in range(3)
    )
    head = '<?xml version="1.0" encoding="ISO-8859-1"?>\n'
    head += "<WhiteboardCaptureSession>\n<StrokeSet>\n"
    return f"{head}{strokes}</StrokeSet>\n</WhiteboardCaptureSession>\n".encode(
        "latin-1"
    )


def _ascii():
    return b"OCR:\n\na line of\n\nCSR:\n\nA line of t\xe9xt\n50 %% more\n\n"


def _iam(xml, text) -> dict[str, bytes]:
    """Return lists of one form each, and forms with the same strokes on every line."""
    files = {}
    lines = [line for line in text.partition(b"\nCSR:")[2].split(b"\n") if line.strip()]
    for name, form in FORMS.items():
        files[f"{name}.txt"] = f" {form}\n".encode()
        for number in range(1, len(lines) + 1):
            path = f"lineStrokes/{form[:3]}/{form[:7]}/{form}-{number:02}.xml"
            files[path] = xml
        files[f"ascii/{form[:3]}/{form[:7]}/{form}.txt"] = text
    return files


def _questions(contents=None) -> dict[str, bytes]:
    from lnrepro.data.generated import news

    contents = contents or [
        content for _, _, content in itertools.islice(news.files(), 3)
    ]
    folders = itertools.chain(
        ("training", "validation", "test"), itertools.repeat("training")
    )
    return {
        f"questions/{folder}/{i:040x}.question": content
        for i, (folder, content) in enumerate(zip(folders, contents, strict=False))
    }


def _pickles(protocol) -> dict[str, bytes]:
    """Return seven pickles like those of the authors."""
    words = {
        "UNK": 1,
        "the": 2,
        "@entity5": 3,
        "fish": 4,
        "@entity2": 5,
        "@placeholder": 6,
        "caf\u00e9": 7,
        # A number beyond the range of the others, and of uint16.
        "a": 70000,
    }
    lists = {
        "pass": [[2, 4, 3, 7, 0], [5, 7, 70000, 0]],
        "qs": [[6, 4, 0], [6, 0]],
        "ans": [[3], [5]],
    }
    files = {"dict": words} | {
        f"{s}4_{part}": v for s in ("train", "valid") for part, v in lists.items()
    }
    return {
        f"{name}.pkl": pickle.dumps(value, protocol) for name, value in files.items()
    }


def _npy(rows):
    """Return features of unit length."""
    # Features after a ReLU are not negative, and their rows have length 1.
    x = np.abs(np.random.default_rng(rows).normal(size=(rows, 4096))).astype(np.float32)
    out = io.BytesIO()
    np.save(out, x / np.linalg.norm(x, axis=1, keepdims=True))
    return out.getvalue()


def _features() -> dict[str, bytes]:
    return {f"images/10crop/{stem}.npy": _npy(1) for stem in ("train", "val", "test")}


def _captions(lines=b"", ids=b"7\n") -> dict[str, bytes]:
    """Return splits of one image each, with five captions."""
    lines = (
        lines
        or "".join(f"a caption of {k} words , caf\u00e9\n" for k in range(5)).encode()
    )
    stems = ("train", "val", "test")
    return (
        {f"{s}.txt": lines for s in stems}
        | {f"{s}_ids.txt": ids for s in stems}
        | _features()
    )


def _karpathy() -> dict[str, bytes]:
    sentences = [{"tokens": ["a", "dog", str(k)]} for k in range(5)]
    images = [
        {"split": s, "cocoid": n, "sentences": sentences}
        for n, s in enumerate(("train", "val", "test"))
    ]
    return {
        "dataset_coco.json": json.dumps({"images": images, "dataset": "coco"}).encode()
    } | _features()


def _coco(notes=None) -> dict[str, bytes]:
    notes = notes or [
        {"image_id": 7, "id": k, "caption": f"A dog, No. {k}."} for k in range(5)
    ]
    ids = f"{notes[0]['image_id']}\n".encode()
    files = {
        "captions_val2017.json": json.dumps({"info": {}, "annotations": notes}).encode()
    } | _features()
    return files | {f"{stem}_ids.txt": ids for stem in ("train", "val", "test")}


def _word2vec(end):
    words = ("the", "of", "caf\u00e9")
    return b"3 4\n" + b"".join(
        w.encode() + b" " + np.arange(4, dtype="<f4").tobytes() + end for w in words
    )


def archive(files: dict[str, bytes], mode: str = "w", **fields: object) -> bytes:
    """Return a tar archive of files; `fields` are set in every member's header."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def archives() -> list[bytes]:
    """Return tar archives, valid ones and hostile ones."""
    files = {
        "lines/a/1.xml": b"one",
        "data/lines/2.xml": b"two" * 200,
        "lines/b.txt": b"",
        "lines/" + "n" * 120 + ".xml": b"3",
    }
    # Links, devices and sparse files, which must be refused.
    kinds = (
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.FIFOTYPE,
        tarfile.DIRTYPE,
        tarfile.GNUTYPE_SPARSE,
    )
    return [
        archive(files),
        archive(
            files | {"lines/p.xml": b"4"},
            pax_headers={"comment": "caf\u00e9", "size": "1"},
        ),
        *(
            archive({name: b"x"})
            for name in ("/lines/a.xml", "lines/../../a.xml", "lines/\u00e9\n.xml")
        ),
        *(
            archive({"lines/a.xml": b""}, type=kind, linkname="/etc/passwd")
            for kind in kinds
        ),
    ]


def _head(path, lines):
    """Return the first lines of a file, plain or .gz."""
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as f:
        return b"".join(itertools.islice(f, lines))


# (set, pattern of official files, number of lines): samples of the first lines.
HEADS = (
    ("sick", "sick/SICK_*.txt", 6),
    ("mr", "sentence_classification/rt-polarity.*", 6),
)


def _official(root):
    """Yield samples cut from the official files that are there."""
    for name, pattern, lines in HEADS:
        if found := {p.name: _head(p, lines) for p in sorted(root.glob(pattern))}:
            yield Sample(name, found)
    if (folder := root / "mnist").is_dir():
        # An IDX file of images has a header of 16 bytes, one of labels a header of 8.
        with gzip.open(folder / "t10k-images-idx3-ubyte.gz") as f:
            images = np.frombuffer(f.read(16 + 14 * SIDE * SIDE)[16:], np.uint8)
        with gzip.open(folder / "t10k-labels-idx1-ubyte.gz") as f:
            labels = np.frombuffer(f.read(8 + 14)[8:], np.uint8)
        yield Sample("mnist", _idx(images.reshape(14, SIDE, SIDE), labels))
    if (folder := root / "binarized_mnist").is_dir():
        text = _head(folder / "binarized_mnist_test.amat.gz", 2)
        rows = np.array([line.split() for line in text.splitlines()]).astype(np.uint8)
        yield Sample("binarized_mnist", dict.fromkeys(_amat(False), text))
        yield Sample("binarized_mnist", _amat(True, rows))
    if (folder := root / "iam-ondb" / "sample").is_dir():
        xml = (folder / "lineStrokes/a01/a01-000/a01-000u-01.xml").read_bytes()
        # The first two strokes, and what follows the last one.
        strokes = xml.split(b"</Stroke>")
        xml = b"</Stroke>".join([*strokes[:2], strokes[-1]])
        text = (folder / "ascii/a01/a01-000/a01-000u.txt").read_bytes()
        yield Sample("iam_ondb", _iam(xml, text))
    for folder in (
        "cnn_dailymail_qa/questions_sample",
        "gutenberg_cloze/sample/questions/training",
    ):
        if found := sorted((root / folder).glob("*.question")):
            yield Sample("cnn", _questions([path.read_bytes() for path in found]))
    for path in sorted(root.glob("captions/*_precomp/test_caps.txt")):
        yield Sample("captions_proxy", _captions(_head(path, 5)))
    if (path := root / "captions/coco/captions_val2017.json").is_file():
        notes = json.loads(path.read_bytes())["annotations"]
        first = [note for note in notes if note["image_id"] == notes[0]["image_id"]]
        yield Sample("captions_proxy", _coco(first))
    if (path := root / "gutenberg/gutenberg_sentences_19books.tar.xz").is_file():
        with tarfile.open(path, "r|*") as tar:
            book = next(m for m in tar if m.isreg())
            lines = tar.extractfile(book).read(1 << 14).split(b"\n")[:20]
        yield Sample("gutenberg", {"book.txt": b"\n".join(lines) + b"\n"})
