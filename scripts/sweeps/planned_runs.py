"""The runs of a sweep: their names, directories, commands and progress."""

import difflib
import json
import os
import pathlib
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lnrepro.engine import config_file, experiment, workdir
from lnrepro.errors import UserError
from scripts.sweeps import start

# Number of bytes at the end of a file in which its last record or line is looked for.
TAIL = 1 << 16


class PlannedRun(NamedTuple):
    """A run of a sweep.

    Attributes:
      id: its overrides, such as "norm=layer,seed=1".
      workdir: the run directory.
      command: what follows `python`.
      total: the number of its steps.
      metric: the metric that is shown: its best value at the end, else its last one.
    """

    id: str
    workdir: pathlib.Path
    command: tuple[str, ...]
    total: int
    metric: str

    @property
    def finished(self) -> bool:
        """Whether it has trained to its end, with finite numbers."""
        return (self.workdir / "results.json").exists() and not self.diverged

    @property
    def diverged(self) -> bool:
        """Whether a number of it was not finite."""
        return workdir.is_diverged(self.workdir)

    @property
    def ended(self) -> bool:
        """Whether it is finished or has diverged, and is not started again."""
        return self.finished or self.diverged

    @property
    def best(self) -> float | None:
        """The best value of the metric, None before the end or where none is kept."""
        try:
            results = workdir.read_results(self.workdir) or {}
        except UserError:
            # The run names its damaged file when it is started again.
            return None
        return results.get(f"best {self.metric}")

    def start(
        self, python: str, parent: int, death: int, cores: Iterable[int] = ()
    ) -> list[str]:
        """Return the command of start.py, the process that a launcher starts.

        Args:
          python: the interpreter.
          parent: id of the process that will start it.
          death: the signal that it gets when its parent dies.
          cores: the cores to run on; all if there are none.
        """
        command = [python, str(pathlib.Path(start.__file__).resolve())]
        command += ["--workdir", str(self.workdir), "--parent", str(parent)]
        command += ["--death", str(int(death))]
        if cores:
            command += ["--cores", ",".join(map(str, cores))]
        return [*command, "--", python, *self.command]


class Progress(NamedTuple):
    """The newest record of a run.

    Attributes:
      step: its step; 0 if there is no record.
      time: when it was written.
      value: the newest value of the run's metric.
    """

    step: int = 0
    time: float = 0.0
    value: float | None = None


def plan(
    config: str, name: str, root: str | None, common: list[str], only: list[str]
) -> list[PlannedRun]:
    """Return the runs of a sweep, in its order.

    Args:
      config: FILE[:VARIANT].
      name: which sweep of the config.
      root: the folder of the run directories, or None for the default.
      common: flags --config.FIELD=VALUE of every run.
      only: FIELD=VALUE[,VALUE]; only runs with these values are returned.

    Raises:
      UserError: something is mistyped, or a run's directory holds a run of another
        config.
    """
    file, _, variant = config.partition(":")
    common = _common(common)
    sweep = _filter(_sweep(file, name), only)
    folder = pathlib.Path(root) if root else None
    runs = []
    for overrides in sweep:
        varied = {field: text(value) for field, value in overrides.items()}
        twice = varied.keys() & common.keys()
        if twice:
            raise UserError(
                f"--config.{min(twice)} cannot be given: the sweep varies it"
            )
        settings = varied | common
        flags = [f"--config.{field}={settings[field]}" for field in sorted(settings)]
        resolved = experiment.fill_sizes(config_file.read(config, flags))
        if folder is None:
            folder = _default_folder(resolved.experiment, variant, common)
        id = _label(varied)
        where = folder / id
        workdir.check_run(where, resolved)
        command = ["-m", "lnrepro.main", f"--config={config}", *flags]
        command.append(f"--workdir={where}")
        metric = resolved.best.metric or "train/loss"
        total = experiment.total_steps(resolved)
        runs.append(PlannedRun(id, where, tuple(command), total, metric))
    _check_distinct(file, runs)
    return runs


def progress(run: PlannedRun) -> Progress:
    """Read the newest record of a run's metrics.jsonl."""
    path = run.workdir / "metrics.jsonl"
    step, written = 0, 0.0
    for line in reversed(_tail(path)):
        try:
            record = json.loads(line)
            record_step = int(record["step"])
        except (ValueError, KeyError, TypeError):
            # This line is being written, or the tail begins inside of it.
            continue
        if not step:
            step, written = record_step, path.stat().st_mtime
        if run.metric in record:
            return Progress(step, written, record[run.metric])
    return Progress(step, written)


def last_line(run: PlannedRun) -> str:
    """Return the last line that the run has printed."""
    lines = [line.strip() for line in _tail(run.workdir / start.LOG) if line.strip()]
    return lines[-1] if lines else "printed nothing"


def log_size(run: PlannedRun) -> int:
    """Return the number of bytes that the run has printed in all its starts."""
    try:
        return (run.workdir / start.LOG).stat().st_size
    except OSError:
        return 0


def text(value: Any) -> str:
    """Return a value as text that --config.FIELD= reads back as the same value."""
    return value if isinstance(value, str) else repr(value)


def _tail(path):
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _default_folder(experiment, variant, common):
    name = variant or "default"
    if common:
        name += f",{_label(common)}"
    return pathlib.Path("runs") / experiment.rpartition(".")[2] / name


def _label(settings):
    """Return such as "norm=layer,seed=1": sorted by field, safe as a file name."""
    words = []
    for field in sorted(settings):
        value = settings[field].replace(" ", "")
        words.append(f"{field}={urllib.parse.quote(value, safe='+-_.()[],')}")
    return ",".join(words)


def _common(flags) -> dict[str, str]:
    """Parse --config.FIELD=VALUE flags."""
    common = {}
    for flag in flags:
        field, equals, value = flag.removeprefix("--config.").partition("=")
        if not flag.startswith("--config.") or not equals:
            raise UserError(
                f"{flag!r} behind --: only --config.FIELD=VALUE can be given to every "
                "run"
            )
        common[field] = value
    return common


def _sweep(file, name) -> list[Mapping[str, Any]]:
    """Return what `sweep(name)` of the config returns."""
    module = config_file.load_module(file)
    if not hasattr(module, "sweep"):
        raise UserError(
            f"{file} has no sweep(); write one that returns a list of overrides: "
            "{'norm': 'layer', 'seed': 1}"
        )
    try:
        return list(module.sweep(name))
    except ValueError as e:
        near = difflib.get_close_matches(name, getattr(module, "SWEEPS", ()), 1, 0.4)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"{file}: {e}{hint}") from None


def _filter(sweep, only) -> list[Mapping[str, Any]]:
    """Keep the overrides with the values of `only`."""
    for wanted in only:
        field, _, values = wanted.partition("=")
        values = values.split(",")
        varied = {text(overrides[field]) for overrides in sweep if field in overrides}
        missing = [value for value in values if value not in varied]
        if missing:
            hint = f"the sweep does not vary {field!r}"
            if varied:
                hint = f"the sweep has {', '.join(sorted(varied))}"
            raise UserError(f"--only {wanted}: no run has {field}={missing[0]}; {hint}")
        sweep = [o for o in sweep if text(o.get(field)) in values]
    return sweep


def _check_distinct(file, runs):
    if not runs:
        raise UserError(f"the sweep of {file} has no runs")
    seen = set()
    for run in runs:
        if run.id in seen:
            raise UserError(f"{file}: its sweep() has {run.id} twice")
        seen.add(run.id)
