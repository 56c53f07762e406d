"""Folders of captions and features: reading, and the errors for wrong files."""

import bz2
import gzip
import json

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data import ragged
from lnrepro.data.builder import read_notes
from lnrepro.data.generated import scenes
from lnrepro.data.official import caption_files as files
from lnrepro.data.official import captions as cap
from lnrepro.data.ragged import Ragged
from lnrepro.data.text import Vocabulary
from lnrepro.errors import DataError

ROWS = {"train": 4, "val": 3, "test": 2}


def lines_of(stem, rows):
    return [
        f"a {stem} of image {i} caption {'very ' * k}{k}"
        for i in range(rows)
        for k in range(5)
    ]


def unit_rows(rows, seed=0):
    x = np.abs(np.random.default_rng(seed).normal(size=(rows, cap.FEATURES))).astype(
        np.float32
    )
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def write(folder):
    """A small folder of the right layout."""
    (folder / "images" / "10crop").mkdir(parents=True)
    for seed, (stem, rows) in enumerate(ROWS.items()):
        (folder / f"{stem}.txt").write_text("\n".join(lines_of(stem, rows)) + "\n")
        np.save(folder / "images" / "10crop" / f"{stem}.npy", unit_rows(rows, seed))
    return folder


@pytest.fixture
def raw(tmp_path):
    return write(tmp_path / "raw")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("captions")
    data.prepare("captions_proxy", write(root / "raw"), root / "data")
    return root / "data"


def test_prepared_and_read_back(prepared):
    columns = data.open_columns("captions_proxy", "valid", prepared)
    facts = data.facts("captions_proxy", prepared)
    words = cap.Vocabulary([*facts["words"], *facts["dev_words"]])
    np.testing.assert_array_equal(columns["image"], unit_rows(3, 1))
    assert columns["id"].tolist() == [0, 1, 2]
    captions = cap.Captions(columns, len(words), 30)
    assert len(captions) == 15
    for c, line in enumerate(lines_of("val", 3)):
        assert words.decode(captions.ids(c)) == line.split()
    tokens, length = captions.take(np.array([14, 0]), 12)
    assert words.decode(tokens[0]) == [*lines_of("val", 3)[14].split(), "<eos>"]
    assert length.tolist() == [12, 8]
    assert words.decode(tokens[1]) == [*lines_of("val", 3)[0].split(), *["<eos>"] * 5]


def test_words_are_the_training_captions_by_frequency_then_those_of_dev(prepared):
    facts = data.facts("captions_proxy", prepared)
    assert facts["words"][0] == "very"  # 10 of it for each image
    assert {"a", "of", "image", "caption"} <= set(facts["words"][1:6])
    assert facts["dev_words"] == ["val"]  # "test" is in neither
    train = 2 + len(facts["words"])
    valid, test = (
        data.open_columns("captions_proxy", split, prepared)
        for split in ("valid", "test")
    )
    with_dev, without = (
        cap.Captions(valid, train + 1, 30),
        cap.Captions(valid, train, 30),
    )
    assert with_dev.take(np.array([0]), 8)[0][0, 1] == train
    assert without.take(np.array([0]), 8)[0][0, 1] == cap.UNKNOWN
    assert (
        cap.Captions(test, train + 1, 30).take(np.array([0]), 8)[0][0, 1] == cap.UNKNOWN
    )


def test_captions_beyond_the_longest_bucket_are_cut_and_counted(prepared):
    columns = data.open_columns("captions_proxy", "train", prepared)
    with pytest.warns(
        UserWarning,
        match=r"8 of 20 captions are longer than 9 words .* \(the longest has 11\)",
    ):
        captions = cap.Captions(columns, 99, 10)
    tokens, length = captions.take(np.arange(5), 10)
    assert length.tolist() == [8, 9, 10, 10, 10]
    assert not tokens[:, -1].any()  # the end token is always there
    assert tokens[4, :9].all()


def test_taking_captions_is_slicing_them(prepared):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, (40, 5))
    rows = [rng.integers(2, 50, n.sum()).astype(np.int32) for n in lengths]
    columns = {
        "tokens": Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)])),
        "lengths": lengths,
    }
    captions = cap.Captions(columns, 100, 20)
    wanted = [
        part
        for row, n in zip(rows, lengths, strict=True)
        for part in np.split(row, np.cumsum(n)[:-1])
    ]
    some = rng.permutation(200)[:60]
    tokens, length = captions.take(some, 9)
    for row, n, c in zip(tokens, length, some, strict=True):
        np.testing.assert_array_equal(row[: n - 1], wanted[c])
        assert not row[n - 1 :].any()


def test_ids_one_an_image_or_one_a_caption(raw, tmp_path):
    (raw / "val_ids.txt").write_text("".join(f"{i}\n" * 5 for i in (7, 9, 11)))
    (raw / "test_ids.txt").write_text("300\n301\n")
    data.prepare("captions_proxy", raw, tmp_path / "data")
    assert data.open_columns("captions_proxy", "valid", tmp_path / "data")[
        "id"
    ].tolist() == [7, 9, 11]
    assert data.open_columns("captions_proxy", "test", tmp_path / "data")[
        "id"
    ].tolist() == [300, 301]


# Number of captions of each image.
COUNTS = {"train": [1, 3, 2, 4], "val": [2, 1, 1], "test": [3, 2]}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A set with 512 features and different numbers of captions."""
    root = tmp_path_factory.mktemp("own")
    folder = write(root / "raw")
    for stem, counts in COUNTS.items():
        lines, numbers = [], []
        for image, count in enumerate(counts):
            lines += [f"{stem} image {image} caption {k}" for k in range(count)]
            numbers += [f"{40 + image}"] * count
        (folder / f"{stem}.txt").write_text("\n".join(lines))
        (folder / f"{stem}_ids.txt").write_text("\n".join(numbers))
        images = unit_rows(len(counts))[:, :512]
        images /= np.linalg.norm(images, axis=1, keepdims=True)
        np.save(folder / "images" / "10crop" / f"{stem}.npy", images)
    data.prepare("coco_captions", folder, root / "data", own_name="own")
    return root / "data"


def test_own_sets_have_any_features_and_any_number_of_captions(own):
    columns = data.open_columns("own", "train", own)
    assert columns["image"].shape == (4, 512)
    assert columns["id"].tolist() == [40, 41, 42, 43]
    facts = data.facts("own", own)
    assert facts["captions_per_image"] == [1, 4]
    captions = cap.Captions(columns, 99, 30)
    assert captions.starts.tolist() == [0, 1, 4, 6, 10]
    assert captions.image.tolist() == [0, 1, 1, 1, 2, 2, 3, 3, 3, 3]
    words = cap.Vocabulary([*facts["words"], *facts["dev_words"]])
    assert words.decode(captions.ids(5)) == ["train", "image", "2", "caption", "1"]
    tokens, lengths = captions.take(np.array([3, 9]), 6)
    assert lengths.tolist() == [6, 6]
    assert words.decode(tokens[1]) == ["train", "image", "3", "caption", "3", "<eos>"]


@pytest.mark.parametrize("per_image", [1, 3])
def test_the_same_number_of_captions_needs_no_ids(raw, tmp_path, per_image):
    for stem, rows in ROWS.items():
        (raw / f"{stem}.txt").write_text("one caption\n" * (rows * per_image))
    data.prepare("captions_proxy", raw, tmp_path)
    columns = data.open_columns("captions_proxy", "train", tmp_path)
    assert columns["lengths"].shape == (4, per_image)
    captions = cap.Captions(columns, 99, 30)
    assert captions.starts.tolist() == [per_image * i for i in range(5)]


def karpathy(
    stem_of=lambda n: ("train", "restval", "train", "val", "test")[n % 5], images=10
):
    def sentences(n):
        return [{"tokens": ["image", str(n), "sentence", str(k)]} for k in range(6)]

    return {
        "images": [
            {"split": stem_of(n), "cocoid": 100 + n, "sentences": sentences(n)}
            for n in range(images)
        ]
    }


def test_karpathy_json_gives_the_first_five_and_restval_behind_train():
    found = files.parse_karpathy(json.dumps(karpathy()).encode(), "f")
    captions, ids, counts, _ = found["train"]
    assert counts.tolist() == [5] * 6
    assert ids.tolist() == [100, 102, 105, 107, 101, 106]
    assert captions[9] == ["image", "2", "sentence", "4"]
    assert captions[10] == ["image", "5", "sentence", "0"]
    assert [len(found[split].captions) for split in ("train", "valid", "test")] == [
        30,
        10,
        10,
    ]


def test_json_folders_are_the_same_set_as_text(raw, tmp_path):
    """The same captions in all three formats give the same examples."""
    stems = [stem for stem, rows in ROWS.items() for _ in range(rows)]
    texts = [line for stem, rows in ROWS.items() for line in lines_of(stem, rows)]
    for n, stem in enumerate(stems):
        with open(raw / f"{stem}_ids.txt", "a") as f:
            f.write(f"{n}\n")
    data.prepare("captions_proxy", raw, tmp_path / "text")
    for stem in ROWS:
        (raw / f"{stem}.txt").unlink()
    notes = [
        {
            "image_id": c // 5,
            "id": c,
            "caption": text.capitalize().replace(" of", ", of") + ".",
        }
        for c, text in enumerate(texts)
    ]
    coco = raw / "captions_train2014.json.gz"
    (raw / "captions_val2014.json").write_text(json.dumps({"annotations": notes[:10]}))
    coco.with_suffix("").write_text(json.dumps({"annotations": notes[:9:-1]}))
    data.prepare("captions_proxy", raw, tmp_path / "coco")
    images = [
        {
            "split": stem,
            "cocoid": n,
            "sentences": [{"tokens": t.split()} for t in texts[5 * n : 5 * n + 5]],
        }
        for n, stem in enumerate(stems)
    ]
    (raw / "dataset_coco.json.gz").write_bytes(
        gzip.compress(json.dumps({"images": images}).encode())
    )
    data.prepare("captions_proxy", raw, tmp_path / "karpathy")
    prints = {
        data.fingerprint("captions_proxy", tmp_path / kind)
        for kind in ("text", "coco", "karpathy")
    }
    assert len(prints) == 1


def test_a_byte_order_mark_is_not_part_of_the_first_word(raw, tmp_path):
    text = (raw / "train.txt").read_text()
    (raw / "train.txt").write_text(text, "utf-8-sig")
    data.prepare("captions_proxy", raw, tmp_path / "data")
    words = data.facts("captions_proxy", tmp_path / "data")["words"]
    assert set(words) == set(text.split())


def test_tokenising():
    assert files.tokenise("A man's dog, on  a (red) T-shirt. ") == [
        "a",
        "mans",
        "dog",
        "on",
        "a",
        "red",
        "tshirt",
    ]


TEXT = "\n".join(lines_of("train", 4)) + "\n"
BAD_TEXT = {
    "count": (
        TEXT + "one more\n",
        "21 captions are not the same number for each of 4 images",
    ),
    "empty line": (
        TEXT.replace("a train of image 0 caption very 1\n", " \n"),
        "line 2: empty caption",
    ),
    "rows": (
        TEXT + "\n".join(lines_of("train", 1)),
        "25 captions are not the same number for each of 4 images",
    ),
    "empty": ("", "contains no caption"),
    "bytes": (b"a\n\x81\x8d\x8f\n", "train.txt: mostly not UTF-8"),
    "long": ("x" * 70_000, "line 1: 70000 characters are too many"),
}


@pytest.mark.parametrize("kind", BAD_TEXT)
def test_bad_captions_are_one_clear_line_and_leave_nothing(raw, tmp_path, kind):
    content, message = BAD_TEXT[kind]
    (raw / "train.txt").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    refused(raw, tmp_path, message, "train")


def refused(raw, tmp_path, message, file, name="captions_proxy"):
    with pytest.raises(DataError, match=message) as e:
        data.prepare(name, raw, tmp_path / "data")
    assert file in str(e.value)
    assert "\n" not in str(e.value)
    assert not list((tmp_path / "data").glob("*/*"))


def with_value(x, value):
    x[2, 5] = value
    return x


BAD_FEATURES = {
    "nan": (lambda x: with_value(x, np.nan), "row 2: contains NaN or infinity"),
    "inf": (lambda x: with_value(x, np.inf), "row 2: contains NaN or infinity"),
    "none": (lambda x: x[:0], "is 0 x 4096 instead of images x features"),
    "dtype": (
        lambda x: x.astype(np.float64),
        "contains float64 values instead of float32",
    ),
    "integers": (lambda x: x.astype(np.int64), "contains int64 values"),
    "dimension": (
        lambda x: x[:, :4095].copy(),
        "val.npy: 4096 features of an image, but .*train.npy has 4095",
    ),
    "flat": (lambda x: x.ravel(), "is 16384 instead of images x features"),
    "rows": (
        lambda x: x[:3].copy(),
        "20 captions are not the same number for each of 3 images",
    ),
    "pickled": (
        lambda x: np.array([{"a": 1}, None], object),
        "pickled objects, which are never read",
    ),
}


@pytest.mark.parametrize("kind", BAD_FEATURES)
def test_bad_features_are_one_clear_line_and_leave_nothing(raw, tmp_path, kind):
    make, message = BAD_FEATURES[kind]
    np.save(raw / "images" / "10crop" / "train.npy", make(unit_rows(4)))
    refused(raw, tmp_path, message, "train")


def test_files_that_are_no_npy(raw, tmp_path):
    file = raw / "images" / "10crop" / "test.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    refused(raw, tmp_path, "not a plain .npy array", "test.npy")
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4096), }"
    for damaged in (
        b"hello",
        whole.replace(header, header.replace(b"}", b"(")),
        b"",
    ):
        file.write_bytes(damaged)
        refused(raw, tmp_path, "not a plain .npy array", "test.npy")
    with open(file, "wb") as f:
        np.savez(f, x=np.zeros(3))
    refused(raw, tmp_path, "an archive of arrays", "test.npy")
    file.unlink()
    refused(raw, tmp_path, "there is no such file", "test.npy")


def test_a_header_of_gigabytes_is_refused_before_it_is_read(raw, tmp_path):
    file = raw / "images" / "10crop" / "test.npy"
    file.write_bytes(b"\x93NUMPY\2\0" + b"\xff" * 4 + b"{'descr': '<f4'")
    refused(raw, tmp_path, "not a plain .npy array .'a header of 4,294,", "test.npy")


@pytest.mark.filterwarnings("ignore:.* (rows repeat|of unit length)")
def test_features_repeated_for_each_caption_make_the_same_set(raw, tmp_path):
    file = raw / "images" / "10crop" / "val.npy"
    images = 2 * np.load(file)
    numbers = np.repeat(np.arange(len(images)), 5)
    (raw / "val_ids.txt").write_text("\n".join(map(str, numbers)))
    for repeats in (1, 5):
        np.save(file, np.repeat(images, repeats, axis=0))
        data.prepare("captions_proxy", raw, tmp_path / str(repeats))
    once, repeated = (
        data.fingerprint("captions_proxy", tmp_path / name) for name in ("1", "5")
    )
    assert repeated == once


def test_rows_off_the_unit_sphere_are_counted_in_one_warning(raw, tmp_path):
    file = raw / "images" / "10crop" / "train.npy"
    np.save(file, unit_rows(4) * np.array([[1], [3], [1], [0.5]], np.float32))
    with pytest.warns(
        UserWarning, match=r"2 of 4 images are not of unit length \(0\.5 to 3\)"
    ) as caught:
        data.prepare("captions_proxy", raw, tmp_path / "data")
    assert len([w for w in caught if "unit length" in str(w.message)]) == 1
    assert data.facts("captions_proxy", tmp_path / "data")["not_unit"] == {
        "train": 2,
        "valid": 0,
        "test": 0,
    }


def test_coco_has_its_official_size(raw, tmp_path, monkeypatch):
    def refused_as_coco(message):
        refused(raw, tmp_path, message, "", name="coco_captions")

    refused_as_coco("train has 4 images instead of 113,287; .* pass --as NAME")
    monkeypatch.setattr(cap.CocoCaptions, "rows", {"train": 4, "valid": 3, "test": 2})
    (raw / "test.txt").write_text("one caption\n" * 2)
    refused_as_coco("images without exactly 5 captions")
    for seed, (stem, rows) in enumerate(ROWS.items()):
        file = raw / "images" / "10crop" / f"{stem}.npy"
        np.save(file, unit_rows(rows, seed)[:, :512])
    refused_as_coco("512 features of an image instead of 4,096")


@pytest.mark.filterwarnings("ignore:.* rows repeat the features")
@pytest.mark.parametrize("ids", [None, "image", "caption"])
@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2"])
def test_features_repeated_for_each_caption_are_one_image(raw, tmp_path, ids, suffix):
    """VSE++ and SCAN have the features of an image once for each of its captions."""
    data.prepare("captions_proxy", raw, tmp_path / "once")
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[suffix]
    for stem in ("val", "test"):
        file = raw / f"images/10crop/{stem}.npy"
        images = np.load(file)
        np.save(file, np.repeat(images, 5, axis=0))
        packed = pack(file.read_bytes())
        file.unlink()
        file.with_name(file.name + suffix).write_bytes(packed)
        if ids:
            repeats = {"image": 1, "caption": 5}[ids]
            numbers = np.repeat(np.arange(len(images)), repeats)
            (raw / f"{stem}_ids.txt").write_text("\n".join(map(str, numbers)))
    with pytest.warns(UserWarning, match="15 rows repeat the features of 3 images"):
        data.prepare("captions_proxy", raw, tmp_path / "repeated")
    for split, rows in (("train", 4), ("valid", 3), ("test", 2)):
        once, repeated = (
            data.open_columns("captions_proxy", split, tmp_path / kind)
            for kind in ("once", "repeated")
        )
        assert len(repeated["image"]) == rows
        for name in ("image", "lengths"):
            np.testing.assert_array_equal(repeated[name], once[name])
        np.testing.assert_array_equal(repeated["tokens"].values, once["tokens"].values)
    if not ids:
        return
    # The first caption of the second image has the features of the first one.
    images = np.repeat(images, 5, axis=0)
    images[5] = images[4]
    file = raw / f"images/10crop/test.npy{suffix}"
    np.save(tmp_path / "wrong.npy", images)
    file.write_bytes(pack((tmp_path / "wrong.npy").read_bytes()))
    refused(
        raw, tmp_path / "x", "row 6: has other features than the row before", "test"
    )


def many(raw, images=60):
    """Write training files of several images."""
    np.save(raw / "images/10crop/train.npy", unit_rows(images))
    lines = lines_of("train", images)
    (raw / "train.txt").write_text("\n".join(lines) + "\n")
    return lines


def test_few_empty_captions_are_left_out_and_nothing_shifts(raw, tmp_path):
    lines = many(raw)
    lines[7] = " "
    (raw / "train.txt").write_text("\n".join(lines) + "\n\n\n")
    data.prepare("captions_proxy", raw, tmp_path / "data")
    place = data.folder_of("captions_proxy", tmp_path / "data")
    assert read_notes(place)["captions without words left out"] == 1
    columns = data.open_columns("captions_proxy", "train", tmp_path / "data")
    facts = data.facts("captions_proxy", tmp_path / "data")
    captions = cap.Captions(columns, 2 + len(facts["words"]), 30)
    counts = np.diff(captions.starts)
    assert counts.tolist() == [5, 4, *[5] * 58]
    words = Vocabulary([*facts["words"], *facts["dev_words"]])
    found = [words.decode(captions.ids(c)) for c in range(len(captions))]
    assert found == [line.split() for line in lines if line.strip()]
    np.testing.assert_array_equal(columns["image"], unit_rows(60))
    for i in range(10, 13):
        lines[i] = ""
    (raw / "train.txt").write_text("\n".join(lines) + "\n")
    refused(raw, tmp_path / "x", r"line 8: empty caption \(4 such lines\)", "train")


def test_captions_of_coco_without_words_give_way_to_others():
    notes = [{"image_id": 1, "id": k, "caption": c} for k, c in enumerate("ab.cdef")]
    texts = files.parse_coco(json.dumps({"annotations": notes}).encode(), "f")
    words = files._first([files.tokenise(text) for text in texts[1]], 1, "f")
    assert words == [["a"], ["b"], ["c"], ["d"], ["e"]]


def test_packed_captions_of_coco_are_found(raw, tmp_path):
    ids = {"train": range(4), "val": range(4, 7), "test": range(7, 9)}
    lines = [line for stem, rows in ROWS.items() for line in lines_of(stem, rows)]
    for stem, numbers in ids.items():
        (raw / f"{stem}_ids.txt").write_text("\n".join(map(str, numbers)))
        notes = [
            {"image_id": n, "id": 5 * n + k, "caption": lines[5 * n + k]}
            for n in numbers
            for k in range(5)
        ]
        content = json.dumps({"annotations": notes}).encode()
        (raw / f"captions_{stem}2014.json.gz").write_bytes(gzip.compress(content))
    data.prepare("captions_proxy", raw, tmp_path / "text")
    for stem in ids:
        (raw / f"{stem}.txt").unlink()
    data.prepare("captions_proxy", raw, tmp_path / "coco")
    assert data.fingerprint("captions_proxy", tmp_path / "coco") == data.fingerprint(
        "captions_proxy", tmp_path / "text"
    )
    file = raw / "captions_train2014.json.gz"
    notes = json.loads(gzip.decompress(file.read_bytes()))
    notes["annotations"][0]["caption"] = "..."
    file.write_bytes(gzip.compress(json.dumps(notes).encode()))
    message = "captions of train: image 0 has an empty caption .1 of 20"
    refused(raw, tmp_path / "x", message, "raw")
    other = {"annotations": [{"image_id": 0, "id": 0, "caption": "another"}]}
    (raw / "captions_x.json").write_text(json.dumps(other))
    refused(raw, tmp_path / "x", "has other captions of the image 0 than", "captions_")


BAD_JSON = {
    "no json": (b"{", "not JSON"),
    "no images": (b"[]", "has no list of images"),
    "no split": (
        json.dumps({"images": [{}]}).encode(),
        r"images\[0\] has no usable split",
    ),
    "split": (json.dumps(karpathy(lambda n: "dev")).encode(), "of the split 'dev'"),
    "half": (
        json.dumps(karpathy(lambda n: "train")).encode(),
        "no images of the split valid",
    ),
    "infinity": (
        b'{"images": [{"split": "train", "cocoid": 1e999, "sentences": []}]}',
        "not an integer of 64 bits",
    ),
    "huge": (
        b'{"images": [{"split": "train", "cocoid": 9%s, "sentences": []}]}'
        % (b"9" * 19),
        "not an integer",
    ),
    "list": (b'{"images": [{"split": [], "sentences": []}]}', "list instead of text"),
    "deep": (
        b'{"images": [{"split": "val", "sentences": [{"tokens": ['
        + b"[" * 400
        + b"]" * 400
        + b"]}]}]}",
        "list instead of text",
    ),
    "half a pair": (
        b'{"images": [{"split": "val", "sentences": [{"tokens": ["\\ud800"]}]}]}',
        "ud800.* cannot be encoded",
    ),
    "long": (
        b'{"images": [{"split": "' + b"x\\n" * 5000 + b'", "sentences": []}]}',
        r"split 'x.nx.nx",
    ),
    "empty caption": (
        json.dumps(
            {
                "images": [
                    {"split": "train", "cocoid": 3, "sentences": [{"tokens": []}] * 5}
                ]
            }
        ).encode(),
        "image 3 has an empty caption",
    ),
}


@pytest.mark.parametrize("kind", BAD_JSON)
def test_bad_karpathy_json(kind):
    content, message = BAD_JSON[kind]
    with pytest.raises(DataError, match=message) as e:
        files.parse_karpathy(content, "dataset_coco.json")
    assert str(e.value).isprintable()
    assert len(str(e.value)) < 300


def test_bad_coco_json_and_ids(raw, tmp_path):
    with pytest.raises(DataError, match=r"annotations\[0\] has no usable image_id"):
        files.parse_coco(b'{"annotations": [{"image_id": "x"}]}', "f")
    for note in (
        {"image_id": 1e999},
        {"image_id": 2**63},
        {"caption": "\ud800"},
        {"caption": [[]]},
        {"id": float("nan")},
    ):
        content = json.dumps(
            {"annotations": [{"image_id": 1, "id": 1, "caption": "a"} | note]}
        ).encode()
        with pytest.raises(DataError, match=r"annotations\[0\] has no usable image_id"):
            files.parse_coco(content, "f")
    for text, message in (
        ("1\nx\n", "line 2: 'x' is not an image id"),
        ("1\n2\n", "2 ids, which are not one for each of 4 images or of 20 captions"),
        ("1\n" * 20, "4 rows, but train has captions of 1 images"),
        ("\n", "contains no image id"),
    ):
        (raw / "train_ids.txt").write_text(text)
        refused(raw, tmp_path, message, "train")


def test_a_mapped_column_lets_its_pages_go(prepared):
    column = data.open_columns("captions_proxy", "train", prepared)["image"]
    before = column.copy()
    ragged.forget_pages(column)
    np.testing.assert_array_equal(column, before)
    ragged.forget_pages(np.zeros(3))  # not mapped: nothing happens


# -- drawn scenes


@pytest.fixture(scope="module")
def some():
    choices = scenes.IntegerChoices(7)
    made = [scenes.random_scene(choices) for _ in range(40)]
    return made, np.stack([scenes.draw(s, choices) for s in made])


def test_scenes_are_the_same_everywhere(some):
    made, pictures = some
    assert pictures.shape == (40, 36, 36, 3)
    assert {len(s.things) for s in made} == {1, 2, 3}
    for s in made:
        assert (
            len({t.cell for t in s.things})
            == len({(t.shape, t.colour) for t in s.things})
            == len(s.things)
        )


def test_features_come_from_the_picture_and_lie_on_the_positive_sphere(some):
    _, pictures = some
    found = scenes.features(pictures)
    assert found.shape == (40, scenes.FEATURES)
    assert (found >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(scenes.features(pictures[3:4])[0], found[3])


def test_features_tell_colour_place_and_direction():
    def lone(shape, colour, cell):
        s = scenes.Scene((scenes.Thing(shape, colour, "large", cell),), "black")
        return (
            scenes.features(scenes.draw(s, scenes.IntegerChoices(0))[None])[0].reshape(
                8, 9, 9
            )
            ** 2
        )

    red = lone("square", "red", 4)
    assert red[0, 0].argmax() == 4  # the most red stands in cell 4
    assert red[1, 0].max() == 0  # where there is no green
    square, diamond = (
        lone(shape, "red", 4)[0, 1:, 4] for shape in ("square", "diamond")
    )
    assert square[::2].sum() > 5 * square[1::2].sum()  # edges along the axes
    assert diamond[1::2].sum() > 5 * diamond[::2].sum()


def test_captions_say_what_is_true_and_some_say_more_than_others(some):
    made, _ = some
    choices, lengths = scenes.IntegerChoices(1), []
    for s in made:
        for _ in range(20):
            caption = scenes.describe(s, choices)
            words = caption.split()
            lengths.append(len(words))
            assert set(words) & set(scenes.COLOURS) <= {t.colour for t in s.things}
            assert set(words) & set(scenes.SHAPES) <= {t.shape for t in s.things}
            assert words.count("a") <= len(s.things)
            for ground in scenes.GROUNDS:
                assert not caption.endswith(f"on {ground}") or ground == s.ground
    assert min(lengths) == 2  # "a shape" or "a circle"
    assert max(lengths) > 15


def test_relations_are_true():
    at = lambda cell: scenes.Thing("circle", "red", "small", cell)  # noqa: E731
    choices = scenes.IntegerChoices(0)
    assert {scenes.relation(at(0), at(2), choices) for _ in range(20)} == {"left of"}
    assert {scenes.relation(at(8), at(0), choices) for _ in range(50)} == {
        "right of",
        "below",
    }
    assert {scenes.relation(at(1), at(7), choices) for _ in range(20)} == {"above"}
