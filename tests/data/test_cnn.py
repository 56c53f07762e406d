"""CNN questions: ranking of sentences, sets of questions, and pickles."""

import pickle

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


def text(*changes):
    """A .question file, with (index of a part, its new text) put in."""
    parts = list(GOOD)
    for i, new in changes:
        parts[i] = new
    return "\n\n".join(parts).encode()


def test_sentences_rank_by_what_they_share_with_the_question():
    passage = "a dog dog and . the @entity2 . nothing ! the ran ? x"
    asked = "the dog of @entity2 and @placeholder"
    # The scores are 2 (dog, and), 3 (the, @entity2 twice), 0, 1 (the) and 0.
    wanted = [1] * 5 + [0] * 3 + [3] * 2 + [2] * 3 + [4]
    assert question.ranks(passage.split(), asked.split()).tolist() == wanted
    ranks = question.ranks(["x", "."] * 300, ["x"])
    assert ranks.tolist() == [min(i // 2, 255) for i in range(600)]
    assert ranks.dtype == np.uint8


def folder_of(path, **contents):
    """A raw folder with questions by their splits."""
    for split, texts in contents.items():
        for i, content in enumerate(texts):
            write(path, {f"questions/{split}/{i:03}.question": content})
    return path


TRAINING = [text(), text((1, "@entity0 ate fish . fish ate @entity12 . they 12"))]
VALIDATION = [
    text((1, "@entity3 ate 7 unheard fish ."), (3, "@entity3")),
    text((1, "nobody . " * 4 + "@entity12")),
    text((1, "nobody .")),
]


def as_words(content, split, name):
    """The passages, questions or answers of a split."""
    words = content.facts["words"]
    columns = content.splits[split][name]
    return [" ".join(words[i] for i in np.atleast_1d(ids)) for ids in columns]


def test_a_set_has_its_words_and_counts(tmp_path):
    content = read(CNN, folder_of(tmp_path, training=TRAINING, validation=VALIDATION))
    facts = content.facts
    assert facts["words"][:14] == ["<pad>", *(f"@entity{i}" for i in range(13))]
    # Words have an id if they occur twice in training. "!" does not, nor do numbers.
    wanted = "@placeholder <unk> <num> met . ate fish they who in"
    assert facts["words"][14:] == wanted.split()
    assert facts["entities"] == 13
    valid = {"questions": 3, "answer not in passage": 1}
    valid |= {"answer not in four sentences": 2, "left out": 0}
    assert facts["counts"]["valid"] == valid
    assert facts["counts"]["train"] == dict.fromkeys(valid, 0) | {"questions": 2}
    passages = as_words(content, "valid", "passage")
    assert passages[0] == "@entity3 ate <num> <unk> fish ."
    assert as_words(content, "valid", "question")[0] == GOOD[2]
    answers = as_words(content, "valid", "answer")
    assert answers == ["@entity3", "@entity12", "@entity12"]


def test_questions_are_sorted_by_addresses(tmp_path):
    names = (10, 9, 2, 1)
    texts = [text((0, f"cnn/{n}"), (1, f"w{n} w{n} @entity{n} .")) for n in names]
    content = read(CNN, folder_of(tmp_path, training=texts, validation=texts))
    # The numbers in addresses are compared as numbers.
    passages = as_words(content, "train", "passage")
    assert [passage.split()[0] for passage in passages] == ["w1", "w2", "w9", "w10"]


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
    with refused("f: not a plain pickle"):
        loaded(tmp_path, b"cposix\nsystem\n(S'true'\ntR.")
    assert not target.exists()
    # What it would have done.
    pickle.loads(pickle.dumps(Malicious(target), protocol)).close()
    assert target.exists()


def test_pickles_of_python_2_are_read(tmp_path):
    content = b"(lp0\nS'caf\\xc3\\xa9'\np1\naI7\na."
    assert loaded(tmp_path, content) == ["caf\u00e9", 7]


WORDS = ("UNK", "the", "@entity5", "fish", "@entity2", "@placeholder", ".")
TOP4 = {
    "dict": {word: i for i, word in enumerate(WORDS, 1)},
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
    # An accent may be a character of its own.
    words = {"cafe\u0301": 0} | TOP4["dict"]
    content = read(CNN_TOP4, top4(tmp_path, dict=words))
    # The entities, and the other words by first appearance.
    wanted = "<pad> @entity2 @entity5 the fish . @placeholder UNK caf\u00e9"
    assert content.facts["words"] == wanted.split()
    assert content.facts["counts"]["valid"]["answer not in passage"] == 1
    passages = as_words(content, "train", "passage")
    assert passages == ["the fish @entity5 .", "@entity2 ."]
    questions = as_words(content, "train", "question")
    assert questions == ["@placeholder fish", "@placeholder"]
    assert as_words(content, "train", "answer") == ["@entity5", "@entity2"]
