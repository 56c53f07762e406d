"""scripts/write_handwriting.py on a small run: the drawing of a text, and bad input."""

import re

import pytest

from lnrepro.engine import config_file
from scripts import write_handwriting
from tests.refused import refused
from tests.runs import smoke_run


@pytest.mark.slow
def test_text_becomes_a_drawing(tmp_path, caplog):
    folder = smoke_run("handwriting", tmp_path)
    width = config_file.read("configs/handwriting.py:smoke").model.characters
    flags = [f"--workdir={folder}", f"--out={tmp_path / 'a.svg'}", "--text"]
    write_handwriting.main([*flags, f"{'a' * width} 7"])
    drawing = (tmp_path / "a.svg").read_text()
    assert drawing.startswith("<svg ")
    # Two lines.
    assert drawing.count("<g>") == 2
    assert re.search(r"[ML ]-?\d+\.\d+,", drawing)
    assert "nan" not in drawing
    assert "not among the 57 symbols, written as 'other': 7" in caplog.text
    with refused("--text is empty"):
        write_handwriting.main([*flags, " "])


def test_bad_flags_are_one_line(tmp_path):
    for flags, message in (
        (["--text=a", "--out=a.jpg"], "a.jpg: the name must end in .svg"),
        (["--text=a"], "holds no run"),
    ):
        with refused(message):
            write_handwriting.main([f"--workdir={tmp_path}", *flags])
