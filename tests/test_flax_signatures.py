"""The signatures of the modules beside Flax's: names, order, defaults.

What differs on purpose stands in the tables, each with a reason.
"""

import inspect
import json
import pathlib
import subprocess
import sys
import tempfile

import flax.linen as flax_linen
import jax
import pytest
from flax import nnx as flax_nnx

from lnrepro import linen, nnx

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = {"linen": (linen, flax_linen), "nnx": (nnx, flax_nnx)}
SHARED = ("LSTMCell", "GRUCell", "SimpleCell", "RNN", "LayerNorm")
each_module = pytest.mark.parametrize(
    ("package", "name"), [(p, name) for p in PACKAGES for name in SHARED]
)

# Arguments of Flax that are not here.
CELL = {"carry_init"}  # a caller passes initial_carry
METADATA = {"kernel_metadata", "recurrent_kernel_metadata", "bias_metadata"}  # sharding
# `dtype` says what promote_dtype would; keep_rngs is deprecated.
NNX_CELL = {*CELL, *METADATA, "promote_dtype", "keep_rngs"}
# Flax's LayerNorm has them.
AXES = {"reduction_axes", "feature_axes", "axis_name", "axis_index_groups"}
NORM = {*AXES, "use_fast_variance"}
MISSING = {
    ("linen", "LSTMCell"): CELL,
    ("linen", "GRUCell"): CELL,
    # A stack has residual connections.
    ("linen", "SimpleCell"): {*CELL, "residual"},
    # Our cells have no variables but parameters; options has unroll.
    ("linen", "RNN"): {
        "variable_axes",
        "variable_broadcast",
        "variable_carry",
        "split_rngs",
        "unroll",
    },
    ("linen", "LayerNorm"): {*NORM, "force_float32_reductions"},
    ("nnx", "LSTMCell"): NNX_CELL,
    ("nnx", "GRUCell"): NNX_CELL,
    ("nnx", "SimpleCell"): {*NNX_CELL, "residual"},
    ("nnx", "RNN"): {"state_axes", "broadcast_rngs", "unroll"},
    ("nnx", "LayerNorm"): {*NORM, "promote_dtype", "bias_metadata", "scale_metadata"},
}
# Arguments that are here and not in Flax.
ADDED = {
    "LSTMCell": {"norm", "scale_init", "sharding"},
    "GRUCell": {"norm", "scale_init", "sharding"},
    "SimpleCell": {"norm", "scale_init", "sharding"},
    "RNN": {"options", "in_features"},
    "LayerNorm": set(),
}
# Arguments whose defaults differ.
DEFAULTS = {
    "epsilon",  # 1e-5 as in the authors' code
    "kernel_init",  # glorot_uniform, gate by gate
    "dtype",  # flax.nnx.SimpleCell alone computes in float32 whatever it gets
}


def parameters(function):
    """The named parameters of a function, or of a class's construction."""
    function = function.__init__ if isinstance(function, type) else function
    named = inspect.signature(function).parameters
    return {
        name: p for name, p in named.items() if name not in ("self", "parent", "name")
    }


def positional(named):
    return [name for name, p in named.items() if p.kind is p.POSITIONAL_OR_KEYWORD]


def equal_defaults(name, ours, theirs):
    """Whether two defaults are the same, or functions that do the same."""
    if ours == theirs or repr(ours) == repr(theirs) or name in DEFAULTS:
        return True
    if not (callable(ours) and callable(theirs)):
        return False
    x = jax.numpy.linspace(-2, 2, 5)
    arguments = (jax.random.key(0), (3, 3)) if name.endswith("_init") else (x,)
    return bool((ours(*arguments) == theirs(*arguments)).all())


def assert_shared(ours, theirs):
    """Check defaults, and that what is given by position has Flax's place."""
    for argument in ours.keys() & theirs.keys():
        defaults = ours[argument].default, theirs[argument].default
        assert equal_defaults(argument, *defaults), argument
    given = [argument for argument in positional(ours) if argument in theirs]
    of_flax = [argument for argument in positional(theirs) if argument in ours]
    assert given == of_flax[: len(given)]


@each_module
def test_constructors_are_flax_s(package, name):
    ours, theirs = (parameters(getattr(p, name)) for p in PACKAGES[package])
    assert theirs.keys() - ours.keys() == MISSING[package, name]
    assert ours.keys() - theirs.keys() <= ADDED[name]
    assert_shared(ours, theirs)


@each_module
@pytest.mark.parametrize("method", ["__call__", "initialize_carry"])
def test_calls_are_flax_s(package, name, method):
    if method == "initialize_carry" and name in ("RNN", "LayerNorm"):
        # Flax's RNN has no carry, and norms have none.
        return
    ours, theirs = (
        parameters(getattr(getattr(p, name), method)) for p in PACKAGES[package]
    )
    missing = {"mask"} if name == "LayerNorm" else {"carry_init"}
    assert theirs.keys() - ours.keys() <= missing
    assert_shared(ours, theirs)
    assert set(positional(ours)) == set(positional(theirs)) - missing


@pytest.mark.parametrize("package", PACKAGES)
def test_a_layer_has_the_arguments_of_its_cell_and_of_rnn(package):
    ours = PACKAGES[package][0]
    around = set(parameters(ours.RNN)) - {"cell", "in_features"}
    for layer, cell in (
        (ours.LSTM, ours.LSTMCell),
        (ours.GRU, ours.GRUCell),
        (ours.SimpleRNN, ours.SimpleCell),
    ):
        options = parameters(layer)
        assert set(options) == set(parameters(cell)) | around
        assert parameters(cell).items() <= options.items()


CALLS = """
import jax
from flax import nnx
from lnrepro import functional, linen
from lnrepro import nnx as lnnx

rngs = nnx.Rngs(0)
linen.LSTM(256, norm="layer", return_carry=True, dtype=jax.numpy.bfloat16)
linen.RNN(functional.LSTMCell(256, peephole=True), reverse=True)
lnnx.GRU(3, 4, kernel_init=jax.nn.initializers.ones, rngs=rngs)
lnnx.RNN(functional.LSTMCell(256, peephole=True), in_features=3, rngs=rngs)
# Each line from here on has one mistake.
linen.LSTM(256, peephole=True)
linen.LSTM(256, norm=3)
linen.LSTM()
linen.SimpleCell(3, gate_fn=jax.nn.relu)
linen.RNN(functional.LSTMCell(256, peepole=True))
linen.RNN(functional.GRUCell(3), max_step=3)
lnnx.LSTM(3, 4)
lnnx.LSTM(3, 4, peephole=True, rngs=rngs)
lnnx.LSTM(3, 4, kernel_init=3, rngs=rngs)
lnnx.RNN(functional.LSTMCell(4), in_features=3, revers=True, rngs=rngs)
lnnx.LayerNorm(3, eps=1, rngs=rngs)
"""


@pytest.mark.slow
def test_a_type_checker_sees_every_argument():
    """And so does an editor that completes a call."""
    lines = CALLS.strip().splitlines()
    first = next(i for i, line in enumerate(lines, 1) if line.startswith("# Each"))
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir=ROOT) as file:
        file.write(CALLS.strip() + "\n")
        file.flush()
        command = ["-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
        done = subprocess.run(
            [sys.executable, *command, file.name],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    found = json.loads(done.stdout)["generalDiagnostics"]
    wrong = {d["range"]["start"]["line"] + 1 for d in found}
    assert wrong == set(range(first + 1, len(lines) + 1))
