"""Sets with a builder of one's own, and what prepare.py says about a set."""

import json
import re
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data import registry
from lnrepro.data.builder import Builder, array
from lnrepro.errors import DataError
from scripts import prepare
from tests.data import idx
from tests.runs import ROOT, environment, run

PAGE = (ROOT / "docs/your-own-data.md").read_text(encoding="utf-8")
BLOCKS = {
    language: re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    for language in ("python", "sh")
}
CONFIG_FLAGS = re.compile(r"--config\S+")


class Constant(Builder):
    """One number."""

    embedded = True

    def features(self):
        return {"x": array((), np.int32)}

    def examples(self, raw):
        return {"train": [{"x": 7}]}


@pytest.fixture(autouse=True)
def _no_registered_sets(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})


@pytest.mark.slow
def test_the_builder_of_the_documentation_trains_without_being_registered(tmp_path):
    (block,) = (b for b in BLOCKS["python"] if "data.register" in b)
    rng = np.random.RandomState(0)
    labels = np.arange(600) % 10
    images = rng.randint(0, 50, (600, 28, 28)) + 20 * labels[:, None, None]
    (tmp_path / "my_files").mkdir()
    np.savez(tmp_path / "my_files/images.npz", x=images.astype(np.uint8), y=labels)
    done = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path,
        env=environment(tmp_path) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (command,) = (b for b in BLOCKS["sh"] if "=clothes" in b)
    flags = CONFIG_FLAGS.findall(command)
    flags += ["--config.steps=20", f"--workdir={tmp_path / 'run'}"]
    code, _, error = run(tmp_path, *flags)
    assert code == 0, error
    config = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert config["data"]["train_examples"] == 400
    assert config["data"]["features"] == 784
    assert config["data"]["full_ink"] == images[200:].max()
    # The same command resumes: the sizes are filled again.
    code, out, error = run(tmp_path, *flags)
    assert code == 0, error
    assert "is finished" in out


def test_names_that_cannot_be_registered():
    for name in ("mnist", "a/b", ""):
        with pytest.raises(DataError, match=r"choose another name|cannot be the name"):
            data.register(name, Constant)


def test_a_registered_set_is_prepared_at_its_first_use(tmp_path):
    data.register("constant", Constant)
    assert data.open_columns("constant", "train", tmp_path)["x"].tolist() == [7]
    assert data.split_sizes("constant", tmp_path) == {"train": 1}
    registry._REGISTERED.clear()
    assert data.open_columns("constant", "train", tmp_path)["x"].tolist() == [7]
    with pytest.raises(DataError, match=r"no data set is called 'constants'; .*mnist"):
        data.open_columns("constants", "train", tmp_path)


def test_an_entry_point_names_a_builder(tmp_path, monkeypatch):
    point = metadata.EntryPoint(
        "constant", f"{__name__}:Constant", registry.ENTRY_POINTS
    )

    def entry_points(group, name):
        wanted = (point.group, point.name)
        return (point,) if (group, name) == wanted else ()

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert data.builder_class("constant") is Constant
    assert data.prepared("constant", tmp_path) is False
    data.prepare("constant", data_dir=tmp_path)
    assert data.prepared("constant", tmp_path)


@pytest.mark.slow
def test_prepare_ends_with_counts_and_the_command(tmp_path, monkeypatch, capsys):
    raw = idx.write(tmp_path / "raw", idx.files())
    monkeypatch.setenv("LNREPRO_DATA", str(tmp_path / "data"))
    prepare.main(["mnist", f"--raw={raw}", "--as=mine"])
    out = capsys.readouterr().out
    sizes = data.split_sizes("mine")
    assert f"train: {sizes['train']:,}" in out
    commands = re.findall("python -m lnrepro.main (--config=configs/mnist.py.*)", out)
    (flags,) = (command.split() for command in commands)
    assert f"--config.data.train_examples={sizes['train']}" in flags
    # A run on the config's own data has the default directory.
    assert "--workdir=runs/mnist/mine" in flags
    flags.remove("--workdir=runs/mnist/mine")
    flags += ["--config.batch_size=2", "--config.steps=2"]
    code, _, error = run(tmp_path, *flags, f"--workdir={tmp_path / 'run'}")
    assert code == 0, error


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["a"] * 1234, "1,234"),
        ([], "0"),
        ([0.5, 12.3456], "0.5 12.35"),
        ({"train": 2000, "valid": {"left out": 0}}, "train: 2,000; valid: left out: 0"),
        ("text", "text"),
    ],
)
def test_facts_in_short(value, text):
    assert prepare.in_short(value) == text
