"""The runs of a sweep: their names, directories and commands."""

import difflib
import pathlib
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple

from lnrepro.engine import config_file, experiment, workdir
from lnrepro.errors import UserError
from scripts.sweeps import child


class PlannedRun(NamedTuple):
    """A run of a sweep.

    Attributes:
      id: its overrides, such as "norm=layer,seed=1".
      workdir: the run directory.
      command: what follows `python`.
      total: the number of its steps.
    """

    id: str
    workdir: pathlib.Path
    command: tuple[str, ...]
    total: int

    @property
    def finished(self) -> bool:
        """Whether it has trained to its end, with finite numbers."""
        return workdir.read_results(self.workdir) is not None

    @property
    def diverged(self) -> bool:
        """Whether a number of it was not finite."""
        return workdir.is_diverged(self.workdir)

    @property
    def ended(self) -> bool:
        """Whether it is finished or has diverged, and is not started again."""
        return self.finished or self.diverged

    @property
    def last_line(self) -> str:
        """The last line that it has printed."""
        try:
            text = (self.workdir / child.LOG).read_text("utf-8", "replace")
        except OSError:
            return "printed nothing"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "printed nothing"


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
        total = experiment.total_steps(resolved)
        runs.append(PlannedRun(id, where, tuple(command), total))
    if not runs or len(set(runs)) < len(runs):
        raise UserError(f"{file}: its sweep() has no runs, or a run twice")
    return runs


def text(value: Any) -> str:
    """Return a value as text that --config.FIELD= reads back as the same value."""
    return value if isinstance(value, str) else repr(value)


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
        for value in values:
            if value not in varied:
                there = ", ".join(sorted(varied)) or "no values of it"
                raise UserError(
                    f"--only {wanted}: no run has {field}={value}; the sweep has "
                    f"{there}"
                )
        sweep = [o for o in sweep if text(o.get(field)) in values]
    return sweep
