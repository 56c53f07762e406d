"""Config files: which fields they may set, how flags override them, and mistakes."""

import warnings

import pytest

from lnrepro.config import FIELDS, flat
from lnrepro.engine import config_file, run_config
from tests.refused import refused

SMOKE = "configs/mnist.py:smoke"
FILE = """
from lnrepro.config import variants
from lnrepro.fields import Field

SETTINGS = {{"data": {{"name": "digits"}}, "model": {{"units": 3}}, {extra}}}
FIELDS = {{
    "margin": Field(0.5, "margin of the loss"),
    "loss.scale": Field(1, "scale of the loss"),
}}


get_config = variants("experiments.linear", {{"": (SETTINGS,)}}, FIELDS)
"""


@pytest.fixture
def read(tmp_path):
    """A function that writes a config file and reads it."""

    def read(source):
        (tmp_path / "own.py").write_text(source)
        return config_file.read(str(tmp_path / "own.py"))

    return read


@pytest.mark.parametrize(
    ("extra", "meant"),
    [
        ('"optimizer": {"learning_rat": 0.1}', "optimizer.learning_rate"),
        ('"batchsize": 3', "batch_size"),
        ('"best": {"metrics": "valid/error"}', "best.metric"),
        ('"mergin": 3', "margin"),
        ('"scale": 3', "loss.scale"),
    ],
)
def test_a_misspelt_field_of_a_config_file_is_refused(read, extra, meant):
    with refused("own.py", f"did you mean '{meant}'?"):
        read(FILE.format(extra=extra))


def test_fields_of_ones_own_are_declared_or_stand_in_an_open_group(read):
    extra = '"margin": 1, "loss": {"scale": 2}, "evals": {"valid": "end"}'
    own = read(FILE.format(extra=extra))
    assert (own.margin, own.loss.scale, own.model.units) == (1, 2, 3)
    assert own.evals.valid == "end"
    with pytest.raises(AttributeError):
        own.model.layers = 3


@pytest.mark.parametrize(
    ("source", "named"), [("x = (\n", "line 1"), ("x = 1\n", "has no get_config")]
)
def test_what_is_no_config_file_is_named(read, source, named):
    # Files do not share what they define.
    config_file.read(SMOKE)
    with refused("own.py", named):
        read(source)


def test_a_config_outside_of_the_checkout_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused("configs/mnist.py", "checkout"):
        config_file.read("configs/mnist.py")


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ("steps=3", 3),
        ("epochs=None", None),
        ("optimizer.clip=2", 2.0),
        ("model.hidden=(4,5)", (4, 5)),
        ("model.hidden=4", (4,)),
        ("evals.test=end", "end"),
        ("data.name=a=None", "a=None"),
        ("batch_norm.unbiased=True", True),
        ("curves=()", ()),
        # The last one counts.
        ("steps=3 steps=None", None),
        ("steps=None steps=3", 3),
    ],
)
def test_flags_have_the_type_of_their_field(flags, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words = [f"--config.{flag}" for flag in flags.split()]
        found = flat(config_file.read(SMOKE, words))[flags.partition("=")[0]]
    assert (found, type(found)) == (value, type(value))


def test_epochs_that_would_change_nothing_are_refused():
    flags = ["--config.epochs=3"]
    with refused("config.epochs = 3.0 changes nothing", "add --config.steps=None"):
        config_file.read("configs/draw.py", flags)
    found = config_file.read("configs/draw.py", [*flags, "--config.steps=None"])
    assert (found.steps, found.epochs) == (None, 3.0)


@pytest.mark.parametrize("field", ["model.hidden", "seed", "best.mode", "curves"])
def test_none_is_refused_where_a_value_is_needed(field):
    with refused(f"config.{field} = None: "):
        run_config.resolved(config_file.read(SMOKE, [f"--config.{field}=None"]))
    with refused("no field 'zz'"):
        config_file.read(SMOKE, ["--config.zz=None"])


@pytest.mark.parametrize("file", config_file.configs())
def test_every_field_of_every_variant_has_a_line_of_help(file):
    module = config_file.load_module(file)
    said, used = FIELDS | module.FIELDS, set()
    for name in module.VARIANTS:
        for field in flat(config_file.read(f"{file}:{name}")):
            groups = [part for part in said if f"{field}.".startswith(f"{part}.")]
            assert groups, f"{file}: {field}"
            used.add(field)
    # No line is about a field that does not exist.
    assert set(module.FIELDS) <= used
