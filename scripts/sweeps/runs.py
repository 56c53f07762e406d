"""The runs of a sweep: what each is called, where it lives, its command line, and how far its files say it is."""

import difflib
import importlib.util
import json
import os
import pathlib
import urllib.parse
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from absl import flags
from ml_collections import ConfigDict, config_flags

from lnrepro.engine import experiment, workdir
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
        resolved = _resolve(config, settings)
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
    if not pathlib.Path(file).is_file():
        near = difflib.get_close_matches(
            file, map(str, pathlib.Path("configs").glob("*.py")), 1, 0.4
        )
        raise UserError(
            f"there is no config {file}"
            + (f"; did you mean {near[0]}?" if near else "")
        )
    module = _load(file)
    if not hasattr(module, "sweep"):
        raise UserError(
            f"{file} has no sweep(); write one that returns a list of overrides: {{'norm': 'layer', 'seed': 1}}"
        )
    try:
        return list(module.sweep(name))
    except ValueError as e:
        near = difflib.get_close_matches(name, getattr(module, "SWEEPS", ()), 1, 0.4)
        raise UserError(
            f"{e}" + (f"; did you mean {near[0]}?" if near else "")
        ) from None


def _load(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("swept_config", file)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        raise UserError(f"{file} cannot be loaded: {type(e).__name__}: {e}") from None
    return module


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


def _resolve(config: str, settings: Mapping[str, str]) -> ConfigDict:
    """The config with its overrides, read as the trainer's flags read them. Raises UserError."""
    file = config.partition(":")[0]
    argv = ["sweep", f"--config={config}"]
    plain = _parse(argv, file)
    for field in settings:
        _exists(plain, field, file)
    return _parse(
        [*argv, *(f"--config.{field}={value}" for field, value in settings.items())],
        file,
    )


def _parse(argv: list[str], file: str) -> ConfigDict:
    values = flags.FlagValues()
    config_flags.DEFINE_config_file(
        "config", flag_values=values, lock_config=True, sys_argv=argv
    )
    try:
        values(argv)
    except (
        flags.Error,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        SyntaxError,
        ImportError,
    ) as e:
        said = str(e.args[0]) if e.args else type(e).__name__
        line = (
            said.strip().splitlines()[-1].partition(": ")[2]
            if "Traceback" in said
            else " ".join(said.split())
        )
        raise UserError(line or f"{file}: {said}") from None
    return values.config


def _exists(config: ConfigDict, field: str, file: str) -> None:
    at, names = config, field.split(".")
    for n, name in enumerate(names):
        if not isinstance(at, ConfigDict) or name not in at:
            near = difflib.get_close_matches(
                name, at.keys() if isinstance(at, ConfigDict) else (), 1
            )
            mend = (
                f"; did you mean {'.'.join([*names[:n], near[0], *names[n + 1 :]])!r}?"
                if near
                else ""
            )
            raise UserError(f"{file} has no field {field!r}{mend}")
        at = at[name]


def _distinct(file: str, runs: list[Run]) -> None:
    if not runs:
        raise UserError(f"the sweep of {file} has no runs")
    seen = set()
    for run in runs:
        if run.id in seen:
            raise UserError(f"{file}: its sweep() has {run.id} twice")
        seen.add(run.id)
