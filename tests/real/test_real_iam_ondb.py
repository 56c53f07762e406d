"""The real IAM-OnDB: its counts and statistics, and a line that anybody can read."""

import numpy as np
import pytest

from experiments.handwriting import writing
from experiments.handwriting.data import Lines
from lnrepro import data
from lnrepro.data.readers import handwriting
from lnrepro.data.readers import iam_ondb as iam

TEXTS = [
    "A MOVE to stop Mr . Gaitskell",
    "from nomnating any more Labour",
    "life Peers is to be made at a",
    "meeting of Labour M Ps tomorrow",
    "Mr . Michael Foot has put down a",
    "resolution on the subject",
]


def test_sample_forms_parse(real_data):
    sample = real_data / "iam-ondb" / "sample"
    form = sample / "ascii/a01/a01-000/a01-000u.txt"
    assert iam.transcription(form.read_bytes(), form, len(TEXTS)) == TEXTS
    counts = []
    for i in range(1, 7):
        path = sample / f"lineStrokes/a01/a01-000/a01-000u-0{i}.xml"
        line = iam.points(path.read_bytes(), path)
        assert len(line) == path.read_text("latin-1").count("<Point ")
        assert line[:, 2].sum() == path.read_text("latin-1").count("</Stroke>")
        counts.append(len(line))
    assert counts == [568, 606, 462, 603, 585, 400]


def test_a_line_becomes_a_picture_of_itself(real_data):
    """Every point of the file lies under ink, and nearly all ink near a point."""
    path = real_data / "iam-ondb" / "sample/lineStrokes/a01/a01-000/a01-000u-01.xml"
    line = iam.points(path.read_bytes(), path)
    columns = {
        "strokes": [iam.offsets(line)],
        "text": [handwriting.encode(TEXTS[0])],
    }
    lines = Lines(columns, {"mean": [8.18, 0.11], "std": [41.95, 37.12]})
    strokes = writing.strokes_of(lines.denormalise(lines[0]["steps"]))
    assert len(strokes) == line[:, 2].sum()
    np.testing.assert_allclose(
        np.concatenate(strokes), line[:, :2] - line[0, :2], atol=0.2
    )
    text = [handwriting.SYMBOLS[number] for number in lines[0]["text"]]
    assert "".join(text) == TEXTS[0]


@pytest.mark.slow
def test_official_files_prepare_and_read_back(real_data, tmp_path):
    # 177 texts have no strokes.
    data.prepare("iam_ondb", real_data / "iam-ondb", tmp_path)
    facts = data.open_set("iam_ondb", tmp_path).facts
    assert facts["lines"] == {
        "trainset": 5364,
        "testset_v": 1438,
        "testset_t": 1518,
        "testset_f": 3859,
    }
    assert facts["skipped"] == []
    np.testing.assert_allclose(facts["mean"], [8.18, 0.11], atol=5e-3)
    np.testing.assert_allclose(facts["std"], [41.95, 37.12], atol=5e-3)
    train, valid = (
        data.open_columns("iam_ondb", split, tmp_path) for split in ("train", "valid")
    )
    assert (len(train["id"]), len(valid["id"])) == (10_741, 1438)
    steps = train["strokes"].values
    assert round(steps[:, 2].mean(), 3) == 0.040
    assert np.abs(steps[:, :2]).max(0).tolist() == [2863, 1794]
    np.testing.assert_array_equal(
        np.percentile(np.abs(steps[:, :2]), 99, axis=0), [191, 171]
    )
    points = np.concatenate([train["strokes"].lengths, valid["strokes"].lengths]) + 1
    assert (round(points.mean()), np.median(points), points.max()) == (628, 620, 1940)
    assert round((points >= 501).mean(), 2) == 0.76
    assert round((train["text"].values == 0).mean(), 3) == 0.014
    assert data.open_set("iam_ondb", tmp_path).fingerprint.startswith(
        "iam_ondb/1.0.0/07f2ff4037766602"
    )
