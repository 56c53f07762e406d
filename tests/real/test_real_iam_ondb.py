"""A form of the real IAM-OnDB, and a line that anybody can read."""

import numpy as np

from experiments.handwriting import writing
from experiments.handwriting.data import Lines
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
    for path in sorted(sample.glob("lineStrokes/a01/a01-000/a01-000u-0*.xml")):
        line, text = iam.points(path.read_bytes(), path), path.read_text("latin-1")
        assert line[:, 2].sum() == text.count("</Stroke>")
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
