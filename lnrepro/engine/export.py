"""Trained networks as folders for others, in the layout of the Hugging Face hub.

    README.md          the model card
    model.safetensors  the arrays, called by their paths, such as "params.gru.w"
    config.json        config, data and versions, as in a run directory
    data_facts.json    what the network needs to know of its data
    metrics.jsonl      the records of the run

A file of safetensors holds arrays and nothing that could be executed.
"""

import os
import pathlib
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from lnrepro import data
from lnrepro.engine import json_files, workdir
from lnrepro.engine.checkpoint import described, named
from lnrepro.engine.run_config import differences
from lnrepro.errors import UserError
from lnrepro.paths import local_path

WEIGHTS = "model.safetensors"
CARD = "README.md"
METRICS = "metrics.jsonl"
CARD_TEXT = """---
library_name: lnrepro
tags:
- jax
- layer-normalization
---

# {experiment}, norm: {norm}

A network of [Layer Normalization](https://arxiv.org/abs/1607.06450) (Ba, Kiros, Hinton
2016), trained by lnrepro: the {checkpoint} checkpoint, after {step:,} steps. Its config
stands in config.json, its numbers in metrics.jsonl.

- data: {data}
- fingerprint of the data: `{fingerprint}`
- licence of the data: {licence}

The licence of these parameters is for their author to state. The licence of the data
may bind it.

```python
import lnrepro  # in a checkout: pip install -e '.[train]'

run = lnrepro.load("THIS_FOLDER")
```
"""


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


def write(
    path: str | os.PathLike,
    folder: pathlib.Path,
    run: Mapping[str, Any],
    weights: Weights,
) -> pathlib.Path:
    """Write a folder, completely or not at all.

    Args:
      path: a folder that does not exist, or is empty.
      folder: the folder of the run.
      run: the contents of its config.json.
      weights: its parameters.

    Returns:
      The folder.

    Raises:
      UserError: the folder is not empty.
      OSError: it cannot be written.
    """
    import safetensors.numpy

    # A folder of this machine means nothing to others.
    data_fields = {**run["config"]["data"], "dir": None}
    about = {
        "config": {**run["config"], "data": data_fields},
        "data": run["data"],
        "versions": run["versions"],
        "git": run["git"],
        "checkpoint": {"name": weights.checkpoint, "step": weights.step},
    }
    path = local_path(path, "the folder to export to").absolute()
    if path.exists() and any(path.iterdir()):
        raise UserError(f"{path} is not empty; give another folder to export to")
    path.parent.mkdir(parents=True, exist_ok=True)
    # The folder gets its name when it is complete, so that a killed export leaves
    # nothing half.
    with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as made:
        scratch = pathlib.Path(made) / "export"
        scratch.mkdir()
        leaves = named(weights.vars).items()
        arrays = {name: np.array(leaf, order="C") for name, leaf in leaves}
        content = safetensors.numpy.save(arrays, {"format": "np"})
        (scratch / WEIGHTS).write_bytes(content)
        about["checkpoint"]["digest"] = zlib.crc32(content)
        json_files.write(scratch / "config.json", about)
        for name in (workdir.FACTS, METRICS):
            shutil.copyfile(folder / name, scratch / name)
        (scratch / CARD).write_text(card(about), encoding="utf-8")
        os.replace(scratch, path)
    return path


def read_weights(folder: pathlib.Path, about: Mapping[str, Any], like: Any) -> Weights:
    """Read the arrays that `write` wrote.

    Args:
      folder: the folder.
      about: the contents of its config.json.
      like: the shapes that its config asks for.

    Raises:
      UserError: the file does not match its digest, or its arrays not the config.
    """
    import safetensors.numpy

    path, saved = folder / WEIGHTS, about["checkpoint"]
    content = json_files.read_checked(path, saved.get("digest"))
    arrays = safetensors.numpy.load(content)
    wanted = named(like)
    for name, there, needed in differences(described(arrays), described(wanted)):
        raise UserError(f"{path}: {name} is {there}, but its config asks for {needed}")
    tree = jax.tree.unflatten(jax.tree.structure(like), map(arrays.get, wanted))
    return Weights(saved["name"], saved["step"], tree)


def card(about: Mapping[str, Any]) -> str:
    """Return the model card in Markdown.

    Args:
      about: the contents of the config.json of the export.
    """
    config, name = about["config"], about["data"]["name"]
    licence = "not known here: these are files of the author's own"
    if name in data.TABLE:
        licence = data.reader_of(name).licence
    return CARD_TEXT.format(
        experiment=config["experiment"].rpartition(".")[2],
        norm=config["norm"],
        checkpoint=about["checkpoint"]["name"],
        step=about["checkpoint"]["step"],
        data=name,
        fingerprint=about["data"]["fingerprint"],
        licence=licence,
    )
