"""Names in a config are checked before training: evaluations, metrics; and paths."""

import pathlib

import pytest

from lnrepro import paths
from lnrepro.engine import command_line, experiment, train
from lnrepro.engine.experiment import Metric
from lnrepro.engine.run import Run
from tests.engine import toy
from tests.engine.toy import config
from tests.refused import refused


def declaring(monkeypatch):
    real = toy.make

    def make(config):
        exp = real(config)
        known = exp.evals["test"]._replace(metrics=lambda: {"error": Metric("m")})
        return exp._replace(evals={**exp.evals, "test": known})

    monkeypatch.setattr(toy, "make", make)
    monkeypatch.setattr(Run, "data_identity", lambda run: ("toy/1", {}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"evals": {"test": "epoch", "tset": "end"}},
            "'tset', which the experiment lacks; did you mean test?",
        ),
        ({"evals": {"test": "epoch", "train": "end"}}, "cannot be called 'train'"),
        ({"evals": {"test": "epoch", "a/b": "end"}}, "cannot be called 'a/b'"),
        ({"best.mode": "max"}, "config.best.mode = max: test/error has min"),
        ({"best.metric": "test/nll"}, "best.metric names 'test/nll', which"),
        ({"curves": (("a", ("test/eror",), "log"),)}, "did you mean test/error?"),
        ({"curves": (("a", ("tset/error",), "log"),)}, "'tset/error'"),
        ({"curves": (("a", ("train/los",), "log"),)}, "did you mean train/loss?"),
        ({"curves": (("a", ("test/error",)),)}, "config.curves"),
        ({"curves": ("a", ("test/error",), "log")}, "config.curves"),
        ({"curves": (("a", ("test/error",), "logs"),)}, "config.curves"),
    ],
)
def test_names_are_refused_before_anything_is_written(
    tmp_path, monkeypatch, changes, says
):
    declaring(monkeypatch)
    c = config()
    c.unlock()
    c.update_from_flattened_dict(changes)
    with refused(says):
        train.train(c, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_evaluations_that_never_run_may_be_named(monkeypatch):
    declaring(monkeypatch)
    panel = ("a", ("test/error", "test/anything"), "log")
    c = config(curves=(panel,), **{"evals.test": "never", "best.metric": None})
    experiment.check_names(c, experiment.known_metrics(c, toy.make(c)))


@pytest.mark.parametrize("path", ["gs://b/x", "s3://b/x", "hdfs:/x"])
def test_addresses_are_no_paths(path):
    with refused("--out", path):
        paths.local_path(path, "--out")


def test_command_lines_expand_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    parser = command_line.Parser()
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--root")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args(["--out=~/a", "--root=~", "~/b", "c"])
    assert args.out == tmp_path / "a"
    assert args.root == str(tmp_path)
    assert args.files == [tmp_path / "b", pathlib.Path("c")]
    with refused("gs://bucket/x"):
        parser.parse_args(["--root=gs://bucket/x"])
