"""How often the config goes back to a file on its way to the first batch."""

import sys

import pytest
from ml_collections import ConfigDict

from lnrepro.engine import config_file, train
from tests.runs import ROOT


class FirstBatch(Exception):
    """The first training batch is there."""


def is_whole(value) -> bool:
    return isinstance(value, ConfigDict) and {"experiment", "optimizer"} <= set(value)


def test_the_config_goes_back_to_few_files(tmp_path, monkeypatch):
    take = train.take

    def take_and_stop(batches, n):
        take(batches, n)
        raise FirstBatch

    files = []

    def trace(frame, event, _):
        code = frame.f_code
        is_ours = code.co_filename.startswith(str(ROOT))
        if event != "call" or not is_ours or "/.venv/" in code.co_filename:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        gets_config = any(is_whole(frame.f_locals.get(name)) for name in names)
        if gets_config and files[-1:] != [code.co_filename]:
            files.append(code.co_filename)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(train, "take", take_and_stop)
    sys.setprofile(trace)
    try:
        with pytest.raises(FirstBatch):
            train.train(config_file.read("configs/draw.py:smoke"), tmp_path / "run")
    finally:
        sys.setprofile(None)
    # A file that needs a few fields gets these. Whoever passes the whole config back
    # and forth makes it hard to see what depends on what.
    assert len(files) - len(set(files)) <= 8, files
