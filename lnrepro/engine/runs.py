"""Run directories opened for reading, by the scripts that use trained networks."""

import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.engine import seeds, train, workdir
from lnrepro.engine.checkpoint import Saved
from lnrepro.engine.errors import UserError


class LoadedRun:
    """A run directory.

    The experiment is imported, and checkpoints are read, at the first use of what needs
    them.

    Attributes:
      folder: the run directory.
      about: the contents of its config.json: the config as JSON values, and "data" (the
        name and the fingerprint of the data set), "command", "versions", "git" and
        "devices".
      config: the config, with tuples where JSON has lists.
    """

    def __init__(self, folder: pathlib.Path, about: Mapping[str, Any]):
        """Convert the config; see `load`."""
        self.folder = folder
        self.about = about
        self.config = ConfigDict(_with_tuples(about["config"]))

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """Facts of the data set that the run was trained on, such as its vocabulary.

        They are stored in the run, so that it can be used without the data.

        Raises:
          UserError: the run has none, and its data is not here either.
        """
        path = self.folder / workdir.FACTS
        # A run knows the facts of its data. The data itself is needed only for runs
        # without the file.
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
        self.check_data()
        return data.facts(self.config.data.name, self.config.data.dir)

    def check_data(self) -> None:
        """Check that the data set here is the one that the run was trained on.

        Raises:
          UserError: it is not here, or it is other data of the same name.
        """
        fingerprint_there = self.about["data"]["fingerprint"]
        fingerprint = data.fingerprint(self.config.data.name, self.config.data.dir)
        if fingerprint != fingerprint_there:
            raise UserError(
                f"{self.folder} was trained on {fingerprint_there}, but the data set "
                f"here is {fingerprint}; pass its folder with LNREPRO_DATA"
            )

    @functools.cached_property
    def run(self) -> train.Run:
        """The engine's run, which has the experiment's functions and the optimiser."""
        # Building the run imports the experiment, so it is done at first use.
        return train.Run(self.config, self.folder)

    @functools.cached_property
    def initial(self) -> train.State:
        """The state before the first step, as NumPy arrays."""
        return self.run.initial()

    def checkpoint(self, name: str) -> Saved | None:
        """Return the newest checkpoint called "best" or "last", or None."""
        # The store of a run opened for reading changes nothing in its folder.
        store = self.run.store
        try:
            return store.restore(name, self.initial)
        finally:
            store.close()

    def vars(self, checkpoint: str = "best") -> dict[str, Any]:
        """Read the parameters and collections of a checkpoint.

        Args:
          checkpoint: "best" or "last"; the last one is read where no best one is kept.

        Returns:
          What the experiment's functions take; of several seeds, that of the first.

        Raises:
          UserError: there is no checkpoint.
        """
        # A run without config.best.metric keeps no best checkpoint.
        saved = self.checkpoint(checkpoint) or self.checkpoint("last")
        if saved is None:
            raise UserError(f"{self.folder} has no checkpoint yet; train it first")
        return next(seeds.parts(saved.state.vars, len(self.run.seeds)))


def load(folder: pathlib.Path, experiment: str | None = None) -> LoadedRun:
    """Open a run directory.

    Args:
      folder: the run directory.
      experiment: the only module in `config.experiment` that is accepted; None accepts
        any. Name it wherever the experiment is used: a config.json may come from a
        stranger.

    Raises:
      UserError: there is no config.json, it is not that of a run, or the run is one of
        another experiment.
    """
    path = folder / "config.json"
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        config = about["config"]
        # Read all fields that are used later, so that a missing one is reported here.
        name, _, _ = config["experiment"], config["norm"], config["data"]["name"]
    except OSError:
        raise UserError(
            f"{folder} holds no run: {path} cannot be read; train a run, or give "
            "another directory"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise UserError(
            f"{path}: not a run's config.json ({type(e).__name__}); give another "
            "directory"
        ) from None
    if experiment and name != experiment:
        raise UserError(f"{folder} holds a run of {name}, not of {experiment}")
    return LoadedRun(folder, about)


def _with_tuples(value):
    """Turn JSON's lists back into the tuples that they were in the config."""
    if isinstance(value, dict):
        return {name: _with_tuples(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return tuple(_with_tuples(inner) for inner in value)
    return value
