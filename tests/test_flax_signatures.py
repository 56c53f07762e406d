"""The signatures of the modules beside Flax's: names, order, defaults.

What differs on purpose stands in the tables, each with a reason.
"""

import inspect
import json
import pathlib
import re
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
SHARED = [
    (package, name)
    for package, (ours, theirs) in PACKAGES.items()
    for name in ours.__all__
    if hasattr(theirs, name)
]

# Arguments of Flax that are not here.
MISSING = {
    # Statistics of variables per step, which a cell with a carry alone does not have.
    ("linen", "RNN"): {
        "variable_axes",
        "variable_broadcast",
        "variable_carry",
        "split_rngs",
    },
    ("nnx", "RNN"): {"state_axes", "broadcast_rngs"},
    # Our cells have no residual connection of their own; a stack has.
    ("linen", "SimpleCell"): {"residual"},
    # `dtype` says what promote_dtype would; keep_rngs is deprecated.
    ("nnx", "LSTMCell"): {"promote_dtype", "keep_rngs"},
    ("nnx", "GRUCell"): {"promote_dtype", "keep_rngs"},
    ("nnx", "SimpleCell"): {"promote_dtype", "keep_rngs", "residual"},
}

# Arguments that are here and not in Flax.
NORM = {"norm", "scale_init"}
OF_SEQUENCES = {"options", "max_steps", "momentum", "use_running_average"}
ADDED = {
    ("linen", "LSTMCell"): NORM,
    ("linen", "GRUCell"): NORM,
    ("linen", "SimpleCell"): NORM,
    ("linen", "RNN"): OF_SEQUENCES,
    ("linen", "BatchNorm"): {"unbiased"},
    ("nnx", "LSTMCell"): {*NORM, "scale_metadata"},
    ("nnx", "GRUCell"): {*NORM, "scale_metadata"},
    ("nnx", "SimpleCell"): {*NORM, "scale_metadata"},
    ("nnx", "RNN"): {*OF_SEQUENCES, "in_features"},
    ("nnx", "BatchNorm"): {"unbiased"},
}

# Defaults that differ: ours, Flax's.
DEFAULTS = {
    # The value of the authors' code.
    "epsilon": (1e-5, 1e-6),
    # There are always two passes.
    "use_fast_variance": (False, True),
    # Parameters do not widen the result, and are not rounded.
    "promote_dtype": (None, flax_nnx.nn.dtypes.promote_dtype),
    # Fans of the whole kernel are not those of a gate: glorot_uniform, gate by gate.
    "kernel_init": "any",
    # "concat" and "sum" are names too.
    "merge_fn": ("concat", "any"),
    # flax.nnx.SimpleCell alone computes in float32 whatever it gets.
    "dtype": (None, jax.numpy.float32),
}


def parameters(function):
    """The named parameters of a function, or of a class's construction."""
    function = function.__init__ if isinstance(function, type) else function
    named = inspect.signature(function).parameters
    return {
        name: p for name, p in named.items() if name not in ("self", "parent", "name")
    }


def equal_defaults(name, ours, theirs):
    """Whether two defaults are the same, or differ as the table says."""
    if ours == theirs or repr(ours) == repr(theirs):
        return True
    allowed = DEFAULTS.get(name, ())
    if allowed == "any" or allowed in ((ours, theirs), (ours, "any")):
        return True
    # Initialisers and activations are equal if they do the same.
    if not (callable(ours) and callable(theirs)):
        return False
    if not name.endswith("_init"):
        x = jax.numpy.linspace(-2, 2, 5)
        return bool((ours(x) == theirs(x)).all())
    key = jax.random.key(0)
    return bool((ours(key, (3, 3)) == theirs(key, (3, 3))).all())


@pytest.mark.parametrize(("package", "name"), SHARED)
def test_constructors_are_flax_s(package, name):
    ours, theirs = (parameters(getattr(p, name)) for p in PACKAGES[package])
    missing, added = set(theirs) - set(ours), set(ours) - set(theirs)
    assert missing == MISSING.get((package, name), set())
    assert added == ADDED.get((package, name), set())
    for argument in set(ours) & set(theirs):
        assert equal_defaults(
            argument, ours[argument].default, theirs[argument].default
        ), argument
    # What may be given by position has Flax's place. The recurrent modules take all but
    # their first arguments by name.
    positional = [n for n, p in ours.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    of_flax = [n for n, p in theirs.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    shared = [n for n in positional if n in theirs]
    assert shared == of_flax[: len(shared)]
    if name.endswith("Norm"):
        assert shared == of_flax


@pytest.mark.parametrize(("package", "name"), SHARED)
@pytest.mark.parametrize("method", ["__call__", "initialize_carry"])
def test_calls_are_flax_s(package, name, method):
    classes = [getattr(p, name) for p in PACKAGES[package]]
    if not all(hasattr(c, method) for c in classes):
        return
    ours, theirs = (parameters(getattr(c, method)) for c in classes)
    assert set(theirs) <= set(ours)
    for argument, parameter in theirs.items():
        assert ours[argument].default == parameter.default
    positional = [n for n, p in theirs.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert list(ours)[: len(positional)] == positional


@pytest.mark.parametrize("package", PACKAGES)
def test_signatures_are_explicit_and_shared(package):
    """A layer has the arguments of its cell and of RNN."""
    ours = PACKAGES[package][0]
    around = set(parameters(ours.RNN)) - {"cell"}
    if package == "nnx":
        around -= {"in_features"}
    for layer, cell in (
        (ours.LSTM, ours.LSTMCell),
        (ours.GRU, ours.GRUCell),
        (ours.SimpleRNN, ours.SimpleCell),
    ):
        options = parameters(layer)
        assert set(options) == set(parameters(cell)) | around
        for name, option in parameters(cell).items():
            assert options[name] == option
    for name in ours.__all__:
        for function in (getattr(ours, name), getattr(ours, name).__call__):
            for option in parameters(function).values():
                assert option.kind not in (option.VAR_KEYWORD, option.VAR_POSITIONAL)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_argument_is_described(package):
    """In the docstring of the module, or of one that the docstring refers to."""
    ours = PACKAGES[package][0]

    def described(cls, seen=()):
        text = inspect.cleandoc(cls.__doc__)
        found = set(re.findall(r"^  (\w+): ", text, re.M))
        # A list in a sentence, such as "the fields norm, gate_fn and activation_fn".
        found |= set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text)) | {"norm", "dtype"}
        for place, name in re.findall(r"`(lnrepro\.linen\.)?([A-Z]\w+)`", text):
            owner = linen if place else ours
            other = getattr(owner, name, None)
            if other is not None and other is not cls and other not in seen:
                found |= described(other, (*seen, cls))
        return found

    for name in ours.__all__:
        cls = getattr(ours, name)
        missing = set(parameters(cls)) - described(cls)
        assert not missing, f"{name}: {missing}"
        call = cls.__call__
        text = inspect.cleandoc(call.__doc__)
        if "as `LayerNorm`" not in text:
            for argument in parameters(call):
                assert f"\n  {argument}: " in text, f"{name}: {argument}"


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
lnnx.Bidirectional(lnnx.GRU(3, 4, rngs=rngs), lnnx.GRU(3, 4, rngs=rngs), rngs=rngs)
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


@pytest.mark.parametrize("package", PACKAGES)
def test_each_public_argument_is_on_its_page(package):
    """The page shows what griffe finds, inherited methods included."""
    import griffe

    hooks = [ROOT / f"docs/hooks/{name}.py" for name in ("doctests", "linen_fields")]
    loaded = griffe.load(
        "lnrepro",
        extensions=griffe.load_extensions(*map(str, hooks)),
        search_paths=[str(ROOT)],
    )
    page = (ROOT / f"docs/api/{package}.md").read_text(encoding="utf-8")
    assert f"::: lnrepro.{package}\n" in page
    assert "inherited_members: true" in page
    ours = PACKAGES[package][0]
    for name in ours.__all__:
        members = loaded[package][name].all_members
        for method in ("__init__", "__call__", "step", "initialize_carry"):
            function = getattr(getattr(ours, name), method, None)
            if function is None:
                continue
            shown = {parameter.name for parameter in members[method].parameters}
            assert set(parameters(function)) <= shown, (name, method)
        for argument in ("mask", "resets", "initial_carry"):
            if name in ("LSTM", "GRU", "SimpleRNN", "RNN"):
                assert f"{argument}: " in members["__call__"].docstring.value
