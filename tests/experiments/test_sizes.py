"""Numbers of parameters of the paper's networks, and configs that are refused."""

import importlib
import pathlib
import re

import jax
import numpy as np
import pytest

from experiments import classification
from lnrepro import data
from lnrepro.data.reader import Content, Reader
from lnrepro.engine import config_file, experiment, train
from lnrepro.engine.run import Run
from lnrepro.errors import DataError
from tests.refused import refused
from tests.runs import ROOT


def config_of(name, variant, **changes):
    config = config_file.read(f"{ROOT}/configs/{name}.py:{variant}")
    config.update_from_flattened_dict(changes)
    return config


def params_of(name, norm, **changes):
    config = config_of(name, "paper", norm=norm, **changes)
    init = experiment.load(config).init
    return jax.eval_shape(init, jax.random.key(0))["params"]


def size(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


PEEPHOLES = {"model.peephole": True}
COUNTS = [
    ("mnist", "none", {}, 1_796_010),
    ("mnist", "layer", {}, 1_798_010),
    ("mnist", "batch", {}, 1_798_020),
    # 16, 32 and 64 channels on 28, 14 and 7 positions a side.
    ("convnet", "none", {}, 144 + 4608 + 18_432 + 31_360 + 10 + 112),
    ("convnet", "layer", {}, 144 + 4608 + 18_432 + 31_360 + 10 + 2 * 112),
    ("convnet", "batch", {}, 144 + 4608 + 18_432 + 31_360 + 10 + 2 * 112),
    ("draw", "none", {}, 959_467),
    ("draw", "weight", {}, 959_467 + 4331),
    ("draw", "layer_cell", {}, 959_467 + 1024),
    ("draw", "layer", {}, 959_467 + 9216),
    ("handwriting", "none", {"model.peephole": False}, 3_650_151),
    ("handwriting", "none", PEEPHOLES, 3_653_751),
    ("handwriting", "layer_cell", PEEPHOLES, 3_653_751 + 2400),
    ("handwriting", "layer", PEEPHOLES, 3_653_751 + 21_600),
    ("attentive_reader", "none", {}, 32_934_550),
    ("attentive_reader", "layer", {}, 32_934_550 + 8640),
    ("attentive_reader", "layer_everywhere", {}, 32_934_550 + 9840),
    ("attentive_reader", "batch", {}, 32_934_550 + 4800),
    ("attentive_reader", "batch_everywhere", {}, 32_934_550 + 6000),
    ("skip_thoughts", "none", {}, 125_673_600),
    ("skip_thoughts", "layer", {}, 125_673_600 + 86_400),
]


@pytest.mark.parametrize(("name", "norm", "changes", "count"), COUNTS)
def test_number_of_parameters(name, norm, changes, count):
    assert size(params_of(name, norm, **changes)) == count


def test_number_of_parameters_of_the_parts():
    for norm, more in (("none", 0), ("layer", 12_288)):
        params = params_of("order_embeddings", norm)
        assert size(params["gru"]) == 4_070_400 + more
        assert size(params["image"]) == 4_195_328
    params = params_of("handwriting", "layer", **PEEPHOLES)
    assert size(params["lstm1"]) == 750_830 + 7200
    assert size(params["lstm2"]) == size(params["lstm3"]) == 1_378_800 + 7200
    assert size(params["output"]) == 145_321


# The field that the message names comes first.
WRONG = {
    "mnist": [
        {"norm": "weight"},
        {"model.hidden": (0,)},
        {"model.hidden": (32.0,)},
        {"model.hidden": (True,)},
        {"batch_norm.momentum": 2.0},
        {"batch_norm.eps": 1e-60},
        {"layer_norm.eps": 1e39},
        {"optimizer.b2": 1 - 1e-9},
    ],
    "sequential_mnist": [{"norm": "batch"}],
    "convnet": [
        {"norm": "group"},
        {"layer_norm.statistics": "channel"},
        {"model.strides": (1,)},
    ],
    "draw": [
        {"norm": "batch"},
        {"model.glimpses": 0},
        {"model.read_size": 29},
        {"model.write_size": 0},
        {"importance_samples": 0},
    ],
    "handwriting": [{"norm": "batch"}, {"model.units": 0}],
    "order_embeddings": [
        {"norm": "batch"},
        {"model.similarity": "dot"},
        {"model.units": 0},
        {"data.vocabulary": 2},
        {"buckets": (12, 8)},
    ],
    "attentive_reader": [
        {"norm": "weight"},
        {"model.units": 0},
        {"model.dropout": 1.0},
        {"model.evaluation_statistics": "none"},
        {"data.entities": 10_000},
        {"data.sentences": -1},
        {"data.passage_buckets": (100, 50)},
    ],
    "skip_thoughts": [{"norm": "batch"}, {"model.units": 0}, {"model.vocabulary": 2}],
}


@pytest.mark.parametrize("name", WRONG)
def test_every_field_of_an_experiment_refuses_what_it_cannot_be(name):
    known = experiment.fields(f"experiments.{name}")
    for field in known.values():
        assert field.default is None or field.allows(field.default)
        for value in (float("nan"), float("inf"), b"x", 10**40, -(10**40)):
            assert not field.allows(value), (field.help, value)
    for field in importlib.import_module(f"experiments.{name}.fields").FIELDS.values():
        # Text and truth values need no range: no other type is allowed.
        assert field.allowed is not None or field.kind in (bool, str), field.help
        assert not field.allows((0.5,))


@pytest.mark.parametrize("name", WRONG)
def test_a_field_that_is_wrong_is_named(name):
    for changes in WRONG[name]:
        with refused(f"config.{next(iter(changes))} = "):
            Run(config_of(name, "smoke", **changes), pathlib.Path())


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
        config = config_of(name, "smoke", **{"data.dir": data_dir, field: value})
        with refused(f"config.{field} = ", config.data.name, error=DataError):
            experiment.with_sizes(config, check=True)


OWN_IMAGES = [
    ("mnist", {"label": np.arange(6) - 1}, "label of example 0 of train is -1"),
    ("convnet", {"label": np.arange(6) / 7}, "label of train has the type float64"),
    ("sequential_mnist", {}, "the split train has no column 'label', only image"),
    ("mnist", {"label": np.arange(6), "image": -1}, "image of example 0 .* is -1"),
    ("mnist", {"label": np.arange(6) + 6}, "config.model.classes = 10, .* least 12;"),
    ("draw", {"image": 2}, "image of example 0 of train is 2; .* from 0 to 1"),
    (
        "mnist",
        {"label": np.zeros((6, 1), int)},
        r"label of train .* \(6, 1\); examples of 0 ",
    ),
    ("mnist", {"label": [0] * 6, "list": True}, "image of train: one array for all"),
    ("draw", {"shape": (784,)}, "image of train has the shape .6, 784.; examples of 2"),
]


@pytest.mark.parametrize(("name", "columns", "message"), OWN_IMAGES)
def test_own_images_that_an_experiment_cannot_take(name, columns, message, tmp_path):
    """The reader states no ranges. The labels of train are those of valid and test."""
    shape = columns.get("shape", (28, 28))
    split = {"image": np.full((6, *shape), columns.get("image", 1))}
    if "list" in columns:
        split["image"] = list(split["image"])
    split |= {"label": columns["label"]} if "label" in columns else {}
    content = Content(dict.fromkeys(("train", "valid", "test"), split))
    reader = Reader(title="Own.", read=lambda raw: content)
    data.prepare("own", tmp_path, tmp_path, reader=reader)
    changes = {"data.name": "own", "data.dir": str(tmp_path)}
    with pytest.raises(DataError, match=message):
        experiment.with_sizes(config_of(name, "", **changes), check=True)


def test_classes_are_counted_in_all_splits(tmp_path):
    image = np.ones((3, 28, 28), np.uint8)
    splits = {}
    for split, last in (("train", 1), ("valid", 2), ("test", 3)):
        splits[split] = {"image": image, "label": np.array([0, 0, last])}
    reader = Reader(title="Own.", read=lambda raw: Content(splits))
    data.prepare("own", tmp_path, tmp_path, reader=reader)
    changes = {"data.name": "own", "data.dir": str(tmp_path)}
    sizes = classification.sizes(config_of("mnist", "", **changes))
    assert sizes["model.classes"].value == 4


def path_fields(known):
    """The fields that name a file or a folder."""
    return [name for name in known if re.match("(file|folder) ", known[name].help)]


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_path_is_known_before_anything_is_written(name, data_dir, tmp_path):
    (tmp_path / "file").write_text("a file")
    found = path_fields(experiment.fields(f"experiments.{name}"))
    assert ("encoding.word2vec" in found) == (name == "skip_thoughts")
    for field in found:
        changes = {"data.dir": data_dir, field: str(tmp_path / "file/nothing")}
        with refused(str(tmp_path / "file")):
            train.train(config_of(name, "smoke", **changes), tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_every_experiment_is_here():
    names = {path.stem for path in (ROOT / "configs").glob("*.py")}
    assert set(WRONG) == names
    for name in names:
        assert importlib.import_module(f"configs.{name}").get_config
