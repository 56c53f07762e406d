"""Names in a config are checked before training: fields, evaluations, metrics."""

import pytest

from lnrepro import checks
from lnrepro.engine import command_line, config_file, experiment, train
from lnrepro.errors import UserError
from tests.engine import toy
from tests.engine.toy import config

FILE = """
from lnrepro.config import variants

SETTINGS = {{
    "data": {{"name": "digits", "train_examples": 1437, "features": 64}},
    "model": {{"units": 3}},
    {extra}
}}
HELP = {{"margin": "the margin", "loss": "a group"}}


def get_config(variant=""):
    return variants("experiments.linear", {{"": (SETTINGS,)}}, variant)
"""


def read(tmp_path, extra):
    path = tmp_path / "own.py"
    path.write_text(FILE.format(extra=extra))
    return config_file.read(str(path))


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (
            '"optimizer": {"learning_rat": 0.1}',
            "sets 'optimizer.learning_rat', which",
        ),
        ('"optimizer": {"learning_rat": 0.1}', "mean 'optimizer.learning_rate'?"),
        ('"batchsize": 3', "did you mean 'batch_size'?"),
        ('"best": {"metrics": "valid/error"}', "did you mean 'best.metric'?"),
        ('"mergin": 3', "did you mean 'margin'?"),
        ('"zzz": 3', "stands in the dict HELP of the file, or in model or data"),
    ],
)
def test_a_misspelt_key_of_a_config_file_is_refused(tmp_path, extra, says):
    with pytest.raises(UserError) as refused:
        read(tmp_path, extra)
    assert says in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path / 'own.py'}: get_config sets ")


def test_fields_of_ones_own_are_declared_by_help_or_stand_in_model_or_data(tmp_path):
    own = read(tmp_path, '"margin": 1, "loss": {"scale": 2}, "evals": {"valid": "end"}')
    assert (own.margin, own.loss.scale, own.model.units) == (1, 2, 3)


def declaring(monkeypatch):
    real = toy.make

    def scalars(name):
        known = {"test": ("error",), "picture": None}
        if name not in known:
            raise UserError("there is no such evaluation; there are test, picture")
        return known[name]

    monkeypatch.setattr(toy, "make", lambda c: real(c)._replace(scalars=scalars))
    monkeypatch.setattr(train, "_data_identity", lambda config: ("toy/1", {}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"evals": {"test": "epoch", "tset": "end"}}, "config.evals.tset: there is no"),
        ({"best.metric": "test/nll"}, "best.metric names 'test/nll', which is not"),
        ({"curves": (("a", ("test/eror",), "log"),)}, "did you mean test/error?"),
        ({"curves": (("a", ("tset/error",), "log"),)}, "config.evals has no 'tset'"),
        ({"curves": (("a", ("test/error",)),)}, "is no panel; a panel is"),
        ({"curves": ("a", ("test/error",), "log")}, "is no panel; a panel is"),
        ({"curves": (("a", ("test/error",), "logs"),)}, "is no panel; a panel is"),
    ],
)
def test_names_are_refused_before_anything_is_written(
    tmp_path, monkeypatch, changes, says
):
    declaring(monkeypatch)
    c = config()
    c.unlock()
    c.update_from_flattened_dict(changes)
    with pytest.raises(UserError) as refused:
        train.train(c, tmp_path / "run")
    assert says in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_training_metric_of_curves_is_refused_at_the_first_step(
    tmp_path, monkeypatch
):
    declaring(monkeypatch)
    c = config(curves=(("a", ("train/los",), "log"),))
    with pytest.raises(UserError, match=r"names 'train/los', .* mean train/loss\?"):
        train.train(c, tmp_path)
    train.train(config(steps=2), tmp_path)


def test_evaluations_that_never_run_and_seeds_may_be_named(monkeypatch):
    declaring(monkeypatch)
    panel = ("a", ("test/error", "test/error/seed1", "picture/anything"), "log")
    c = config(curves=(panel,), **{"evals.test": "never", "best.metric": None})
    experiment.check_names(toy.make(c), c.evals, c.best.metric, c.curves)


@pytest.mark.parametrize("path", ["gs://b/x", "s3://b/x", "hdfs:/x"])
def test_addresses_are_no_paths(path):
    with pytest.raises(UserError, match=r"^--out = .*: this is on no disk of this"):
        checks.local_path(path, "--out")


def test_command_lines_expand_the_home_folder(tmp_path, monkeypatch):
    import pathlib

    monkeypatch.setenv("HOME", str(tmp_path))
    parser = command_line.Parser()
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--root")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args(["--out=~/a", "--root=~", "~/b", "c"])
    assert args.out == tmp_path / "a"
    assert args.root == str(tmp_path)
    assert args.files == [tmp_path / "b", pathlib.Path("c")]
    with pytest.raises(UserError, match="mount it"):
        parser.parse_args(["--root=gs://bucket/x"])
