"""Trained networks as folders for others, in the layout of the Hugging Face hub.

    README.md          the model card
    model.safetensors  the arrays, called by their paths, such as "params.gru.w"
    config.json        config, data and versions, as in a run directory
    data_facts.json    what the network needs to know of its data
    metrics.jsonl      the records of the run

A file of safetensors holds arrays and nothing that could be executed.
"""

import inspect
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lnrepro import data
from lnrepro.checks import local_path
from lnrepro.engine import json_files, workdir
from lnrepro.errors import UserError

WEIGHTS = "model.safetensors"
CARD = "README.md"
METRICS = "metrics.jsonl"


class Weights(NamedTuple):
    """Trained parameters.

    Attributes:
      checkpoint: "best" or "last".
      step: the number of steps that they were trained.
      vars: what the experiment's functions take, as NumPy arrays.
    """

    checkpoint: str
    step: int
    vars: dict[str, Any]


class Export(NamedTuple):
    """The parts of a run that are written.

    Attributes:
      about: the contents of the config.json of the run.
      weights: its parameters.
      facts: what the network needs to know of its data.
      metrics: the records of metrics.jsonl.
      uses: {name: method}, what can be done with this network and not with any.
    """

    about: Mapping[str, Any]
    weights: Weights
    facts: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    uses: Mapping[str, Callable]


def write(run: Export, path: str | os.PathLike) -> pathlib.Path:
    """Write a folder, completely or not at all.

    Args:
      run: what is written.
      path: a folder that does not exist, or is empty.

    Returns:
      The folder.

    Raises:
      UserError: the folder is not empty or cannot be written.
    """
    safetensors = _safetensors()
    weights = run.weights
    # A folder of this machine means nothing to others.
    data_fields = {**run.about["config"]["data"], "dir": None}
    about = {
        "config": {**run.about["config"], "data": data_fields},
        "data": run.about["data"],
        "versions": run.about.get("versions", {}),
        "git": run.about.get("git"),
        "checkpoint": {"name": weights.checkpoint, "step": weights.step},
    }
    path = local_path(path, "the folder to export to").absolute()
    try:
        if path.exists() and any(path.iterdir()):
            raise UserError(f"{path} is not empty; give another folder to export to")
        path.parent.mkdir(parents=True, exist_ok=True)
        # The folder gets its name when it is complete, so that a killed export leaves
        # nothing half.
        scratch = pathlib.Path(tempfile.mkdtemp(prefix=".export-", dir=path.parent))
        try:
            arrays = {
                name: np.array(leaf, order="C") for name, leaf in _named(weights.vars)
            }
            safetensors.save_file(arrays, scratch / WEIGHTS, {"format": "np"})
            json_files.write(scratch / "config.json", about)
            json_files.write(scratch / workdir.FACTS, run.facts)
            lines = [json_files.text(record) + "\n" for record in run.metrics]
            (scratch / METRICS).write_text("".join(lines), encoding="utf-8")
            (scratch / CARD).write_text(card(run, about), encoding="utf-8")
            # mkdtemp makes a folder that nobody else can read.
            scratch.chmod(0o755)
            os.replace(scratch, path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as e:
        raise UserError(f"cannot export to {path}: {e.strerror or e}") from None
    return path


def read_weights(folder: pathlib.Path, about: Mapping[str, Any], like: Any) -> Weights:
    """Read the arrays that `write` wrote.

    Args:
      folder: the folder.
      about: the contents of its config.json.
      like: the shapes that its config asks for.

    Raises:
      UserError: the file is damaged, or its arrays do not fit the config.
    """
    safetensors = _safetensors()
    path = folder / WEIGHTS
    try:
        arrays = safetensors.load_file(path)
    # safetensors has an error of its own, and NumPy's of a type that it does not know.
    except Exception as e:
        line = (str(e).splitlines() or [type(e).__name__])[0]
        raise UserError(f"{path}: cannot be read ({line}); get it again") from None
    try:
        saved = about["checkpoint"]
        name, step = str(saved["name"]), int(saved["step"])
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f"{folder / 'config.json'}: not that of an export; get it again"
        ) from None
    # The file has names and no tree. A wrong one means another config or version.
    names = [name for name, _ in _named(like)]
    for which, some in (
        ("has no array", set(names) - arrays.keys()),
        ("has an array too many,", arrays.keys() - set(names)),
    ):
        if some:
            raise UserError(f"{path}: {which} {min(some)!r}; it has another config")
    leaves = [arrays[name] for name in names]
    tree = jax.tree.unflatten(jax.tree.structure(like), leaves)
    check_shapes(path, tree, like)
    return Weights(name, step, tree)


def check_shapes(where: pathlib.Path, arrays: Any, like: Any) -> None:
    """Check that arrays have the shapes and types of a config.

    Args:
      where: where they are from, for the message.
      arrays: a tree of arrays.
      like: a tree of the same structure.

    Raises:
      UserError: one of them differs; it is named.
    """
    pairs = zip(_named(arrays), _named(like), strict=True)
    for (name, array), (_, wanted) in pairs:
        if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
            raise UserError(
                f"{where}: {name} is {array.dtype} {list(array.shape)}, but its config "
                f"asks for {wanted.dtype} {list(wanted.shape)}"
            )


def card(run: Export, about: Mapping[str, Any]) -> str:
    """Return the model card in Markdown.

    Args:
      run: what is exported.
      about: the contents of the config.json of the export.
    """
    config = about["config"]
    experiment = config["experiment"].rpartition(".")[2]
    saved = run.weights
    parameters = sum(leaf.size for leaf in jax.tree.leaves(saved.vars["params"]))
    parts = [
        "---",
        "library_name: lnrepro",
        "tags:",
        "- jax",
        "- layer-normalization",
        "---",
        "",
        f"# {experiment}, norm: {config['norm']}",
        "",
        "A network of [Layer Normalization](https://arxiv.org/abs/1607.06450) (Ba, "
        f"Kiros, Hinton 2016), trained by lnrepro. It has {parameters:,} parameters, "
        f"those of the {saved.checkpoint} checkpoint, after {saved.step:,} steps.",
        "",
        "## Data",
        "",
        f"- name: {about['data']['name']}",
        f"- fingerprint: `{about['data']['fingerprint']}`",
        f"- licence: {_licence(about['data']['name'])}",
        "",
        "The licence of these parameters is for their author to state; the licence of "
        "the data may bind it.",
        "",
        "## Numbers",
        "",
        *_numbers(run.metrics, saved.step),
        "",
        "## Use",
        "",
        "```python",
        "import lnrepro  # in a checkout: pip install -e '.[train]'",
        "",
        'run = lnrepro.load("THIS_FOLDER")',
        "```",
        "",
        *_uses(run.uses),
        "",
        "## Config",
        "",
        "```json",
        json.dumps(config, indent=2),
        "```",
        "",
    ]
    return "\n".join(parts)


def _licence(name: str) -> str:
    """Return the licence of a data set of this project."""
    if name not in data.TABLE:
        return "not known here: these are files of the author's own"
    return data.reader_of(name).licence


def _numbers(records: Sequence[Mapping[str, Any]], step: int) -> Sequence[str]:
    """Return a table of what was measured at a step, and on the training set."""
    numbers = {}
    for record in records:
        if record["step"] == step:
            numbers |= record
    rows = [
        f"| {name} | {value:.6g} |"
        for name, value in sorted(numbers.items())
        if "/" in name and isinstance(value, float | int)
    ]
    if not rows:
        return ["None were measured at this step."]
    return [f"At step {step:,}:", "", "| number | value |", "|---|---|", *rows]


def _uses(methods: Mapping[str, Callable]) -> Sequence[str]:
    """Return a line for each method."""
    lines = []
    for name, method in methods.items():
        parameters = list(inspect.signature(method).parameters.values())[1:]
        plain = [str(p.replace(annotation=p.empty)) for p in parameters]
        summary = (inspect.getdoc(method) or "").partition("\n")[0]
        lines.append(f"- `run.{name}({', '.join(plain)})`: {summary}")
    return lines


def _named(tree: Any) -> Sequence[tuple[str, Any]]:
    """Return the leaves of a tree with their names."""
    return [
        (jax.tree_util.keystr(path, simple=True, separator="."), leaf)
        for path, leaf in jax.tree.leaves_with_path(tree)
    ]


def _safetensors():
    """Import safetensors, which only exports need.

    Raises:
      UserError: it is not installed.
    """
    try:
        import safetensors.numpy
    except ModuleNotFoundError:
        raise UserError(
            "safetensors is not installed; exports need: pip install 'lnrepro[train]' "
            "(in a checkout: pip install -e '.[train]')"
        ) from None
    return safetensors.numpy
