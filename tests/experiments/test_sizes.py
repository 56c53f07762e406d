"""Numbers of parameters of the paper's networks, and configs that are refused."""

import importlib
import pathlib

import jax
import numpy as np
import pytest

from experiments import classification
from lnrepro.engine import experiment, train
from lnrepro.engine.run import Run
from lnrepro.errors import DataError
from tests.data.small import prepare_own
from tests.experiments.small import config_of
from tests.refused import refused
from tests.runs import EXPERIMENTS

# The parameters of each network with its norms. The convolutions have 16, 32 and 64
# channels, and 28, 14 and 7 positions a side.
CONVOLUTIONS = 144 + 4608 + 18_432 + 31_360 + 10 + 112
COUNTS = {
    "mnist": {"none": 1_796_010, "layer": 1_798_010, "batch": 1_798_020},
    "sequential_mnist": {"none": 21_418, "layer": 22_570, "rms": 21_994},
    "convnet": {
        "none": CONVOLUTIONS,
        "layer": CONVOLUTIONS + 112,
        "batch": CONVOLUTIONS + 112,
    },
    "draw": {
        "none": 959_467,
        "weight": 959_467 + 4331,
        "layer_cell": 959_467 + 1024,
        "layer": 959_467 + 9216,
    },
    "handwriting": {
        "none": 3_650_151,
        "layer_cell": 3_650_151 + 2400,
        "layer": 3_650_151 + 21_600,
    },
    "order_embeddings": {"none": 17_265_728, "layer": 17_265_728 + 12_288},
    "attentive_reader": {
        "none": 32_934_550,
        "layer": 32_934_550 + 8640,
        "layer_everywhere": 32_934_550 + 9840,
        "batch": 32_934_550 + 4800,
        "batch_everywhere": 32_934_550 + 6000,
    },
    "skip_thoughts": {"none": 125_673_600, "layer": 125_673_600 + 86_400},
}


def count_of(name, **changes):
    # The paper has no sequential MNIST.
    variant = "small" if name == "sequential_mnist" else "paper"
    init = experiment.load(config_of(name, variant, **changes)).init
    params = jax.eval_shape(init, jax.random.key(0))["params"]
    return sum(leaf.size for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_number_of_parameters(name):
    assert COUNTS[name].keys() == set(
        experiment.fields(f"experiments.{name}")["norm"].allowed
    )
    assert {norm: count_of(name, norm=norm) for norm in COUNTS[name]} == COUNTS[name]


def test_number_of_parameters_with_peepholes():
    peepholes = count_of("handwriting", norm="none", **{"model.peephole": True})
    assert peepholes == COUNTS["handwriting"]["none"] + 3 * 3 * 400


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_field_of_an_experiment_refuses_what_it_cannot_be(name):
    for field in experiment.fields(f"experiments.{name}").values():
        assert field.default is None or field.allows(field.default)
        for value in (float("nan"), float("inf"), b"x", 10**40, -(10**40)):
            assert not field.allows(value), (field.help, value)
    for field in importlib.import_module(f"experiments.fields.{name}").FIELDS.values():
        # Text and truth values need no range: no other type is allowed.
        assert field.allowed is not None or field.kind in (bool, str), field.help
        assert not field.allows((0.5,))


# The field that the message names comes first.
WRONG = [
    ("mnist", "norm", "weight"),
    ("mnist", "model.hidden", (0,)),
    ("mnist", "model.hidden", (True,)),
    ("mnist", "batch_norm.momentum", 2.0),
    ("mnist", "batch_norm.eps", 1e-60),
    ("mnist", "optimizer.b2", 1 - 1e-9),
    ("convnet", "layer_norm.statistics", "channel"),
    ("convnet", "model.channels", (4, 8, 8)),
    ("draw", "model.read_size", 29),
    ("draw", "model.write_size", 29),
    ("handwriting", "samples.texts", ()),
    ("order_embeddings", "data.vocabulary", 2),
    ("order_embeddings", "buckets", (12, 8)),
    ("attentive_reader", "model.dropout", 1.0),
    ("attentive_reader", "data.entities", 159),
    ("attentive_reader", "data.sentences", -1),
    ("skip_thoughts", "transfer.folds", 1),
]


@pytest.mark.parametrize(("name", "field", "value"), WRONG)
def test_a_field_that_is_wrong_is_named(name, field, value):
    with refused(f"config.{field} = "):
        Run(config_of(name, **{field: value}), pathlib.Path())


OTHER_DATA = {
    "convnet": {"data.image": (28, 28), "data.train_examples": 9},
    "draw": {"model.image_size": 14, "data.train_examples": 5000},
    "handwriting": {"model.symbols": 56, "model.characters": 9},
    "order_embeddings": {
        "model.features": 4096,
        "data.vocabulary": 12,
        "evaluation.folds": 1000,
    },
    "attentive_reader": {"data.vocabulary": 99, "data.passage_buckets": (20, 40)},
    "skip_thoughts": {"model.vocabulary": 10_000, "data.buckets": (5,)},
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("data"))


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER_DATA)
def test_sizes_of_other_data_are_named(name, data_dir):
    for field, value in OTHER_DATA[name].items():
        config = config_of(name, **{"data.dir": data_dir, field: value})
        with refused(f"config.{field} = ", config.data.name, error=DataError):
            experiment.with_sizes(config, check=True)


def own_images(name, folder, **splits):
    """The config of an experiment with own images, whose reader states no ranges."""
    prepare_own(folder, splits)
    return config_of(name, "", **{"data.name": "own", "data.dir": str(folder)})


IMAGES = np.ones((6, 28, 28))


@pytest.mark.parametrize(
    ("name", "message", "columns"),
    [
        (
            "mnist",
            "label of example 0 of train is -1",
            {"image": IMAGES, "label": np.arange(6) - 1},
        ),
        (
            "mnist",
            "image of train: one array for all",
            {"image": list(IMAGES), "label": np.arange(6)},
        ),
        (
            "mnist",
            "image of example 0 of train is -1",
            {"image": -IMAGES, "label": np.arange(6)},
        ),
        (
            "draw",
            "image of example 0 of train is 2; ",
            {"image": 2 * IMAGES.astype(int)},
        ),
        ("draw", "images of 28 x 14 pixels", {"image": IMAGES[:, :, :14].astype(int)}),
    ],
)
def test_own_images_that_an_experiment_cannot_take(name, message, columns, tmp_path):
    config = own_images(name, tmp_path, train=columns, valid=columns, test=columns)
    with refused(message, error=DataError):
        experiment.with_sizes(config, check=True)


def test_classes_are_counted_in_all_splits(tmp_path):
    splits = {}
    for split, last in (("train", 1), ("valid", 2), ("test", 30)):
        splits[split] = {"image": IMAGES[:3], "label": np.array([0, 0, last])}
    config = own_images("mnist", tmp_path, **splits)
    assert classification.sizes(config)["model.classes"].value == 31
    with refused(
        "config.model.classes = 10, but own needs at least 31", error=DataError
    ):
        experiment.with_sizes(config, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("field", ["data.dir", "encoding.word2vec"])
def test_a_wrong_path_is_known_before_anything_is_written(field, data_dir, tmp_path):
    (tmp_path / "file").write_text("a file")
    wrong = str(tmp_path / "file/nothing")
    config = config_of("skip_thoughts", **{"data.dir": data_dir} | {field: wrong})
    with refused(str(tmp_path / "file")):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
