"""A form of the real IAM-OnDB, and a line that anybody can read."""

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
