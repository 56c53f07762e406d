"""Run directories opened for reading: their config, numbers and trained network.

`load` opens any run and imports nothing of its experiment. `load_model`, which users
call as `lnrepro.load`, returns an object with the functions of `EXPERIMENT.use`.
"""

import functools
import json
import logging
import os
import pathlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lnrepro.engine import experiment as experiments
from lnrepro.engine import export, json_files, metrics, run_config, workdir
from lnrepro.engine.checkpoint import Checkpoint, restore
from lnrepro.engine.export import Weights
from lnrepro.engine.run import Run
from lnrepro.errors import UserError
from lnrepro.paths import local_path

logger = logging.getLogger("lnrepro")

# The experiments that are imported without being named by the user.
OWN_EXPERIMENT = re.compile(r"experiments\.[A-Za-z]\w*")
# A larger share of unknown words is a warning.
MANY_UNKNOWN = 0.1


class LoadedRun:
    """A run directory, or a folder that `export` wrote.

    The experiment is imported, and checkpoints are read, at the first use of what needs
    them. Nothing in the folder is executed. No data set is needed.

    Attributes:
      folder: the run directory.
      about: the contents of its config.json: the config as JSON values, and "data" (the
        name and the fingerprint of the data set), "command", "versions", "git" and
        "devices".
      config: the config, with tuples where JSON has lists.
    """

    def __init__(
        self, folder: pathlib.Path, about: Mapping[str, Any], checkpoint: str = "best"
    ):
        """Convert the config; see `load`."""
        self.folder = folder
        self.about = about
        self.config = run_config.from_json(about["config"])
        self._checkpoint = checkpoint

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Tell type checkers that `load_model` returns more methods than these."""

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """Facts of the data set that the run was trained on, such as its vocabulary.

        They are stored in the run, so that it can be used without the data.

        Raises:
          UserError: the run has others than it was trained on.
          OSError: it has none.
        """
        path, digest = self.folder / workdir.FACTS, self.about["data"].get("facts")
        return json.loads(json_files.read_checked(path, digest))

    @functools.cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl, [] if there is none.

        Each has "step", "epoch" and "data", and the numbers measured then.

        Raises:
          ValueError: a line is not JSON.
        """
        path = self.folder / "metrics.jsonl"
        return metrics.read(path) if path.exists() else []

    @functools.cached_property
    def weights(self) -> Weights:
        """The parameters and collections of the checkpoint that `load` was asked for.

        It is the last checkpoint where no best one is kept.

        Raises:
          UserError: there is no checkpoint, or it does not fit the config.
        """
        if (self.folder / export.WEIGHTS).exists():
            like = Run(self.config, self.folder).shapes().vars
            return export.read_weights(self.folder, self.about, like)
        # A run that was stopped before its first evaluation has no best checkpoint.
        for name in (self._checkpoint, "last"):
            saved = self.checkpoint(name)
            if saved is not None:
                return Weights(name, saved.step, saved.state.vars)
        raise UserError(
            f"{self.folder} has no checkpoint; train it, or put checkpoints/ back"
        )

    @property
    def vars(self) -> dict[str, Any]:
        """Parameters and collections, for the experiment's functions."""
        return self.weights.vars

    @property
    def params(self) -> Any:
        """The trained parameters, as NumPy arrays; see `weights`."""
        return self.weights.vars["params"]

    def checkpoint(self, name: str) -> Checkpoint | None:
        """Return the newest checkpoint called "best" or "last", or None."""
        folder = self.folder / "checkpoints" / name
        like = Run(self.config, self.folder).shapes()
        saved = restore(folder, like, resumes=False)
        if saved:
            path = folder / str(saved.step)
            now = {
                "config": self.about["config"],
                "fingerprint": self.about["data"]["fingerprint"],
            }
            run_config.check_checkpoint(path, saved.notes, now)
        return saved

    def export(self, path: str | os.PathLike) -> pathlib.Path:
        """Write the network for others, in the layout of the Hugging Face hub.

        The folder has model.safetensors, README.md (the model card), config.json,
        data_facts.json and metrics.jsonl. `lnrepro.load` opens it like a run. Nothing
        is uploaded.

        Args:
          path: a folder that does not exist, or is empty.

        Returns:
          The folder.

        Raises:
          UserError: the folder is not empty, or there is no checkpoint.
          OSError: it cannot be written.
        """
        return export.write(path, self.folder, self.about, self.weights)

    def log_unknown(self, unknown: int, words: int) -> None:
        """Warn where the network does not know many of the words of a text."""
        if unknown > MANY_UNKNOWN * words:
            said = f"{unknown} of {words} words are not in the vocabulary"
            logger.warning("%s: %s", self.folder, said)


def load_model(
    folder: str | os.PathLike,
    *,
    checkpoint: str = "best",
    experiment: str | None = None,
) -> LoadedRun:
    """Open a run to use its network. This is `lnrepro.load`.

    Args:
      folder: the run directory, or a folder that `LoadedRun.export` wrote.
      checkpoint: "best" or "last"; the last one is read where no best one is kept.
      experiment: the only module in `config.experiment` that is accepted. None accepts
        the modules `experiments.NAME`. No other module is imported without being named
        here, because a config.json may come from a stranger.

    Returns:
      The class `Model` of EXPERIMENT.use, or a LoadedRun where there is none.

    Raises:
      UserError: there is no run, it is one of another experiment, or there is no module
        of this name.
    """
    if checkpoint not in ("best", "last"):
        raise UserError(f"checkpoint={checkpoint!r}: choose best or last")
    run = load(pathlib.Path(folder))
    name = str(run.config.experiment)
    if experiment and name != experiment:
        raise UserError(f"{run.folder} holds a run of {name}, not of {experiment}")
    # The config.json may come from a stranger, and the module that it names would be
    # imported.
    if not experiment and not OWN_EXPERIMENT.fullmatch(name):
        raise UserError(
            f"{run.folder} holds a run of {name!r}; if you trust this module, name it: "
            "experiment= in Python, --config without --resume on the command line"
        )
    uses = experiments.load_uses(run.config)
    model = uses.Model if uses else LoadedRun
    return model(run.folder, run.about, checkpoint)


def load(folder: pathlib.Path) -> LoadedRun:
    """Open a run directory; nothing that it names is imported.

    Args:
      folder: the run directory.

    Raises:
      UserError: there is no config.json, or it is not that of a run.
    """
    folder = local_path(folder, "the folder of the run")
    about = workdir.read_about(folder)
    if about is None:
        raise UserError(
            f"{folder} holds no run: it has no config.json that can be read; train a "
            "run, or give another directory"
        )
    return LoadedRun(folder, about)
