"""The official CNN questions, and the cloze questions over novels."""

import json
import time

import numpy as np
import pytest

from configs import attentive_reader as config_file
from experiments.attentive_reader import data as questions
from experiments.attentive_reader import evaluate
from lnrepro import data
from lnrepro.data.readers import question


def genuine(folder):
    return {
        p.stem: question.parse(p.read_bytes(), p.name)
        for p in sorted(folder.glob("*.question"))
    }


def test_genuine_questions(real_data):
    folder = real_data / "cnn_dailymail_qa"
    found = genuine(folder / "questions_sample")
    assert sorted(len(q.passage) for q in found.values())[:: len(found) - 1] == [
        464,
        1162,
    ]
    for q in found.values():
        assert q.question.count(question.PLACEHOLDER) == 1
        assert q.answer in q.passage
    source = json.loads((folder / "cnn_snippet.jtr.json").read_text())
    for instance in source["instances"]:  # the same five as somebody else stored them
        (asked,) = instance["questions"]
        q = found[asked["id"].removesuffix(".question")]
        assert q.passage == instance["support"]["text"].split()
        assert q.question == asked["question"].split()
        assert [q.answer] == [a["text"] for a in asked["answers"]]


def test_four_sentences_beside_those_of_somebody_elses_selection(real_data):
    """Our top-4 sentences contain most of those of another selection."""
    folder = real_data / "cnn_dailymail_qa"
    lines = (folder / "cnn_top4_babi_sample.txt").read_text().splitlines()
    blocks = [lines[i : i + 5] for i in range(0, len(lines), 5)]
    assert len(blocks) == 200
    shares = []
    for q, block in zip(
        genuine(folder / "questions_sample").values(), blocks, strict=False
    ):  # both by file name
        assert block[4].split("\t")[1] == q.answer
        theirs = {w for line in block[:4] for w in line.split()[1:] if len(w) > 3}
        ours = {
            w
            for w, r in zip(
                q.passage, question.ranks(q.passage, q.question), strict=True
            )
            if r < 4
        }
        shares.append(len(theirs & ours) / len(theirs))
    assert np.mean(shares) > 0.5


@pytest.mark.slow
def test_questions_over_novels(real_data, tmp_path):
    start = time.process_time()
    raw = real_data / "gutenberg_cloze"
    data.prepare("cnn", raw, tmp_path, own_name="gutenberg_cloze")
    assert time.process_time() - start < 120
    assert data.open_set("gutenberg_cloze", tmp_path).fingerprint == (
        "gutenberg_cloze/1.0.0/dbda17b4ff616a60"
    )
    facts = data.open_set("gutenberg_cloze", tmp_path).facts
    assert [facts["counts"][s]["questions"] for s in ("train", "valid", "test")] == [
        30_000,
        1_500,
        1_500,
    ]
    assert (
        sum(
            c["left out"] + c["answer not in passage"] for c in facts["counts"].values()
        )
        == 0
    )
    config = config_file.get_config("gutenberg")
    config.data.dir, config.data.sentences = str(tmp_path), None
    assert (len(facts["words"]), facts["entities"]) == (
        config.data.vocabulary,
        config.data.entities,
    )
    config.data.passage_buckets = (350,)
    columns = questions.open_split(config, "valid")
    assert columns["passage"].lengths.mean() == pytest.approx(318.5, abs=0.05)
    known = evaluate.baselines(columns, np.arange(len(columns["answer"])), 51)
    # as the set's own description counts them
    assert known["frequency_error"] == pytest.approx(1 - 0.3937, abs=1e-4)
    assert known["frequency_error_not_asked"] == pytest.approx(1 - 0.4256, abs=1e-4)
    config = config_file.get_config("gutenberg")
    config.data.dir = str(tmp_path)
    columns = questions.open_split(config, "train")
    shapes = questions.Shapes(config, columns)
    plan = shapes.plan(config)
    batches = [plan.rows(k) for k in range(plan.steps_per_epoch)]
    empty = {name: np.empty((1, size)) for name, size in shapes.largest().items()}
    used = [
        tuple(text.shape[1] for text in shapes.cut(empty, rows).values())
        for rows in batches
    ]
    assert len(set(used)) <= 28
    lengths = shapes.lengths.values()
    words = sum(of_text[rows].sum() for rows in batches for of_text in lengths)
    assert words > 0.85 * plan.batch_size * np.sum(used)
