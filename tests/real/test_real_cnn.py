"""The official CNN questions, and the cloze questions over novels."""

import json

import numpy as np
import pytest

from configs import attentive_reader as config_file
from experiments.attentive_reader import data as questions
from experiments.attentive_reader import evaluate
from lnrepro import data
from lnrepro.data.readers import question


def test_genuine_questions(real_data):
    folder = real_data / "cnn_dailymail_qa"
    # The same five questions as somebody else stored them.
    source = json.loads((folder / "cnn_snippet.jtr.json").read_text())
    for instance in source["instances"]:
        (asked,) = instance["questions"]
        name = asked["id"].removesuffix(".question")
        path = folder / "questions_sample" / f"{name}.question"
        q = question.parse(path.read_bytes(), path)
        assert " ".join(q.passage) == instance["support"]["text"]
        assert " ".join(q.question) == asked["question"]
        assert [q.answer] == [a["text"] for a in asked["answers"]]


@pytest.mark.slow
def test_questions_over_novels(real_data, tmp_path):
    raw = real_data / "gutenberg_cloze"
    data.prepare("cnn", raw, tmp_path, own_name="gutenberg_cloze")
    opened = data.open_set("gutenberg_cloze", tmp_path)
    assert opened.fingerprint == "gutenberg_cloze/1.0.0/dbda17b4ff616a60"
    assert list(opened.splits.values()) == [30_000, 1500, 1500]
    config = config_file.get_config("gutenberg")
    config.data.dir = str(tmp_path)
    assert len(opened.facts["words"]) == config.data.vocabulary
    assert opened.facts["entities"] == config.data.entities
    config.data.sentences, config.data.passage_buckets = None, (350,)
    columns = questions.open_split(config, "valid")
    assert columns["passage"].lengths.mean() == pytest.approx(318.5, abs=0.05)
    # As the set's own description counts them.
    known = evaluate.baselines(columns, np.arange(len(columns["answer"])), 51)
    assert known["frequency_error"] == pytest.approx(1 - 0.3937, abs=1e-4)
    assert known["frequency_error_not_asked"] == pytest.approx(1 - 0.4256, abs=1e-4)
