"""A small official file of every format, and the folder of a set around it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pathlib
import pickle
import tarfile
from collections.abc import Callable, Mapping
from typing import NamedTuple

from experiments.skip_thoughts.word2vec import Word2Vec
from lnrepro import data
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.readers import binarized_mnist, sentences
from tests.data import (
    idx,
    lines,
    test_books,
    test_captions,
    test_cnn,
    test_iam_ondb,
)
from tests.experiments import test_word2vec

Files = Mapping[str, bytes]
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


class Format(NamedTuple):
    """A format.

    Attributes:
      dataset: the set that has files of it; "" is a file of word vectors.
      file: the file that is damaged.
      files: all files of the folder.
      words: words of the format, which are inserted where they do not belong.
    """

    dataset: str
    file: str
    files: Files
    words: tuple[bytes, ...] = ()

    def read(self, folder: pathlib.Path) -> None:
        """Read the files in a folder."""
        if not self.dataset:
            vectors = Word2Vec(folder / self.file)
            for word in vectors.positions:
                vectors[word].sum()
            return
        reader = data.reader_of(self.dataset)
        raw = RawFolder(self.dataset, folder, reader.files, official=False)
        if reader.write:
            reader.write(raw, folder / "columns")
        else:
            assert reader.read is not None
            reader.read(raw)


def _encoded(files: Mapping[str, str | bytes]) -> Files:
    return {
        name: content.encode() if isinstance(content, str) else content
        for name, content in files.items()
    }


def _questions() -> Files:
    texts = [test_cnn.text((0, f"http://cnn/{n}")) for n in range(3)]
    folders = ("training", "validation", "test")
    return {
        f"questions/{folder}/{n}.question": text
        for n, (folder, text) in enumerate(zip(folders, texts, strict=True))
    }


def _pickles(protocol: int) -> Files:
    return {
        f"{name}.pkl": pickle.dumps(value, protocol)
        for name, value in test_cnn.TOP4.items()
    }


def _karpathy(files: Files) -> Files:
    """Captions in the JSON of Karpathy, in place of text."""
    images = []
    for stem, rows in test_captions.ROWS.items():
        texts = test_captions.lines_of(stem, rows)
        for i in range(rows):
            five = texts[5 * i : 5 * i + 5]
            images.append(test_captions.image(stem, len(images), five))
    features = {name: file for name, file in files.items() if name.endswith(".npy")}
    return {"dataset_coco.json": json.dumps({"images": images}).encode()} | features


def archived(files: Files, folder: str, name: str) -> Files:
    """Put the files of a folder into a tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, content in files.items():
            if path.startswith(folder):
                member = tarfile.TarInfo(path)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    others = {p: file for p, file in files.items() if not p.startswith(folder)}
    return others | {name: out.getvalue()}


# Folders from which each set can be prepared.
CAPTIONS = _encoded(test_captions.folder_files()) | {"val_ids.txt": b"7\n8\n9\n"}
SETS: dict[str, Files] = {
    "mnist": idx.files(train=12, test=2),
    "binarized_mnist": {
        binarized_mnist.FILE.format(split): lines.AMAT[: 2 * 1568]
        for split in binarized_mnist.CHECKSUMS
    },
    "iam_ondb": _encoded(test_iam_ondb.official()),
    "cnn": _questions(),
    "cnn_top4": _pickles(2),
    "coco_captions": CAPTIONS,
    "bookcorpus": {f"{n}.txt": t.encode() for n, t in test_books.TEXTS.items()},
    "sick": dict.fromkeys(sentences.PAIRS, lines.table(lines.ROW)),
    "cr": {"custrev.pos": b"a fine film \x85\ngood .\n", "custrev.neg": b"caf\xe9\r\n"},
}
FORM = "a01/a01-000/a01-000u"
XML = (b"<!DOCTYPE a>", b"&c;", b'encoding="rot13"', b"<Stroke/>", b"<Point/>", b"<!--")
JSON = (b"NaN", b"1e999", b'"\\ud800"', b"null", b"[]", b'"split": [],', b"[" * 900)
PICKLE = (b"cos\nsystem\n", b"(S'true'\ntR", b"}", b"]", b"(", b"t", b"d", b"e", b"N")
NPY = (b"|O", b"<f8", b"(99999999999, 8)", b"(-1, 8)", b"(0, 8)", b"\x93NUMPY\x02\x00")
TAR = (b"ustar  \x00", b"L", b"x", b"S", b"77777777777\x00", b"../", b"/", b"\xff" * 12)
ASKED = (b"@placeholder", b"@entity7", b"@entity", b"\n\n", b"\x1c")
VECTORS = (b"1000000000000000000 3\n", b"99999999 4\n", b"0 0\n", b" ", b"\n")


def _formats() -> dict[str, Format]:
    found = {}
    for name, dataset, file, words in (
        ("idx", "mnist", "train-images-idx3-ubyte", ()),
        ("amat", "binarized_mnist", "binarized_mnist_train.amat", ()),
        ("xml", "iam_ondb", f"lineStrokes/{FORM}-01.xml", XML),
        ("ascii", "iam_ondb", f"ascii/{FORM}.txt", (b"CSR:", b"%%%", b"\r\n")),
        ("lists", "iam_ondb", "trainset.txt", (b"a01-000u ", b"/", b"\xa0")),
        ("question", "cnn", "questions/test/2.question", ASKED),
        ("pickle", "cnn_top4", "train4_pass.pkl", PICKLE),
        ("words", "cnn_top4", "dict.pkl", PICKLE),
        ("captions", "coco_captions", "train.txt", ()),
        ("ids", "coco_captions", "val_ids.txt", ()),
        ("npy", "coco_captions", "images/10crop/val.npy", NPY),
        ("book", "bookcorpus", "b0.txt", ()),
        ("sick", "sick", "SICK_trial.txt", (b"\t", b"nan", b"-1", b"pair_ID")),
        ("lines", "cr", "custrev.pos", ()),
    ):
        found[name] = Format(dataset, file, SETS[dataset], words)
    found["old pickle"] = Format("cnn_top4", "valid4_qs.pkl", _pickles(0), PICKLE)
    karpathy = _karpathy(CAPTIONS)
    found["json"] = Format("coco_captions", "dataset_coco.json", karpathy, JSON)
    for kind in ("binary", "text"):
        vectors = {"v": getattr(test_word2vec, kind)(test_word2vec.VECTORS)}
        found[f"{kind} vectors"] = Format("", "v", vectors, VECTORS)
    archive = "lineStrokes-all.tar"
    files = archived(SETS["iam_ondb"], "lineStrokes", archive)
    found["archive"] = Format("iam_ondb", archive, files, TAR)
    for suffix, pack in PACK.items():
        packed = dict(SETS["sick"])
        packed[f"SICK_trial.txt{suffix}"] = pack(packed.pop("SICK_trial.txt"))
        found[suffix] = Format("sick", f"SICK_trial.txt{suffix}", packed)
        tar = {p: f for p, f in files.items() if p != archive}
        tar[archive + suffix] = pack(files[archive])
        found[f"archive {suffix}"] = Format("iam_ondb", archive + suffix, tar, TAR)
    return found


FORMATS = _formats()
