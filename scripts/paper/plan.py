"""The runs of all figures and tables at a scale, and what they cost."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from lnrepro import data
from lnrepro.config import PROTOCOLS
from lnrepro.engine import config_file
from lnrepro.errors import UserError
from scripts.sweeps import planned_runs

# {experiment: what of the paper its runs are for}.
PARTS = {
    "mnist": "Figure 6",
    "convnet": "Section 6.7",
    "attentive_reader": "Figure 2",
    "draw": "Figure 4",
    "handwriting": "Figure 5",
    "order_embeddings": "Figure 1, Table 2",
    "skip_thoughts": "Figure 3, Table 3",
}
TUNED, SAME = PROTOCOLS
# {scale: {variant: {protocol: name of its sweep}}}. Only MNIST has the variants with
# batches of 4. The sweeps of the paper's figures have one rate for all norms.
SCALES = {
    "smoke": {"smoke": {TUNED: "small", SAME: "small_same_rate"}},
    "embedded": {"": {SAME: ""}},
    "small": {
        "small": {TUNED: "small", SAME: "small_same_rate"},
        "small_bz4": {TUNED: "small_bz4", SAME: "small_bz4_same_rate"},
    },
    "paper": {"paper": {SAME: ""}, "paper_bz4": {SAME: ""}},
}
COSTS = "costs.json"


class Item(NamedTuple):
    """A sweep of the plan.

    Attributes:
      name: name of the experiment.
      part: the figures and tables that it is for.
      config: FILE:VARIANT.
      protocol: one of `PROTOCOLS`.
      runs: its runs, without those that belong to an earlier item too.
      seconds: {id of a run: estimated seconds of its training steps}.
    """

    name: str
    part: str
    config: str
    protocol: str
    runs: Sequence[planned_runs.PlannedRun]
    seconds: dict[str, float]

    @property
    def seconds_left(self) -> float:
        """The estimated time of the runs that are not finished."""
        return sum(self.seconds[run.id] for run in self.runs if not run.ended)


def items(
    scale: str,
    only: Iterable[str],
    root: pathlib.Path,
    together: int = 1,
    protocols: Collection[str] = PROTOCOLS,
    needs_data: bool = True,
) -> tuple[list[Item], list[str]]:
    """Return the sweeps of a scale, without costs.

    Args:
      scale: a key of `SCALES`.
      only: names of experiments; all if there are none.
      root: folder of the runs.
      together: number of seeds that one run trains, `config.seeds`. With more than one,
        a run stands for so many of the sweep.
      protocols: the protocols that are planned. A run of both is planned once.
      needs_data: whether sweeps whose data is not here are left out.

    Returns:
      The sweeps, and a line for each that is left out.
    """
    found, skipped = [], []
    only = set(only) or set(PARTS)
    for name, part in PARTS.items():
        if name not in only:
            continue
        for variant, sweeps in SCALES[scale].items():
            sweeps = {p: s for p, s in sweeps.items() if p in protocols}
            if not sweeps or (variant.endswith("_bz4") and name != "mnist"):
                continue
            config = f"configs/{name}.py:{variant}".removesuffix(":")
            missing = _missing_data(config) if needs_data else ""
            if missing:
                skipped.append(f"left out: {part}, {config}: {missing}")
                continue
            folder = root / f"{name}-{variant or 'default'}"
            few = ["seed=0,1"] if scale == "smoke" else []
            common = []
            if together > 1:
                folder = folder.with_name(f"{folder.name}-{together}-seeds")
                few, common = ["seed=0"], [f"--config.seeds={together}"]
            planned = set()
            for protocol, sweep in sweeps.items():
                runs = planned_runs.plan(config, sweep, str(folder), common, few)
                runs = [run._replace(id=f"{folder.name}/{run.id}") for run in runs]
                runs = [run for run in runs if run.id not in planned]
                planned |= {run.id for run in runs}
                if runs:
                    found.append(Item(name, part, config, protocol, runs, {}))
    return found, skipped


def _missing_data(config: str) -> str:
    """Return the message about the first data set that is not prepared, or ""."""
    resolved = config_file.read(config)
    names = [resolved.data.name]
    # Evaluations of the transfer tasks are named after their data sets.
    names += [name for name in resolved.evals if name in data.TABLE]
    for name in names:
        try:
            data.fingerprint(name, resolved.data.dir)
        except UserError as e:
            return str(e)
    return ""


def with_costs(
    planned: Iterable[Item], root: pathlib.Path, cores: Sequence[int]
) -> list[Item]:
    """Return the sweeps with the costs of their runs, the cheapest first.

    A few steps are measured for all runs that differ in nothing but the seed and the
    learning rate, in a process of its own, and kept in ROOT/costs.json.

    Args:
      planned: the sweeps.
      root: folder of the runs.
      cores: the cores that a run will have.
    """
    path = root / COSTS
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    done = []
    for item in planned:
        seconds = {}
        for run in item.runs:
            flags = [flag for flag in run.command if affects_time(flag)]
            key = f"{item.config} {' '.join(flags)} cores={len(cores)}"
            if key not in known and not run.ended:
                print(f"measuring {key}", flush=True)
                known[key] = _seconds_per_step(item.config, flags, cores)
                root.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(known, indent=1), encoding="utf-8")
            seconds[run.id] = known.get(key, 0.0) * run.total
        done.append(item._replace(seconds=seconds))
    return sorted(done, key=lambda item: sum(item.seconds.values()))


def affects_time(flag):
    """Whether a word of a command is a flag that may change the time of a step."""
    without_effect = ("--config.seed=", "--config.optimizer.learning_rate=")
    return flag.startswith("--config.") and not flag.startswith(without_effect)


def _seconds_per_step(config, flags, cores):
    words = [config, ",".join(map(str, cores)), *flags]
    command = [sys.executable, "-m", "scripts.paper.cost", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise UserError(f"{config} {' '.join(flags)} cannot be measured: {last}")
    return float(done.stdout.split()[-1])
