"""Config files that lack fields: defaults, or one line."""

import jax
import pytest
from ml_collections import ConfigDict

from lnrepro.checks import missing_fields
from lnrepro.config import adam, add_defaults, base
from lnrepro.engine import config_file, experiment
from lnrepro.errors import UserError
from tests.runs import ROOT, run

CONFIGS = sorted(path.stem for path in (ROOT / "configs").glob("*.py"))
FILE = """
from ml_collections import ConfigDict
from configs.mnist import get_config as complete

def get_config(variant=""):
    config = complete("smoke")
    del {field}
    return config
"""


def leaves(config, prefix=""):
    """The dotted names of all fields, those with fields of their own too."""
    for name, value in config.items():
        yield prefix + name
        if isinstance(value, ConfigDict):
            yield from leaves(value, f"{prefix}{name}.")


def without(config, field):
    config = config.copy_and_resolve_references()
    *parents, name = field.split(".")
    inner = config
    for parent in parents:
        inner = inner[parent]
    with config.unlocked():
        del inner[name]
    return config


def error_of_missing(config):
    """The message about a field that a model needs, "" if it needs no other one."""
    try:
        with missing_fields(config):
            exp = experiment.load(config)
            jax.eval_shape(exp.init, jax.random.key(0))
    except UserError as e:
        return str(e) if "missing" in str(e) else ""
    return ""


def test_a_config_of_one_field_gets_all_defaults():
    config = ConfigDict({"experiment": "experiments.mnist"})
    add_defaults(config)
    assert config.to_dict() == base("experiments.mnist").to_dict()
    assert config.optimizer.to_dict() == adam() | {"clip": None, "decay": None}
    # Fields that are not set have a type, as those of base have.
    config.steps = 3
    with pytest.raises(TypeError):
        config.steps = "3"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_missing_field_has_a_default_or_is_named(name):
    whole = config_file.read(f"{ROOT}/configs/{name}.py:smoke")
    there, named = set(leaves(base(whole.experiment))), []
    for field in set(leaves(whole)) - {"experiment"}:
        config = without(whole, field)
        add_defaults(config)
        if field in there:
            assert field in set(leaves(config))
            continue
        if message := error_of_missing(config):
            assert message.startswith(f"config.{field} is missing and has no default")
            named.append(field)
    # Others are used when the data is read or a model is evaluated.
    assert len(named) >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("config.seed", None),
        ("config.mesh", None),
        ("config.optimizer.eps", None),
        ("config.evals", "config.best.metric = 'valid/error': config.evals has no"),
        ("config.model.hidden", "config.model.hidden is missing and has no default"),
        ("config.layer_norm", "config.layer_norm is missing and has no default"),
        ("config.data", "config.data.features is missing and has no default"),
        ("config.experiment", "must return a ConfigDict with the field experiment"),
    ],
)
def test_a_config_file_without_a_field(tmp_path, field, says):
    file = tmp_path / "mine.py"
    file.write_text(FILE.format(field=field))
    flags = [f"--config={file}", "--config.seed=3", "--config.norm=layer"]
    code, _, error = run(tmp_path, *flags, f"--workdir={tmp_path / 'run'}")
    if says is None:
        assert code == 0, error
    else:
        assert code == 2
        assert says in error
        assert len(error.splitlines()) == 1
        assert not (tmp_path / "run").exists()
