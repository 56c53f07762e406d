"""The runs of a sweep: their names, directories and commands."""

import os
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ml_collections import FrozenConfigDict

from lnrepro import data
from lnrepro.config import choose
from lnrepro.engine import config_file, run_config, workdir
from lnrepro.errors import UserError
from scripts.sweeps import child


class PlannedRun(NamedTuple):
    """A run of a sweep.

    Attributes:
      workdir: the run directory, named after the overrides: "norm=layer,seed=1".
      command: what follows `python`.
      config: its config.
    """

    workdir: pathlib.Path
    command: tuple[str, ...]
    config: FrozenConfigDict = FrozenConfigDict()

    @property
    def ended(self) -> str:
        """How it has ended, so that it is not started again; "" if it has not."""
        return workdir.ended(self.workdir)

    def task(self, env: Mapping[str, str]) -> child.Task:
        """Return what starts it, with variables, from the directory of this process."""
        return child.Task(self.workdir.absolute(), self.command, env, os.getcwd())

    @property
    def last_line(self) -> str:
        """The last line that it has printed."""
        log = self.workdir / child.LOG
        text = log.read_text("utf-8", "replace") if log.exists() else ""
        return text.strip().rpartition("\n")[2].strip()


def plan(
    config: str,
    name: str,
    root: str | None,
    common: list[str],
    only: list[str],
    seeds: Sequence[int] = (),
) -> list[PlannedRun]:
    """Return the runs of a sweep, in its order.

    Args:
      config: FILE[:VARIANT].
      name: which sweep of the config.
      root: the folder of the run directories, or None for the default.
      common: flags --config.FIELD=VALUE of every run.
      only: FIELD=VALUE[,VALUE]; only runs with these values are returned.
      seeds: seeds in place of those of the sweep, one after the other.

    Raises:
      UserError: something is mistyped, or a run's directory holds a run of another
        config.
    """
    file, _, variant = config.partition(":")
    common = _common(common)
    name_of_folder = ",".join(filter(None, [variant or "default", _label(common)]))
    default = pathlib.Path("runs", pathlib.Path(file).stem, name_of_folder)
    folder = pathlib.Path(root) if root else default
    runs = []
    for varied in _filter(_with_seeds(_sweep(file, name), seeds), only):
        if twice := varied.keys() & common.keys():
            raise UserError(f"--config.{min(twice)}: the sweep varies it")
        settings = sorted((varied | common).items())
        flags = [f"--config.{field}={value}" for field, value in settings]
        resolved = run_config.resolved(config_file.read(config, flags))
        where = folder / _label(varied)
        workdir.check_run(where, {"config": run_config.as_json(resolved)})
        command = ["-m", "lnrepro.main", f"--config={config}", *flags]
        command.append(f"--workdir={where}")
        runs.append(PlannedRun(where, tuple(command), FrozenConfigDict(resolved)))
    if not runs:
        raise UserError(f"{file}: the sweep has no runs")
    return runs


def check_data(runs: Sequence[PlannedRun]) -> None:
    """Check that the data sets that runs read are prepared.

    Raises:
      DataError: one is not, or it is damaged.
    """
    sets = set()
    for config in [run.config for run in runs]:
        sets.add((config.data.name, config.data.dir))
        # Evaluations of the transfer tasks are named after their data sets.
        for name, schedule in config.evals.items():
            if name in data.TABLE and schedule != "never":
                sets.add((name, config.data.dir))
    for name, folder in sorted(sets, key=str):
        data.open_set(name, folder)


def _label(settings):
    """Return such as "norm=layer,seed=1": sorted by field, safe as a file name."""
    words = [f"{field}={value}" for field, value in sorted(settings.items())]
    return urllib.parse.quote(",".join(words).replace(" ", ""), safe="+-_.(),=")


def _common(flags) -> dict[str, str]:
    """Parse --config.FIELD=VALUE flags."""
    common = {}
    for flag in flags:
        field, equals, value = flag.removeprefix("--config.").partition("=")
        if not flag.startswith("--config.") or not equals:
            raise UserError(f"{flag!r} behind --: only --config.FIELD=VALUE is taken")
        common[field] = value
    return common


def _sweep(file, name) -> list[dict[str, str]]:
    """Return the overrides of a sweep of a config file, as texts of flags."""
    sweeps = getattr(config_file.load_module(file), "SWEEPS", {})
    try:
        # Each is a mapping.
        sweep = [dict(run) for run in choose("sweep", sweeps, name)]
    except (ValueError, TypeError) as e:
        raise UserError(
            f"{file}, SWEEPS = {{name: [overrides, ...]}}, such as "
            f"{{'': [{{'norm': 'layer', 'seed': 1}}]}}: {e}"
        ) from None
    for run in sweep:
        for field, value in run.items():
            run[field] = value if isinstance(value, str) else repr(value)
    return sweep


def _with_seeds(sweep, seeds) -> list[dict[str, str]]:
    """Return the runs with other seeds, where there are some: all runs of each seed."""
    if not seeds:
        return sweep
    found = []
    for seed in seeds:
        for run in sweep:
            other = run | {"seed": str(seed)}
            # Runs that differed in their seeds are the same.
            if other not in found:
                found.append(other)
    return found


def _filter(sweep, only) -> list[dict[str, str]]:
    """Keep the overrides with the values of `only`."""
    for wanted in only:
        field, _, values = wanted.partition("=")
        swept = {run[field] for run in sweep if field in run}
        if not set(values.split(",")) <= swept:
            raise UserError(
                f"--only {wanted}: the sweep has {', '.join(sorted(swept)) or 'none'}"
            )
        sweep = [run for run in sweep if run.get(field) in values.split(",")]
    return sweep
