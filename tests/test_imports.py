"""Who may import whom, read from the source by ast."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# file or folder -> what may be imported of lnrepro, and which third parties never
RULES = {
    "lnrepro/functional": (
        {"functional", "defaults"},
        {"flax", "numpy", "optax", "experiments", "configs"},
    ),
    # Below what uses it, so that each form can be read by itself.
    "lnrepro/functional/fast": ({"functional.fast", "functional.arrays"}, set()),
    "lnrepro/flax_modules.py": ({"functional"}, {"flax", "optax"}),
    "lnrepro/linen": (
        {"functional", "flax_modules", "linen"},
        {"optax", "ml_collections"},
    ),
    "lnrepro/nnx": (
        {"functional", "flax_modules", "nnx"},
        {"optax", "ml_collections"},
    ),
    "lnrepro/convert": (
        {"functional", "convert"},
        {"flax", "torch", "tensorflow", "keras"},
    ),
    "lnrepro/theory": ({"functional", "theory"}, {"flax", "optax"}),
    "lnrepro/data": (
        {"data", "paths", "errors", "fields", "folders"},
        {"flax", "optax", "tensorflow", "pickle"},
    ),
    "lnrepro/engine": (
        {
            "engine",
            "data",
            "config",
            "paths",
            "errors",
            "fields",
            # What runs as a kernel, which a run keeps.
            "functional.fast",
        },
        {"flax"},
    ),
    # The ground floor, which data sets, trainer and scripts stand on.
    "lnrepro/paths.py": ({"errors"}, {"jax", "flax", "optax"}),
    "lnrepro/fields.py": ({"errors"}, {"jax", "flax", "numpy", "optax", "absl"}),
    "lnrepro/errors.py": (set(), {"jax", "flax", "optax"}),
    "lnrepro/folders.py": (set(), {"jax", "flax", "optax"}),
    "lnrepro/main.py": ({"engine", "paths", "errors"}, {"flax"}),
    "lnrepro/runs.py": ({"engine", "paths", "errors", "folders"}, {"flax"}),
    "experiments": (
        {
            "paths",
            "errors",
            "fields",
            "engine.evaluation",
            "engine.experiment",
            "engine.inputs",
            "engine.loaded_run",
            "linen",
            "functional",
            "data",
            "theory",
        },
        {"scripts", "configs", "tests"},
    ),
    "lnrepro/defaults.py": (set(), {"jax", "flax", "numpy", "optax", "absl"}),
    "lnrepro/config.py": (
        {"defaults", "fields"},
        {"jax", "flax", "numpy", "optax", "absl"},
    ),
    "lnrepro/sweeps.py": ({"config"}, {"jax", "flax", "numpy", "optax", "absl"}),
    "configs": ({"config", "sweeps"}, {"jax", "flax", "numpy", "scripts"}),
}


EXCEPTIONS = {
    # The one reader of foreign pickles, which knows no class and calls nothing: lists,
    # dicts, ints and strings only.
    ("lnrepro/data/readers/cnn_top4.py", "pickle"),
    # What is computed while a kernel is generated or measured is no part of a program.
    ("lnrepro/functional/fast/gpu/atoms.py", "numpy"),
    ("lnrepro/functional/fast/gpu/values.py", "numpy"),
    ("lnrepro/functional/fast/gpu/launch.py", "numpy"),
    ("lnrepro/functional/fast/gpu/partition.py", "numpy"),
    ("lnrepro/functional/fast/measure.py", "numpy"),
}


def imported(path: pathlib.Path) -> set[str]:
    """Dotted names of everything a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join((*package, *([node.module] if node.module else [])))
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def files(place: str) -> list[pathlib.Path]:
    path = ROOT / place
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _allowed(name: str, allowed: set[str]) -> bool:
    """Whether `name`, without "lnrepro.", is an allowed module or lies in one."""
    return any(
        f"{name}.".startswith(f"{module}.") for module in (*allowed, "__version__")
    )


@pytest.mark.parametrize("place", RULES)
def test_imports(place):
    allowed, forbidden = RULES[place]
    found = files(place)
    assert found, f"{place} is gone: bring the rules and docs/code.md up to date"
    for path in found:
        for name in imported(path):
            top, _, rest = name.partition(".")
            exempt = (path.relative_to(ROOT).as_posix(), top) in EXCEPTIONS
            assert exempt or top not in forbidden, (
                f"{path.relative_to(ROOT)} imports {name}"
            )
            if top == "lnrepro" and rest:
                assert _allowed(rest, allowed), (
                    f"{path.relative_to(ROOT)} imports {name}"
                )
            if place.startswith("lnrepro"):
                assert top not in ("experiments", "configs", "scripts", "tests"), (
                    f"{path.relative_to(ROOT)}: {name}"
                )


def module_of(path: pathlib.Path) -> str:
    """Dotted name of a file, such as lnrepro.data for lnrepro/data/__init__.py."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def test_config_files_need_no_jax():
    """They import the fields of their experiments, and are read at once."""
    names = ", ".join(module_of(path) for path in files("configs"))
    code = f"import sys, {names}; print(sorted({{'jax', 'flax'}} & set(sys.modules)))"
    assert output_of(code).strip() == "[]"


def output_of(code: str) -> str:
    """What a program prints, in a process of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


# Modules of experiments/ that several experiments share.
SHARED = (
    "classification",
    "fields",
    "image_fields",
    "initializers",
    "paper_results",
    "rendering",
    "sets",
)


def test_experiments_do_not_import_one_another():
    for path in files("experiments"):
        own = path.relative_to(ROOT / "experiments").parts[0].removesuffix(".py")
        for name in imported(path):
            if name.startswith("experiments."):
                module = name.split(".")[1]
                assert module in (own, *SHARED), f"{path} imports {name}"


def test_experiments_open_runs_in_use_only():
    for path in files("experiments"):
        opens_runs = any(
            _allowed(name, {"lnrepro.engine.loaded_run"}) for name in imported(path)
        )
        assert not opens_runs or path.name == "use.py", path


def test_core_import_brings_jax_and_flax_only():
    """`import lnrepro.linen` needs the core dependencies only."""
    code = (
        "import sys, flax.linen; before = set(sys.modules); import lnrepro.linen;"
        "print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before} - "
        "{'lnrepro', 'jax', 'flax'}))"
    )
    printed = output_of(code)
    assert not set(printed.split()) - set(sys.stdlib_module_names), printed
