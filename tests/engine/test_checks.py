"""Ranges of a config's numbers, and names in it: one line, before it is trained."""

import collections
import pathlib

import numpy as np
import pytest

from lnrepro.config import FIELDS
from lnrepro.engine import command_line, experiment, run_config, schedule, train
from lnrepro.engine.run import Run
from tests.engine import toy
from tests.refused import refused

LOW = {
    "log_every": 0,
    "save_every": -1,
    "steps": 0,
    "steps_per_call": 0,
    "eval_batch_size": 0,
    "batch_size": -8,
    "epochs": 0.0,
    "seed": -1,
    "data.train_examples": 0,
    "optimizer.learning_rate": 0.0,
    "optimizer.b1": 1.0,
    "optimizer.b2": 1.0,
    "optimizer.eps": 0.0,
    "optimizer.clip": 0.0,
}


@pytest.mark.parametrize(
    ("field", "value"), [*LOW.items(), ("seed", None), ("batch_size", None)]
)
def test_a_number_out_of_its_range_is_named(tmp_path, field, value):
    words = FIELDS[field].words
    assert_refused(tmp_path, {field: value}, f"config.{field} = {value}: give {words}")


@pytest.mark.parametrize(
    ("says", "changes"),
    [
        ("config.data.name", {"data.name": None}),
        ("config.curves", {"curves": (("a", (1,), "log"),)}),
        ("config.curves", {"curves": (("a", ("test/error",), "log", 0),)}),
        ("config.curves", {"curves": (("a", ("test/error",)),)}),
        ("config.curves", {"curves": ("a", ("test/error",), "log")}),
        ("config.curves", {"curves": (("a", ("test/error",), "logs"),)}),
        ("config.best.mode", {"best.mode": "lowest"}),
        ("'xmap': give one of jit, pmap", {"placement": "xmap"}),
        ("'sgd': give one of adam, kiros_adam", {"optimizer.name": "sgd"}),
        ("'each': give one of global, ", {"optimizer.clip_mode": "each"}),
        ("'linear': give one of cosine", {"optimizer.decay": "linear"}),
        ("config.epochs = nan", {"epochs": float("nan")}),
        # JAX counts steps in 32 bits.
        ("config.epochs", {"epochs": 1e12}),
        ("cannot be called 'train'", {"evals": {"test": "epoch", "train": "end"}}),
        ("cannot be called 'a/b'", {"evals": {"test": "epoch", "a/b": "end"}}),
        *(("config.evals.test", {"evals.test": v}) for v in ("-1", "0", "2.5", "x")),
        (
            "'tset', which the experiment lacks; there are test, picture",
            {"evals.tset": "1"},
        ),
        ("config.best.mode = max: test/error has min", {"best.mode": "max"}),
        ("best.metric (of training) names 'test/nll'", {"best.metric": "test/nll"}),
        (
            "'test/eror', which the experiment lacks; there are train/loss, ",
            {"curves": (("a", ("test/eror",), "log"),)},
        ),
        ("'tset/error'", {"curves": (("a", ("tset/error",), "log"),)}),
        ("exports no make", {"experiment": "experiments.mnist.model"}),
        *(
            ("config.experiment = ", {"experiment": v})
            for v in ("", ".x", "x..y", "e.")
        ),
    ],
)
def test_a_value_that_cannot_be_is_named(tmp_path, monkeypatch, says, changes):
    real = toy.make

    def make(config):
        exp = real(config)
        # They may be known when the data is opened, only.
        known = exp.evals["test"]._replace(metrics=lambda: {"error": toy.Metric("m")})
        return exp._replace(evals={**exp.evals, "test": known})

    monkeypatch.setattr(toy, "make", make)
    assert_refused(tmp_path, changes, says)


def assert_refused(tmp_path, changes, says):
    config = toy.get_config().unlock()
    config.update_from_flattened_dict(changes)
    with refused(says):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_evaluations_that_never_run_may_be_named():
    panel = ("a", ("test/error", "test/anything"), "log")
    never = toy.config(curves=(panel,), evals__test="never", best__metric=None)
    schedule.check_names(never, schedule.known_metrics(never, toy.make(never)))


Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        (1.0, [float("nan")]),
        np.int64(3),
        np.bool_(True),
        np.zeros((2, 2)),
        Pair(1, 2),
        {1, 2},
        {"inner": {1: 2}},
        ({True: 1},),
    ],
    ids=repr,
)
def test_what_a_config_json_does_not_keep_is_refused(tmp_path, value):
    says = "config.model.own"
    assert_refused(tmp_path, {"model.own": value}, says)


def test_what_is_trained_is_what_a_config_json_keeps(tmp_path):
    config = toy.get_config().unlock()
    config.model.own = [1, (2.0, "a"), None, True]
    config.model.inner = {"empty": {}, "tiny": 5e-324, "in a tuple": ({"b": 1},)}
    trained = Run(config, tmp_path).config
    assert trained.model.own == (1, (2.0, "a"), None, True)
    again = run_config.from_json(run_config.as_json(trained))
    assert again.to_dict() == trained.to_dict()
    assert trained.model.inner.to_dict() == config.model.inner.to_dict()


@pytest.mark.parametrize(("there", "now"), [(1, True), (2, 2.0), ((1,), (True,))])
def test_a_value_of_another_type_is_another_config(there, now):
    """A whole number and a real one are computed with in different types."""
    whole = run_config.as_json(toy.get_config())
    there, now = ({"config": whole | {"model": {"own": v}}} for v in (there, now))
    run_config.check_same("it", there, there, "no remedy")
    with refused("config.model.own: "):
        run_config.check_same("it", there, now, "no remedy")


@pytest.mark.parametrize(
    ("epochs", "steps"), [(1.1, 110), (0.07, 7), (1.101, 111), (2, 200), (1e-9, 1)]
)
def test_steps_are_those_of_the_decimal_number_of_epochs(epochs, steps):
    config = toy.config(data__train_examples=800, epochs=epochs)
    assert experiment.total_steps(config) == steps


def test_command_lines_expand_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "flags").write_text("--in_file=~/c\n")
    parser = command_line.Parser(fromfile_prefix_chars="@")
    parser.add_argument("--root")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    words = [
        "--root=~",
        "~/b",
        "c=~",
        "--config.data.dir=~/seed=1",
        f"@{tmp_path}/flags",
    ]
    args, rest = parser.parse_known_args(words)
    assert args.root == str(tmp_path)
    assert args.files == [tmp_path / "b", pathlib.Path("c=~")]
    assert rest == [f"--config.data.dir={tmp_path}/seed=1", f"--in_file={tmp_path}/c"]
    with refused("--root = gs://bucket/x: "):
        parser.parse_args(["--root=gs://bucket/x"])
