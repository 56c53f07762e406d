"""Every parser on damaged files, and the fuzzer on parsers with known faults."""

import functools
import os
import pathlib
import signal

import hypothesis
import pytest

from lnrepro import data
from lnrepro.data.file_kinds import SUFFIXES, ZSTD
from lnrepro.errors import DataError
from tests.hardening import fuzz, mutate
from tests.hardening.parsers import Parser, parsers
from tests.hardening.samples import samples

FOUND = samples()
SETS = sorted({sample.name for sample in FOUND} & set(data.TABLE))


@pytest.mark.parametrize("name", parsers())
def test_a_parser_refuses_what_it_does_not_take(name, tmp_path):
    # A book takes longer than the other formats. Damage must leave some files readable,
    # so both counts are above 0.
    count = 40 if "book" in name else 100
    found = fuzz.trial(name, count, 1, FOUND, tmp_path)
    assert found.fault is None
    assert found.accepted
    assert found.refused


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_prepared_whole_or_leaves_nothing(name, tmp_path):
    found = fuzz.trial(fuzz.PREPARE + name, 3, 1, FOUND, tmp_path)
    assert found.fault is None


def test_undamaged_samples_are_taken(tmp_path):
    """A sample that is refused as it is would try nothing."""
    for i, sample in enumerate(FOUND):
        for name, parser in parsers().items():
            for path, content in sample.files.items():
                other = name == "pickle" and not path.endswith(
                    ("_pass.pkl", "_qs.pkl")
                )  # not what cnn.check_lists takes
                if fuzz.matches(parser, f"{sample.name}/{path}", content) and not other:
                    file = (
                        tmp_path
                        / f"{i}-{name.replace(' ', '')}"
                        / (parser.name + parser.packing)
                    )
                    file.parent.mkdir(exist_ok=True)
                    file.write_bytes(
                        fuzz.PACK[parser.packing](content)
                        if parser.packing
                        else content
                    )
                    parser.parse(content, file)


def test_every_builder_with_files_is_tried():
    # Embedded sets have no files and no parser.
    wanted = {name for name in data.TABLE if not data.builder_class(name).embedded}
    alike = {
        "coco_captions",
        "gutenberg_cloze",
        "bookcorpus",
        "cr",
        "subj",
        "mpqa",
    }  # parsers of a set that is there
    assert wanted - alike == set(SETS)
    packings = {"", *SUFFIXES} - {".zst" if ZSTD is None else None}
    assert {parser.packing for parser in parsers().values()} == packings


def wrong(kind):
    """Return a table with a parser that is wrong in one way."""

    def parse(content, path):
        if kind == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "slow":
            while True:
                pass
        elif kind == "message":
            raise DataError(f"{path}: two\nlines")
        elif kind == "long":
            raise DataError(f"{path}: {'x' * 1000}")
        elif kind == "nameless":
            raise DataError("somewhere")
        elif kind == "memory":
            try:
                bytearray(2 * fuzz.MEMORY)
            except MemoryError as e:
                raise DataError(f"{path}: damaged") from e
        else:
            raise ValueError("an error of its own")

    return {"it": Parser("mnist/*", parse)}


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("other", "ValueError: 'an error of its own' at test_fuzz.py:"),
        ("message", "the message is not one printable line"),
        ("long", "the message has "),
        ("nameless", "the message does not name the file: somewhere"),
        ("slow", "Slow: 'took longer than 0.01 s'"),
        ("memory", "refused for want of memory"),
        ("crash", "the process ended with exit code -9"),
    ],
)
def test_every_kind_of_fault_is_found(monkeypatch, tmp_path, kind, fault):
    monkeypatch.setattr(fuzz, "LIMIT_SECONDS", 0.01)
    monkeypatch.setattr(fuzz, "TOTAL_SECONDS", 60)
    # A limit on memory and a crash concern the whole process.
    run = fuzz.in_own_process if kind in ("memory", "crash") else fuzz.trial
    found = run("it", 20, 0, FOUND, tmp_path, functools.partial(wrong, kind))
    assert found.refused == 0
    assert found.fault.startswith(fault)
    # The input that shows it is kept.
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_a_preparation_leaves_behind_is_a_fault(monkeypatch, tmp_path):
    # Refuses, but leaves an empty folder.
    def careless(name, raw, target, own_name):
        (pathlib.Path(target) / name).mkdir()
        raise DataError("refused")

    monkeypatch.setattr(data, "prepare", careless)
    found = fuzz.trial("prepare mr", 2, 0, FOUND, tmp_path)
    assert found.fault == "left in the data directory: mr"


def draws() -> list[bytes]:
    seeds, drawn = [b"one 1\ntwo 2\n" * 20, b"three 3\n" * 30], []

    @hypothesis.seed(0)
    @hypothesis.settings(max_examples=600, database=None, deadline=None)
    @hypothesis.given(mutate.damaged(seeds, [b"TOKEN"]))
    def draw(content):
        drawn.append(content)

    draw()
    # Most draws are damaged.
    assert sum(d in seeds for d in drawn) < 240
    return drawn


def test_damage_is_the_same_again_and_of_every_kind():
    drawn = draws()
    assert drawn == draws()
    assert max(map(len, drawn)) <= mutate.LARGEST
    # One sign of each kind of damage.
    for sign in (
        b"TOKEN",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\r\n",
        b"9" * 30,
    ):
        assert any(sign in d for d in drawn), sign
    assert any(bracket * 500 in d for d in drawn for bracket in mutate.NESTED)
