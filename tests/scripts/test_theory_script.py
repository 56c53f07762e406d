"""scripts/theory.py: what docs/theory.md shows, and bad input."""

import pytest

from scripts import theory as script
from tests.runs import ROOT


@pytest.mark.slow
def test_the_page_has_the_tables(capsys):
    script.main([])
    out = capsys.readouterr().out
    assert out.count("invariant") == 10
    page = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    errors = [line for line in out.splitlines() if line.startswith("| eq.")]
    assert len(errors) == 2
    for line in errors:
        assert line in page
