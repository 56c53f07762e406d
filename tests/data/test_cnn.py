"""Parser of .question files, ranking of sentences, and pickles of the CNN corpus."""

import pickle
import tarfile

import numpy as np
import pytest

from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.readers import cnn_top4, question
from lnrepro.data.readers.cnn import CNN
from lnrepro.data.readers.cnn_top4 import CNN_TOP4
from tests.data.reading import read, refused, write

GOOD = (
    "http://cnn/1",
    "@entity1 met @entity12 . they ate 3 fish !",
    "who met @placeholder in @entity7",
    "@entity12",
    "@entity1:A: B\n@entity12:C",
)


def text(*changes, parts=GOOD):
    """A .question file, with (index of a part, its new text) put in."""
    parts = list(parts)
    for i, new in changes:
        parts[i] = new
    return "\n\n".join(parts).encode()


@pytest.mark.parametrize(
    "content",
    [
        text(),
        b"\xef\xbb\xbf" + text(),
        text().replace(b"\n", b"\r\n") + b"\r\n\n",
        b"\n\n".join(text().split(b"\n\n")[:4]),
    ],
)
def test_a_file_is_read(content):
    found = question.parse(content, "f")
    assert found == (GOOD[1].split(), GOOD[2].split(), "@entity12")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "f, line 1: the address is missing"),
        (text((1, "  ")), "f, line 3: the passage is missing"),
        (
            text().replace(b"\n\n", b"\n", 1),
            "f, line 2: an empty line after the address",
        ),
        (text((2, "who")), "f, line 5: the question has 0 @placeholder tokens"),
        (text((3, "C")), "f, line 7: the answer 'C' is not of the form @entityN"),
        (text((3, "@entity1\u0663")), "is not of the form @entityN"),
    ],
)
def test_what_is_out_of_layout_is_named(content, message):
    with refused(message):
        question.parse(content, "f")


def test_sentences_end_with_their_stops():
    passage = [*"ab.c!d?.e"]
    ends = [" ".join(passage[s]) for s in question.sentences(passage)]
    assert ends == ["a b .", "c !", "d ?", ".", "e"]
    assert question.sentences(["a", "."]) == [slice(0, 2)]


def test_sentences_rank_by_what_they_share_with_the_question():
    passage = "the cat sat . @entity1 ran . a dog and @entity2 ran . nothing ."
    asked = "the dog of @entity2 and @placeholder"
    # The scores are 1 (the), 0, 4 (dog, and, @entity2 twice) and 0.
    wanted = [1] * 4 + [2] * 3 + [0] * 6 + [3] * 2
    assert question.ranks(passage.split(), asked.split()).tolist() == wanted
    ranks = question.ranks(["x", "."] * 300, ["x"]).tolist()
    assert ranks == [min(i // 2, 255) for i in range(600)]


# -- whole sets


def folder_of(path, files):
    """A raw folder with files {split: [content]}."""
    for split, contents in files.items():
        for i, content in enumerate(contents):
            write(path / "questions" / split, {f"{i:03}.question": content})
    return path


FILES = {
    "training": [text(), text((1, "@entity0 ate fish . fish ate @entity12 . they 12"))],
    "validation": [
        text((1, "@entity3 ate 7 unheard fish ."), (3, "@entity3")),
        text((1, "nobody .")),
    ],
}


def as_words(content, split, name):
    """The passages or questions of a split."""
    words = content.facts["words"]
    return [
        " ".join(words[i] for i in np.atleast_1d(ids))
        for ids in content.splits[split][name]
    ]


def test_a_set_has_its_words_and_counts(tmp_path):
    content = read(CNN, folder_of(tmp_path, FILES))
    facts = content.facts
    # Words get an id if they occur twice in training. "!" does not, nor do numbers.
    assert facts["words"][:14] == ["<pad>", *(f"@entity{i}" for i in range(13))]
    assert facts["words"][14:17] == ["@placeholder", "<unk>", "<num>"]
    assert set(facts["words"][17:]) == {"fish", "ate", "met", ".", "who", "in", "they"}
    assert facts["entities"] == 13
    assert facts["counts"]["train"] == {
        "questions": 2,
        "answer not in passage": 0,
        "answer not in four sentences": 0,
        "left out": 0,
    }
    assert facts["counts"]["valid"]["answer not in passage"] == 1
    passages = as_words(content, "valid", "passage")
    assert passages[0] == "@entity3 ate <num> <unk> fish ."
    assert as_words(content, "valid", "question")[0] == GOOD[2]
    assert as_words(content, "valid", "answer") == ["@entity3", "@entity12"]
    assert content.splits["valid"]["rank"][0].dtype == np.uint8


def test_a_folder_and_an_archive_in_any_order_are_one_set(tmp_path):
    names = (10, 9, 2, 1)
    texts = [
        text((0, f"http://cnn/{n}"), (1, f"w{n} w{n} @entity{n} .")) for n in names
    ]
    raw = folder_of(tmp_path / "raw", dict.fromkeys(("training", "validation"), texts))
    content = read(CNN, raw)
    # The numbers in addresses are compared as numbers.
    passages = as_words(content, "train", "passage")
    assert [p.split()[0] for p in passages] == ["w1", "w2", "w9", "w10"]
    for is_reverse in (False, True):
        packed = tmp_path / f"packed{is_reverse}"
        packed.mkdir()
        with tarfile.open(packed / "cnn.tgz", "w:gz") as tar:
            for path in sorted(raw.rglob("*.question"), reverse=is_reverse):
                tar.add(path, f"cnn/{path.relative_to(raw)}")
        found = read(CNN, packed)
        assert found.facts == content.facts
        assert as_words(found, "train", "passage") == passages


def test_few_malformed_files_are_left_out_and_many_are_refused(tmp_path):
    bad = text((3, "nobody"))
    raw = folder_of(tmp_path / "a", FILES | {"training": [text()] * 200 + [bad]})
    message = (
        "questions/training/200.question, line 7: the answer 'nobody' .*: 1 of 203"
    )
    with pytest.warns(UserWarning, match=message):
        content = read(CNN, raw)
    assert len(content.splits["train"]["answer"]) == 200
    assert content.facts["counts"]["train"]["left out"] == 1
    assert "'nobody' is not of the form" in content.facts["left_out"][0]
    with refused("training/000.question, line 7: .* 2 of 5 are malformed questions"):
        read(CNN, folder_of(tmp_path / "b", FILES | {"training": [bad, bad, text()]}))


def test_files_must_be_in_the_folders_of_the_splits(tmp_path):
    with refused("there must be files in questions/training and questions/validation"):
        read(CNN, folder_of(tmp_path, {"training": [text()]}))
    message = r"questions/dev/000\.question: the files must be in questions/\{training,"
    with refused(message):
        read(CNN, folder_of(tmp_path, {"dev": [text()]}))


# -- pickles


class Malicious:
    """A pickle that would write a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def loaded(folder, content):
    return cnn_top4.load(RawFolder("set", write(folder, {"f": content}), {}), "f")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_in_a_pickle_is_executed(tmp_path, protocol):
    target = tmp_path / "executed"
    for value in (Malicious(target), {"a": [1, {"b": Malicious(target)}]}):
        with refused("f: not a plain pickle .*it names .*open.*plain data only"):
            loaded(tmp_path, pickle.dumps(value, protocol))
    assert not target.exists()
    # What it would have done.
    pickle.loads(pickle.dumps(Malicious(target), protocol)).close()
    assert target.exists()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(np.arange(3)),
        b"cposix\nsystem\n(S'true'\ntR.",
        b"\x80\x02U\x01xQ.",
        pickle.dumps([1] * 100)[:-20],
        b"X\x03\x00\x00\x00\xed\xa0",
        b"",
    ],
)
def test_other_pickles_are_refused(tmp_path, content):
    with refused("f: not a plain pickle"):
        loaded(tmp_path, content)


def test_plain_data_is_read(tmp_path):
    value = {"a": [1, [2, "b"]], "c": {}}
    assert loaded(tmp_path, pickle.dumps(value, 2)) == value
    # As Python 2 wrote it.
    python2 = b"(lp0\nS'caf\\xc3\\xa9'\np1\naI7\na."
    assert loaded(tmp_path, python2) == ["caf\u00e9", 7]


TOP4 = {
    "dict": {
        "UNK": 1,
        "the": 2,
        "@entity5": 3,
        "fish": 4,
        "@entity2": 5,
        "@placeholder": 6,
        ".": 7,
    },
    "train4_pass": [[2, 4, 3, 7, 0], [5, 7, 0]],
    "train4_qs": [[6, 4, 0], [6, 0]],
    "train4_ans": [[3], [5]],
    "valid4_pass": [[4, 5, 1, 0]],
    "valid4_qs": [[2, 6, 0]],
    "valid4_ans": [[3]],
}


def top4(folder, **changes):
    files = {**TOP4, **changes}
    return write(folder, {f"{n}.pkl": pickle.dumps(v, 2) for n, v in files.items()})


def test_the_authors_pickles_are_converted(tmp_path):
    content = read(CNN_TOP4, top4(tmp_path))
    facts = content.facts
    assert facts["words"][:3] == ["<pad>", "@entity2", "@entity5"]
    assert len(facts["words"]) == len(TOP4["dict"]) + 1
    assert facts["entities"] == 2
    assert facts["counts"]["valid"]["answer not in passage"] == 1
    found = {name: as_words(content, "train", name) for name in ("passage", "question")}
    assert found["passage"] == ["the fish @entity5 .", "@entity2 ."]
    assert found["question"] == ["@placeholder fish", "@placeholder"]
    assert as_words(content, "train", "answer") == ["@entity5", "@entity2"]
    assert not any(rank.any() for rank in content.splits["train"]["rank"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dict": {"a": "b"}}, "dict.pkl: not a dict of words and their numbers"),
        ({"dict": {"a": 1, "b": 1}}, "dict.pkl: .* all of them different"),
        ({"train4_qs": [[6, 4, 0]]}, "train4_pass, _qs and _ans.pkl contain different"),
        ({"valid4_pass": [[4, 99, 0]]}, "valid4_pass.pkl, list 0: .*99"),
        ({"valid4_pass": [[4]]}, "valid4_pass.pkl, list 0: .*out of range"),
        ({"valid4_ans": [[4]]}, "valid4_ans.pkl, list 0: not the number of an entity"),
        ({"train4_ans": {"a": 1}}, "train4_ans.pkl, list 0: not a list of numbers"),
        ({"train4_pass": Malicious("x")}, "train4_pass.pkl: not a plain pickle"),
    ],
)
def test_other_values_are_named(tmp_path, changes, message):
    with refused(message):
        read(CNN_TOP4, top4(tmp_path, **changes))
