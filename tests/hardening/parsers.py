"""The parsers of official files that fuzz.py tries, with words of their formats."""

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tests.hardening import mutate


class Parser(NamedTuple):
    """A parser.

    Attributes:
      files: pattern of SET/PATH of the samples that it reads.
      parse: (content, path of a file with this content) -> anything.
      tokens: words of the format.
      name: the name of the file.
      packing: suffix of a packing, if the parser is to read packed files.
      begins: only samples with this beginning are read.
      repair: corrects checksums, so that damage gets past their check.
    """

    files: str
    parse: Callable[[bytes, pathlib.Path], object]
    tokens: Sequence[bytes] = ()
    name: str = "file"
    packing: str = ""
    begins: bytes = b""
    repair: Callable[[bytes], bytes] | None = None


# Words of each format, which the damage inserts where they do not belong.
XML = (
    b"<!DOCTYPE a>",
    b'<!DOCTYPE a [<!ENTITY b "cc"><!ENTITY c "&b;&b;">]>',
    b"&c;",
    b"<!ENTITY x SYSTEM 'file:///etc/passwd'>",
    b'encoding="UTF-7"',
    b'encoding="rot13"',
    b'encoding="utf-8"',
    b'encoding="shift_jis"',
    b'encoding="\x7f"',
    b"<StrokeSet>",
    b"</Stroke>",
    b"<Stroke/>",
    b"<Point/>",
    b'<Point x="1" y="2"/>',
    b"<![CDATA[",
    b"]]>",
    b"<!--",
    b"&#0;",
    b"&#1114112;",
    b"<?xml version='1.1'?>",
)
JSON = (
    b"Infinity",
    b"NaN",
    b"1e999",
    b"-1e400",
    b'"\\ud800"',
    b"\\udfff",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b'"id":',
    b'"cocoid": 1e400,',
    b'"split": [],',
    b'"split": "\\n",',
    b'"tokens": [[]]',
    b'"caption": {}',
    b'"caption": "\\ud800",',
    b'"image_id": "x"',
    b'"a"',
    b'"id": 1e400,',
    b'"tokens": "abc",',
    b"[" * 900 + b"]" * 900,
    b'"tokens": [' + b"[" * 900 + b"]" * 901,
    b"7" * 30,
)
PICKLE = (
    b"r\xff\xff\xff\x03",
    b"p99999999\n",
    b"cos\nsystem\n",
    b"(S'true'\ntR",
    b"\x8c\x05posix\x8c\x06system\x93",
    b"\x82\x01",
    b"Q",
    b"Pid\n",
    b"}",
    b"]",
    b"(",
    b"t",
    b"l",
    b"d",
    b"e",
    b"u",
    b"a",
    b"s",
    b"2",
    b"0",
    b"N",
    b"\x88",
    b"\x85",
    b"b",
    b"\x81",
    b"\x90",
    b"\x91",
    b"\x97",
    b"\x98",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\x0f",
    b"\x8b\xa0\x0f\x00\x00" + b"\x7f" * 4000,
    b"\x8b\xff\xff\xff\x7f",
    b"\x96\xff\xff\xff\xff\x0f\x00\x00\x00",
    b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"h\x00",
    b"j\x00\x00\x00\x00",
    b"X\x03\x00\x00\x00\xed\xa0\x80",
    b"Vab\\ud800\n",
    b"g0\n",
    b"h\x01" * 200,
    b"(" + b"h\x02" * 900 + b"e",
    b"]" * 3000 + b"a" * 2999,
    b"}K\x01" + b"2\x86" * 45 + b"K\x01s",
    b"(K\x01" + b"2\x86" * 45 + b"\x91",
    b"p" + b"9" * 30 + b"\n",
)
NPY = (
    b"PK\x03\x04",
    b"PK\x05\x06" + bytes(18),
    b"'descr': '|O'",
    b"'descr': '<f8'",
    b"'descr': [('a', '<f4')]",
    b"(99999999999, 4096)",
    b"(-1, 4096)",
    b"(0, 4096)",
    b"(9223372036854775807, 4096)",
    b"(4611686018427387904, 4096)",
    b"True",
    b"{[]: 1}",
    b"'",
    b'"""',
    b"\\",
    b"(" * 300,
    b"9" * 5000,
    b"\x93NUMPY\x02\x00",
    b"\x93NUMPY\x03\x00",
    b"\x93NUMPY\x09\x00",
    b"\n  ",
    b"lambda: 0",
    b"1L",
)
TAR = (
    b"ustar\x0000",
    b"ustar  \x00",
    b"L",
    b"K",
    b"x",
    b"g",
    b"S",
    b"77777777777\x00",
    b"\x80\x00\x00\x00" + b"\xff" * 8,
    b"\xff" * 12,
    b"\xff" * 11 + b"\x00",
    b"-0000000001\x00",
    b"30 size=99999999999999999999\n",
    b"15 size=-10240\n",
    b"22 GNU.sparse.major=1\n",
    b"22 GNU.sparse.minor=0\n",
    b"33 GNU.sparse.realsize=1000000000\n",
    b"20 path=/etc/passwd\n",
    b"16 path=../../x\n",
    b"../",
    b"/",
)
QUESTION = (
    b"@placeholder",
    b"@entity7",
    "@entity1\u0663".encode(),
    b"@entity99999999999",
    b"@entity",
    b":",
    b"\n\n",
    b"\r\n",
    b"\x1c",
)
SICK = (b"\t", b"nan", b"inf", b"-1", b"5.1", b"\r\n", b"pair_ID")
FORMS = (
    b"a01-000u ",
    b"../../a01-000",
    b"/",
    b"b01-000\n",
    b"\xa0",
    b"x/a01-000u",
    b"\x1b",
)
ASCII = (b"CSR:", b"\nCSR:", b"%%%", b"\r\n")
MATLAB = (
    b"MATLAB 5.0",
    b"\x0e\x00\x00\x00",
    b"\x0f\x00\x00\x00",
    b"\x09\x00\x00\x00",
    b"\x10\x03\x00\x00",
    b"\x01\x00\x04\x00",
)
WORD2VEC = (
    b"1000000000000000000 3\n",
    b"3 4\n",
    b"99999999 4\n",
    b"3 99999999999\n",
    b"0 0\n",
    b" ",
    b"\n",
)


@functools.cache
def parsers() -> dict[str, Parser]:
    """Return every parser of lnrepro.data by the name of its format."""
    from lnrepro.data import archives, raw
    from lnrepro.data import old_files as files
    from lnrepro.data.official import (
        binarized_mnist,
        book_files,
        books,
        caption_files,
        captions,
        cnn,
        iam_ondb,
        image_features,
        mnist,
        plain_pickle,
        question,
        sentences,
        word2vec,
    )

    def idx(content, path):
        mnist.parse_idx(content, 1 if content[3:4] == b"\x01" else 3, path)

    def strokes(content, path):
        iam_ondb.offsets(iam_ondb.points(content, path))

    def forms(content, path):
        iam_ondb._forms(
            raw.Raw("iam_ondb", path.parent, (raw.RawFile(path.name),)),
            path.name,
            iam_ondb.FORM,
        )

    def asked(content, path):
        found = question.parse(content, path)
        question.ranks(found.passage, found.question)

    def pickled(content, path):
        value = plain_pickle.load(content, path)
        storable(value)
        # The numbers of the words in the pickles of samples.py.
        known = dict.fromkeys((*range(1, 9), 70000), "")
        storable(
            [
                [known[number] for number in part]
                for part in cnn.check_lists(value, known, path, True)
            ]
        )

    def text(content, path):
        lines = caption_files.parse_text(content, path)
        storable(captions.vocabulary(lines, lines))

    def karpathy(content, path):
        storable(
            [
                split.captions
                for split in caption_files.parse_karpathy(content, path).values()
            ]
        )

    def coco(content, path):
        found = caption_files.parse_coco(content, path)
        np.array(list(found), np.int64)
        storable(
            [
                [caption_files.tokenise(caption) for caption in captions]
                for captions in found.values()
            ]
        )

    def ids(content, path):
        caption_files._read_ids(
            raw.Raw("captions_proxy", path.parent),
            path.name.removesuffix("_ids.txt"),
        )

    def features(content, path):
        found = image_features.read_features(path)
        image_features.check_features(found, path, np.arange(len(found)))

    def judged(content, path):
        sentences.parse_lines(content, path)

    def book(content, path):
        opened = books.Gutenberg.texts(raw.Raw("gutenberg", path.parent))
        book_files.index(opened, path.parent / "columns", lambda *_: None)

    def vectors(content, path):
        found = word2vec.Word2Vec(path)
        for word in found:
            found[word].sum()

    def members(content, path):
        for _ in archives.members(path, ".xml", 1 << 20):
            pass

    def unpacked(parse):
        return lambda content, path: parse(files.unpack(path), path)

    found = {
        "idx": Parser("mnist/*", idx),
        "idx .gz": Parser("mnist/*", unpacked(idx), packing=".gz"),
        ".amat": Parser("binarized_mnist/*", binarized_mnist.parse),
        ".amat .gz": Parser(
            "binarized_mnist/*", unpacked(binarized_mnist.parse), packing=".gz"
        ),
        "MATLAB": Parser(
            "binarized_mnist/*", binarized_mnist.parse, MATLAB, begins=b"MATLAB"
        ),
        "IAM XML": Parser("iam_ondb/*.xml", strokes, XML),
        "IAM ascii": Parser("iam_ondb/ascii/*", iam_ondb.transcription, ASCII),
        "IAM lists": Parser("iam_ondb/t*.txt", forms, FORMS, "trainset.txt"),
        ".question": Parser("cnn/*.question", asked, QUESTION),
        "pickle": Parser("cnn_top4/*", pickled, PICKLE),
        "captions .txt": Parser("captions_proxy/*[!s].txt", text),
        "captions, Karpathy's JSON": Parser(
            "captions_proxy/dataset_coco.json", karpathy, JSON
        ),
        "captions, COCO's JSON": Parser("captions_proxy/captions_*.json", coco, JSON),
        "captions, ids": Parser("captions_proxy/*_ids.txt", ids, name="val_ids.txt"),
        "features .npy": Parser("captions_proxy/*.npy", features, NPY, "val.npy"),
        "SICK": Parser("sick/*", sentences.parse_sick, SICK),
        "classification": Parser("mr/*", judged),
        "book text": Parser("gutenberg/*.txt", book, name="b.txt"),
        "word2vec .bin": Parser("word2vec/*.bin", vectors, WORD2VEC),
        "word2vec .txt": Parser("word2vec/*.txt", vectors),
    }
    for packing in mutate.PACK:
        found[f"book text {packing}"] = Parser(
            "gutenberg/*.txt", book, name="b.txt", packing=packing
        )
        found[f"word2vec {packing}"] = Parser(
            "word2vec/*", vectors, WORD2VEC, packing=packing
        )
    for packing in ("", *mutate.PACK):
        found[f"archive .tar{packing}"] = Parser(
            "archives/*", members, TAR, "a.tar", packing, repair=mutate.tar_checksums
        )
    return found


def storable(value: object) -> None:
    """Raise UnicodeEncodeError for text that cannot be written with a set's facts."""
    # A list in place of recursion, since the value may be nested thousands of levels
    # deep.
    waiting = [value]
    while waiting:
        v = waiting.pop()
        if isinstance(v, str):
            v.encode()
        elif isinstance(v, (list, tuple, dict)):
            waiting.extend((*v, *v.values()) if isinstance(v, dict) else v)
