"""The runs of a sweep: what each is called, where it lives, its command line, and how far its files say it is."""

import difflib
import json
import os
import pathlib
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lnrepro.engine import config_file, experiment, workdir
from lnrepro.engine.errors import UserError
from scripts.sweeps import start

TAIL = 1 << 16  # bytes of a file's end that are searched for its last record or line


class Run(NamedTuple):
    """One run of a sweep; `command` is what follows `python`."""

    id: str
    workdir: pathlib.Path
    command: tuple[str, ...]
    total: int
    metric: str

    @property
    def finished(self) -> bool:
        """Whether it has trained to its end."""
        return (self.workdir / "results.json").exists()

    def start(
        self, python: str, parent: int, death: int, cores: Iterable[int] = ()
    ) -> list[str]:
        """The process that a launcher begins: start.py, which becomes `command` (so `parent` is its parent's id)."""
        here = [
            python,
            str(pathlib.Path(start.__file__).resolve()),
            "--workdir",
            str(self.workdir),
        ]
        here += ["--parent", str(parent), "--death", str(int(death))]
        if cores := ",".join(map(str, cores)):
            here += ["--cores", cores]
        return [*here, "--", python, *self.command]


class Seen(NamedTuple):
    """The newest record of a run: its step, when it was written, the value of the run's metric."""

    step: int = 0
    time: float = 0.0
    value: float | None = None


def plan(
    config: str, name: str, root: str | None, further: list[str], only: list[str]
) -> list[Run]:
    """The runs of sweep `name` of `config` (FILE[:VARIANT]), in the sweep's order.

    `further` are flags --config.FIELD=VALUE for every run; `only` are FIELD=VALUE[,VALUE], which keep the runs with
    these values. Raises UserError for what is mistyped, and if a run's directory holds a run of another config.
    """
    file, _, variant = config.partition(":")
    common = _common(further)
    sweep = _keep(_sweep(file, name), only)
    folder = pathlib.Path(root) if root else None
    runs = []
    for overrides in sweep:
        if twice := overrides.keys() & common.keys():
            raise UserError(
                f"--config.{min(twice)} cannot be given: the sweep varies it"
            )
        settings = {field: text(value) for field, value in overrides.items()} | common
        overrides_of_run = [
            f"--config.{name}={value}" for name, value in settings.items()
        ]
        resolved = config_file.read(config, overrides_of_run)
        if folder is None:
            label = _label(common)
            folder = pathlib.Path("runs") / resolved.experiment.rpartition(".")[2]
            folder /= (variant or "default") + (f",{label}" if label else "")
        id = _label({field: text(value) for field, value in overrides.items()})
        where = folder / id
        workdir.same_config(where, resolved)
        command = ["-m", "lnrepro.main", f"--config={config}"]
        command += [f"--config.{field}={settings[field]}" for field in sorted(settings)]
        command.append(f"--workdir={where}")
        metric = resolved.best.metric or "train/loss"
        runs.append(
            Run(id, where, tuple(command), experiment.total_steps(resolved), metric)
        )
    _distinct(file, runs)
    return runs


def look(run: Run) -> Seen:
    """What the run's metrics.jsonl says; all zero before its first record."""
    path = run.workdir / "metrics.jsonl"
    step, value, when = 0, None, 0.0
    for line in reversed(_tail(path)):
        try:
            record = json.loads(line)
            at = int(record["step"])
        except (ValueError, KeyError, TypeError):
            continue  # torn: being written
        if not step:
            step, when = at, path.stat().st_mtime
        if run.metric in record:
            return Seen(step, when, record[run.metric])
    return Seen(step, when, value)


def last_line(run: Run) -> str:
    """The last line that the run has printed."""
    return next(
        (
            line.strip()
            for line in reversed(_tail(run.workdir / start.LOG))
            if line.strip()
        ),
        "printed nothing",
    )


def log_size(run: Run) -> int:
    """Bytes that the run has printed in all its starts."""
    try:
        return (run.workdir / start.LOG).stat().st_size
    except OSError:
        return 0


def text(value: Any) -> str:
    """A value as it is written behind --config.FIELD=, so that the flag reads back the same."""
    return value if isinstance(value, str) else repr(value)


def _tail(path: pathlib.Path) -> list[str]:
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _label(settings: Mapping[str, str]) -> str:
    """ "norm=layer,seed=1": sorted by field, safe as a file's name."""

    def quote(value: str) -> str:
        return urllib.parse.quote(value.replace(" ", ""), safe="+-_.()[],")

    return ",".join(f"{field}={quote(settings[field])}" for field in sorted(settings))


def _common(further: list[str]) -> dict[str, str]:
    common = {}
    for flag in further:
        field, equals, value = flag.removeprefix("--config.").partition("=")
        if not flag.startswith("--config.") or not equals:
            raise UserError(
                f"{flag!r} behind --: only --config.FIELD=VALUE can be given to every run"
            )
        common[field] = value
    return common


def _sweep(file: str, name: str) -> list[Mapping[str, Any]]:
    """What `sweep(name)` of the config returns."""
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


def _keep(sweep: list[Mapping[str, Any]], only: list[str]) -> list[Mapping[str, Any]]:
    for wanted in only:
        field, _, values = wanted.partition("=")
        varied = {text(overrides[field]) for overrides in sweep if field in overrides}
        if missing := [v for v in values.split(",") if v not in varied]:
            known = (
                f"the sweep has {', '.join(sorted(varied))}"
                if varied
                else f"the sweep does not vary {field!r}"
            )
            raise UserError(
                f"--only {wanted}: no run has {field}={missing[0]}; {known}"
            )
        sweep = [o for o in sweep if text(o.get(field)) in values.split(",")]
    return sweep


def _distinct(file: str, runs: list[Run]) -> None:
    if not runs:
        raise UserError(f"the sweep of {file} has no runs")
    seen = set()
    for run in runs:
        if run.id in seen:
            raise UserError(f"{file}: its sweep() has {run.id} twice")
        seen.add(run.id)
