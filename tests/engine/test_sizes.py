"""Sizes in the config that come from the data set."""

import pytest

from lnrepro.engine import config_file, experiment, run_config
from lnrepro.fields import Lengths, Size
from tests.refused import refused
from tests.runs import EXPERIMENTS, ROOT


def read(name, *flags):
    return config_file.read(f"{ROOT}/configs/{name}.py:smoke", flags)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_sizes_that_are_none_come_from_the_data(name, tmp_path):
    stated = read(name)
    known = experiment.fields(stated.experiment)
    fields = [field for field in known if known[field].from_data]
    unset = read(name, *(f"--config.{field}=None" for field in fields))
    filled = run_config.resolved(unset)
    experiment.with_sizes(filled, check=True)
    assert filled.data.train_examples == stated.data.train_examples
    experiment.load(filled)
    # A set that states all its sizes is not opened.
    stated.data.dir = str(tmp_path / "nowhere")
    assert experiment.with_sizes(stated).data == stated.data
    assert not (tmp_path / "nowhere").exists()


def test_all_sizes_that_do_not_fit_are_named_with_their_flags():
    flags = ["--config.data.features=63", "--config.data.train_examples=9"]
    config = read("mnist", *flags)
    with refused(
        "config.data.train_examples = 9, but digits has 1437",
        "config.data.features = 63, but digits has 64; None takes what the data has",
    ):
        experiment.with_sizes(config, check=True)


def test_a_field_that_a_variant_unsets_can_be_set_again():
    assert read("attentive_reader").data.sentences is None
    config = read("attentive_reader", "--config.data.sentences=3")
    assert config.data.sentences == 3
    with refused("config.data.sentences"):
        read("attentive_reader", "--config.data.sentences=few")


@pytest.mark.parametrize(
    ("size", "stated", "problem"),
    [
        (Size(3), 4, "has 3"),
        (Size((8, 8)), (8, 8), ""),
        (Size(16.0, least=16.0), 255.0, ""),
        (Size(16.0, least=16.0), 1.0, "needs at least 16.0"),
        (Size(5, least=1, most=5), 5, ""),
        (Size(5, least=1, most=5), 6, "needs at least 1 and at most 5"),
        (Size((8, 40), least=40), (8, 16), "needs at least 40"),
    ],
)
def test_a_size_may_have_bounds(size, stated, problem):
    assert size.problem(stated) == problem


@pytest.mark.parametrize("lengths", [(), (4, 4), (8, 4), (1, 4), 4])
def test_lengths_that_do_not_ascend(lengths):
    assert (2, 4, 8) in Lengths(2)
    assert lengths not in Lengths(2)
