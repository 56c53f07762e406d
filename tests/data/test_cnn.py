"""Parser of .question files, ranking of sentences, and pickles of the CNN corpus."""

import io
import pickle
import subprocess
import sys
import tarfile
import textwrap

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.generated import news
from lnrepro.data.official import cnn, plain_pickle, question
from lnrepro.data.raw import Raw
from lnrepro.errors import DataError

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


def test_a_file_is_read():
    q = question.parse(text(), "f")
    assert q.address == "http://cnn/1"
    assert q.passage == [
        "@entity1",
        "met",
        "@entity12",
        ".",
        "they",
        "ate",
        "3",
        "fish",
        "!",
    ]
    assert q.question == ["who", "met", "@placeholder", "in", "@entity7"]
    assert (q.answer, q.names) == ("@entity12", {"@entity1": "A: B", "@entity12": "C"})
    assert question.parse(b"\xef\xbb\xbf" + text(), "f") == q
    for more in (b"\n", b"\r\n\n"):
        assert question.parse(text().replace(b"\n", b"\r\n") + more, "f") == q
    assert question.parse(b"\n\n".join(text().split(b"\n\n")[:4]), "f").names == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "f, line 1: the address is missing"),
        (text((1, "  ")), "f, line 3: the passage is missing"),
        (b"\n\n".join(text().split(b"\n\n")[:2]), "f, line 5: the question is missing"),
        (b"\n\n".join(text().split(b"\n\n")[:3]), "f, line 7: the answer is missing"),
        (
            text().replace(b"\n\n", b"\n", 1),
            "f, line 2: the line after the address must be empty",
        ),
        (
            text((2, "who met him")),
            "f, line 5: the question has 0 @placeholder tokens instead of 1",
        ),
        (
            text((2, "@placeholder met @placeholder")),
            "f, line 5: .* 2 @placeholder tokens",
        ),
        (text((3, "C")), "f, line 7: the answer 'C' is not of the form @entityN"),
        (
            text((3, "@entity1 @entity2")),
            "f, line 7: the answer '@entity1 @entity2' is not of the form @entityN",
        ),
        (text((3, "@entity99999999")), "is not of the form @entityN"),
        (text((3, "@entity1\u0663")), "is not of the form @entityN"),
        (
            text((4, "@entity1:A\n@entity2 B")),
            "f, line 10: '@entity2 B' is not of the form @entityN:name",
        ),
        (text((4, "person:A")), "f, line 9: 'person:A' is not of the form"),
        (text() + b"\n@entity3:\0", "f, line 11: a NUL byte; save the file as UTF-8"),
    ],
)
def test_what_is_out_of_layout_is_one_line(content, message):
    with pytest.raises(DataError, match=message) as e:
        question.parse(content, "f")
    assert "\n" not in str(e.value)


def test_sentences_end_with_their_stops():
    passage = ["a", "b", ".", "c", "!", "d", "?", ".", "e"]
    assert [passage[s] for s in question.sentences(passage)] == [
        ["a", "b", "."],
        ["c", "!"],
        ["d", "?"],
        ["."],
        ["e"],
    ]
    assert question.sentences(["a", "."]) == [slice(0, 2)]


def test_sentences_rank_by_what_they_share_with_the_question():
    passage = [
        "the",
        "cat",
        "sat",
        ".",
        "@entity1",
        "ran",
        ".",
        "a",
        "dog",
        "and",
        "@entity2",
        "ran",
        ".",
        "nothing",
        ".",
    ]
    asked = ["the", "dog", "of", "@entity2", "and", "@placeholder"]
    # The scores are 1 (the), 0, 4 (dog, and, @entity2 twice) and 0.
    assert (
        question.ranks(passage, asked).tolist() == [1] * 4 + [2] * 3 + [0] * 6 + [3] * 2
    )
    long = ["x", "."] * 300
    assert question.ranks(long, ["x"]).tolist() == [
        min(i // 2, 255) for i in range(600)
    ]


# -- whole sets


def folder_of(tmp_path, files):
    """A raw folder with files {split: [content]}."""
    for split, contents in files.items():
        place = tmp_path / "questions" / split
        place.mkdir(parents=True)
        for i, content in enumerate(contents):
            (place / f"{i:03}.question").write_bytes(content)
    return tmp_path


FILES = {
    "training": [text(), text((1, "@entity0 ate fish . fish ate @entity12 . they 12"))],
    "validation": [
        text((1, "@entity3 ate 7 unheard fish ."), (3, "@entity3")),
        text((1, "nobody .")),
    ],
}


def test_a_set_is_prepared_with_its_words_and_counts(tmp_path):
    raw = folder_of(tmp_path / "raw", FILES)
    data.prepare("cnn", raw, tmp_path / "a")
    facts = data.facts("cnn", tmp_path / "a")
    # Words get an id if they occur twice in training. "!" does not, nor do numbers.
    assert facts["words"][:14] == ["<pad>", *(f"@entity{i}" for i in range(13))]
    assert facts["words"][14:17] == ["@placeholder", "<unk>", "<num>"]
    assert sorted(facts["words"][17:]) == sorted(
        ["fish", "ate", "met", ".", "who", "in", "they"]
    )
    assert facts["entities"] == 13
    assert facts["counts"]["train"] == {
        "questions": 2,
        "answer not in passage": 0,
        "answer not in four sentences": 0,
        "left out": 0,
    }
    assert facts["counts"]["valid"]["answer not in passage"] == 1  # counted and kept
    columns = data.open_columns("cnn", "valid", tmp_path / "a")
    read = lambda ids: " ".join(facts["words"][i] for i in ids)  # noqa: E731
    assert read(columns["passage"][0]) == "@entity3 ate <num> <unk> fish ."
    assert read(columns["question"][0]) == "who met @placeholder in @entity7"
    assert [read([a]) for a in columns["answer"]] == ["@entity3", "@entity12"]
    assert columns["rank"].values.dtype == np.uint8

    raw2 = tmp_path / "raw2"
    raw2.mkdir()
    with tarfile.open(raw2 / "cnn.tgz", "w:gz") as tar:
        for path in sorted((raw / "questions").rglob("*.question")):
            tar.add(path, "cnn/questions/" + str(path.relative_to(raw / "questions")))
    data.prepare("cnn", raw2, tmp_path / "b")
    assert data.fingerprint("cnn", tmp_path / "a") == data.fingerprint(
        "cnn", tmp_path / "b"
    )


class Quiet(cnn.Cnn):
    """The builder without TFDS around it."""

    def __init__(self):
        self.facts, self._progress = {}, lambda *_: None


def encoded(files):
    builder = Quiet()
    made = builder.encode(
        (question.FOLDERS[s], f"{s}/{i}", c)
        for s, cs in files.items()
        for i, c in enumerate(cs)
    )
    return builder.facts, made


def test_few_files_out_of_layout_are_left_out_and_counted_and_many_are_refused():
    bad = text((3, "nobody"))
    files = FILES | {"training": [text()] * 200 + [bad]}
    with pytest.warns(
        UserWarning,
        match="1 of [0-9]+ files are malformed and left out; the first one: "
        "training/200, line 7: the answer 'nobody'",
    ):
        facts, made = encoded(files)
    assert len(made["train"]) == 200
    assert facts["counts"]["train"]["left out"] == 1
    assert facts["left_out"] == [
        "training/200, line 7: the answer 'nobody' is not of the form @entityN"
    ]
    with pytest.raises(
        DataError,
        match=r"training/0, line 7: .* \(2 files are malformed\); "
        "get the official files",
    ):
        encoded(FILES | {"training": [bad, bad, text()]})
    with pytest.raises(
        DataError,
        match="there must be files in questions/training and questions/validation",
    ):
        encoded({"training": [text()]})


def test_files_in_other_folders_are_refused(tmp_path):
    raw = folder_of(tmp_path, FILES | {"dev": [text()]})
    with pytest.raises(
        DataError,
        match=r"questions/dev/000\.question: the files must be in "
        r"questions/\{training,validation,test\}/",
    ):
        list(Quiet().contents(Raw("cnn", raw)))


# -- pickles


class Malicious:
    """A pickle that would write a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_in_a_pickle_is_executed(tmp_path, protocol):
    target = tmp_path / "executed"
    for value in (
        Malicious(target),
        [[1, 2], Malicious(target)],
        {"a": {"b": Malicious(target)}},
    ):
        with pytest.raises(
            DataError, match=r"f: refused, the pickle names .*open.*; do not trust it"
        ) as e:
            plain_pickle.load(pickle.dumps(value, protocol), "f")
        assert "\n" not in str(e.value)
    assert not target.exists()
    pickle.loads(pickle.dumps(Malicious(target), protocol)).close()
    assert target.exists()  # what it would have done


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps([1, 2.5]), "f: refused, it contains a value of type float"),
        (pickle.dumps({"a": (1,)}), "f: refused, it contains a value of type tuple"),
        (pickle.dumps([None]), "f: refused, it contains a value of type NoneType"),
        (pickle.dumps([True]), "f: refused, it contains a value of type bool"),
        (pickle.dumps([b"bytes"]), "f: refused"),
        (pickle.dumps({1, 2}, 4), "f: refused, it contains a value of type set"),
        (pickle.dumps(np.arange(3)), "f: refused, the pickle names .*numpy"),
        (
            b"cposix\nsystem\n(S'true'\ntR.",
            "f: refused, the pickle names 'posix.system'",
        ),
        (b"\x80\x02U\x01xQ.", "f: refused, the pickle refers to data outside itself"),
        (pickle.dumps([1] * 100)[:-20], "f: not a pickle that can be read"),
        (b"", "f: not a pickle that can be read"),
    ],
)  # fmt: skip
def test_only_plain_data_is_read(content, message):
    with pytest.raises(DataError, match=message):
        plain_pickle.load(content, "f")


def holding_one_another(levels):
    """A pickle of 2 ** levels values in 4 * levels bytes."""
    value = [1]
    for _ in range(levels):
        value = [value, value]
    return pickle.dumps(value, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            holding_one_another(40),
            "f: refused, its values contain each other again and again",
        ),
        (
            b"]q\x00h\x00a.",
            "f: refused, its values contain each other again and again",
        ),  # a list in itself
        (
            b"\x96" + b"\xff" * 5 + b"\x00\x00\x00.",
            "f: refused, the pickle contains a bytearray",
        ),
        (b"X\x03\x00\x00\x00\xed\xa0\x80.", r"f: refused, '\\ud800' cannot be encoded"),
    ],
)
def test_few_bytes_do_not_become_many(content, message):
    with pytest.raises(DataError, match=message) as e:
        plain_pickle.load(content, "f")
    assert str(e.value).isprintable()


def nested_tuples(levels=45):
    """A dict whose key takes 2 ** levels steps to hash."""
    return b"\x80\x02}K\x01" + b"2\x86" * levels + b"K\x01s."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (nested_tuples(), "a dict with a key of type tuple"),
        (nested_tuples().replace(b"}K", b"}(K").replace(b"s.", b"u."), "type tuple"),
        (b"\x80\x04\x8f(K\x01" + b"2\x86" * 45 + b"\x90.", "a value of type set"),
        (b"\x80\x04(K\x01" + b"2\x86" * 45 + b"\x91.", "a value of type set"),
        (b"(K\x01" + b"2\x86" * 45 + b"K\x01d.", "a dict with a key of type tuple"),
        (pickle.dumps({1: 2}), "a dict with a key of type int"),
        (b"]p" + b"9" * 40 + b"\n.", "the pickle numbers more values than it can have"),
    ],
)
def test_few_bytes_do_not_take_years_to_hash(content, message):
    assert len(content) < 120
    with pytest.raises(DataError, match=f"f: refused, .*{message}"):
        plain_pickle.load(content, "f")


def test_six_bytes_of_a_pickle_do_not_fill_gigabytes():
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
        from lnrepro.data.official import plain_pickle
        assert plain_pickle.load(b"]r\\xff\\xff\\xff\\x0f.", "f") == []
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_what_is_no_number_is_named_in_short():
    deep = []
    for _ in range(10_000):
        deep = [deep]
    for bad, shown in (
        (10**5000, "a value of type int"),
        (-7, "-7"),
        (0, "0"),
        ({}, "a value of type dict"),
        (deep, "a value of type list"),
        ("x", "a value of type str"),
    ):
        with pytest.raises(
            DataError, match=f"f, list 1: {shown} is not a number of dict.pkl"
        ):
            cnn.check_lists([[1, 0], [bad, 0]], {1: "a"}, "f", True)


def test_a_split_without_questions_is_one_line(tmp_path):
    nothing = {f"valid4_{part}": [] for part in ("pass", "qs", "ans")}
    with pytest.raises(
        DataError, match="raw: the files hold no example of the split valid"
    ):
        data.prepare("cnn_top4", top4(tmp_path / "raw", **nothing), tmp_path / "data")


def test_plain_data_is_read():
    value = {"a": [1, [2, "b"]], "c": {}}
    assert plain_pickle.load(pickle.dumps(value, 2), "f") == value
    assert plain_pickle.load(b"(lp0\nS'caf\\xc3\\xa9'\np1\naI7\na.", "f") == [
        "café",
        7,
    ]  # as Python 2 wrote it
    depth = 10_000  # lists in lists: no recursion of ours
    value, found = plain_pickle.load(b"]" * depth + b"a" * (depth - 1) + b".", "f"), 1
    while value:
        (value,) = value
        found += 1
    assert found == depth


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
    folder.mkdir()
    for name, value in (TOP4 | changes).items():
        (folder / f"{name}.pkl").write_bytes(
            value if isinstance(value, bytes) else pickle.dumps(value, 2)
        )
    return folder


def test_the_authors_pickles_are_converted(tmp_path):
    data.prepare("cnn_top4", top4(tmp_path / "raw"), tmp_path)
    facts = data.facts("cnn_top4", tmp_path)
    assert facts["words"][:3] == ["<pad>", "@entity2", "@entity5"]
    assert len(facts["words"]) == len(TOP4["dict"]) + 1
    assert facts["entities"] == 2
    assert facts["counts"]["valid"]["answer not in passage"] == 1
    train = data.open_columns("cnn_top4", "train", tmp_path)
    read = lambda ids: " ".join(facts["words"][i] for i in ids)  # noqa: E731
    assert [read(p) for p in train["passage"]] == ["the fish @entity5 .", "@entity2 ."]
    assert [read(q) for q in train["question"]] == ["@placeholder fish", "@placeholder"]
    assert read(train["answer"]) == "@entity5 @entity2"
    assert not train["rank"].values.any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dict": {"a": "b"}}, "dict.pkl: not a dict of words and their numbers"),
        ({"dict": [1]}, "dict.pkl: not a dict"),
        ({"dict": {"a": 1, "b": 1}}, "dict.pkl: two words have the same number"),
        (
            {"train4_qs": [[6, 4, 0]]},
            "train4_pass, _qs and _ans.pkl contain different numbers",
        ),
        (
            {"valid4_pass": [[4, 99, 0]]},
            "valid4_pass.pkl, list 0: 99 is not a number of dict.pkl",
        ),
        ({"valid4_pass": [[4]]}, "valid4_pass.pkl, list 0: 1 numbers"),
        ({"valid4_ans": [[3, 5]]}, "valid4_ans.pkl, list 0: 2 numbers"),
        ({"train4_ans": {"a": 1}}, "train4_ans.pkl: not a list of lists"),
        (
            {"train4_pass": pickle.dumps(Malicious("x"))},
            "train4_pass.pkl: refused, the pickle names",
        ),
    ],
)
def test_other_pickles_are_one_line(tmp_path, changes, message):
    class Converter(cnn.CnnTop4):
        __init__ = Quiet.__init__

    raw = Raw("cnn_top4", top4(tmp_path / "raw", **changes), cnn.CnnTop4.files)
    with pytest.raises(DataError, match=message) as e:
        Converter().examples(raw)
    assert "\n" not in str(e.value)


# -- the embedded stories


def test_stories_are_questions_that_need_the_story():
    """How often an entity is named does not tell whether it is the answer."""
    likely, share = [], []
    for split, where, content in news.files():
        if split != "valid":
            continue
        q = question.parse(content, where)
        assert q.answer in q.passage
        assert q.answer not in q.question
        named = [t for t in q.passage if t.startswith("@entity")]
        assert set(q.names) == set(named)
        counts = {e: named.count(e) for e in q.names}
        best = [e for e in counts if counts[e] == max(counts.values())]
        likely.append((q.answer in best) / len(best))
        share.append(1 / len(counts))
    assert len(likely) == 400
    assert np.mean(likely) < np.mean(share) + 0.08
    assert np.mean(share) < 0.16
    assert next(news.files())[2].startswith(b"generated/training/00000\n\n")


def test_archives_are_refused_where_they_point_outside(tmp_path):
    with tarfile.open(tmp_path / "questions.tar", "w") as tar:
        member = tarfile.TarInfo("../questions/training/a.question")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(DataError, match="points out of the archive"):
        list(Quiet().contents(Raw("cnn", tmp_path)))
