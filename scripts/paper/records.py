"""The records of runs, from run directories and from files that hold several runs.

    python -m scripts.paper.records RUN_OR_FOLDER ... --out SWEEP.runs.jsonl

adds the records of runs that have finished or diverged to a file, which is made where
there is none. Each of its lines is a run: its name and the contents of its config.json
and metrics.jsonl, and of evaluation.json where there is one. The same runs give the
same bytes.
"""

import collections
import json
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments.paper_results import FINGERPRINTS
from lnrepro.config import add_defaults
from lnrepro.engine import json_files, loaded_run, provenance, seeds, workdir
from lnrepro.engine.command_line import Parser
from lnrepro.engine.experiment import total_steps
from lnrepro.errors import UserError, ended
from scripts.paper.axes import Figure, Record

# Files of several runs end in this.
SUFFIX = ".runs.jsonl"


class RecordedRun(NamedTuple):
    """A run as its records tell it.

    Attributes:
      folder: the run directory, or FILE/NAME of a run in a file of several.
      about: the contents of config.json.
      config: the config.
      records: the records of metrics.jsonl.
      data: what the data set is called in figures: its name, with the checksum of the
        examples where other data has the same name.
      evaluation: the contents of evaluation.json; empty where there is none.
      diverged: whether a number of it was not finite.
    """

    folder: pathlib.Path
    about: Mapping[str, Any]
    config: ConfigDict
    records: Sequence[Record]
    data: str
    evaluation: Mapping[str, Any] = {}
    diverged: bool = False

    @property
    def step(self) -> int:
        """The last step on record."""
        return self.records[-1]["step"] if self.records else 0

    @property
    def length(self) -> int:
        """The number of steps that the run shall train; 0 if its config gives none."""
        config = ConfigDict(self.config)
        add_defaults(config)
        # In records of version 0.1, 0 means that steps are not set.
        config.steps = config.steps or None
        if config.steps is None and config.epochs is None:
            return 0
        try:
            return total_steps(config)
        except UserError:
            return 0

    @property
    def finished(self) -> bool:
        """Whether the records reach the last step, with finite numbers."""
        return not self.diverged and 0 < self.length <= self.step

    def name_of(self, metric: str) -> str:
        """Return the name of a metric in this run's records.

        The transfer tasks of generated stories have names of their own: story_sick for
        sick.
        """
        own = f"story_{metric}"
        return own if any(own in record for record in self.records) else metric

    def values(self, metric: str) -> dict[int, list[tuple[Record, float]]]:
        """Return {seed: [(record, value), ...]} of a metric."""
        metric = self.name_of(metric.format(data=self.config.data.name))
        first, count = self.config.seed, self.config.get("seeds", 1)
        # Several seeds of one run have a name each, and their mean has the plain name.
        names = {first: metric}
        if count > 1:
            for seed in range(first, first + count):
                names[seed] = seeds.name_of(metric, seed)
        values = {}
        for seed, name in names.items():
            finite = [r for r in self.records if workdir.is_finite(r.get(name))]
            values[seed] = [(record, record[name]) for record in finite]
        return values


def find(paths: Iterable[pathlib.Path]) -> list[RecordedRun]:
    """Read all runs at and below the given paths.

    A run that cannot be read is named on stderr and left out, as is one that repeats
    another one's config and seed. The folders without-checkpoint-N, where the trainer
    keeps the records of runs that were started again, are left out.

    Args:
      paths: run directories, files of several runs, and folders that contain some.

    Raises:
      UserError: there is none that can be read at or below one of the paths.
    """
    found = {}
    for path in paths:
        there = {
            (run.folder, run.about["data"]["fingerprint"]): run
            for run in _at_and_below(path)
        }
        if not there:
            raise UserError(
                f"{path}: there is no run directory (with a config.json) at or below "
                f"it, and no file of runs (*{SUFFIX})"
            )
        found |= there
    return _without_repeats(_with_distinct_data(list(found.values())))


def _at_and_below(path: pathlib.Path) -> Iterator[RecordedRun]:
    """Yield the runs at and below a path, in the order of their names."""
    if path.is_file() and path.name.endswith(SUFFIX):
        yield from _in_file(path)
        return
    for file in sorted([*path.rglob("config.json"), *path.rglob(f"*{SUFFIX}")]):
        if file.name != "config.json":
            yield from _in_file(file)
            continue
        names = file.parent.relative_to(path).parts
        if any(name.startswith(workdir.SET_ASIDE) for name in names):
            continue
        try:
            yield _in_directory(file.parent)
        except (UserError, OSError) as e:
            print(f"left out: {e}", file=sys.stderr)


def _in_directory(folder):
    loaded = loaded_run.load(folder)
    evaluation = folder / "evaluation.json"
    commits = ", ".join(provenance.commits(folder))
    return RecordedRun(
        folder,
        # A run that was resumed may have several commits.
        {**loaded.about, "git": commits or None},
        loaded.config,
        loaded.metrics,
        loaded.config.data.name,
        (json_files.read_object(evaluation) or {}) if evaluation.exists() else {},
        workdir.is_diverged(folder),
    )


def _in_file(path):
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            files = json.loads(line)
            folder, about = path / files["run"], files["config.json"]
            config = loaded_run.LoadedRun(folder, about).config
            # Read all fields that are used later, so that a missing one is named here.
            _, _, _ = config.experiment, config.norm, about["data"]["fingerprint"]
            yield RecordedRun(
                folder,
                about,
                config,
                files["metrics.jsonl"],
                config.data.name,
                files.get("evaluation.json", {}),
                files.get("diverged", False),
            )
        except json_files.MALFORMED as e:
            reason = f"not the records of a run ({type(e).__name__})"
            print(f"left out: {path}:{number}: {reason}", file=sys.stderr)


def pack(found: Iterable[RecordedRun], path: pathlib.Path) -> None:
    """Write runs to a file, a line for each, in the order of their names."""
    lines = []
    for run in sorted(found, key=_name_and_data):
        files = {"run": run.folder.name, "config.json": run.about}
        files["metrics.jsonl"] = run.records
        if run.evaluation:
            files["evaluation.json"] = run.evaluation
        if run.diverged:
            files["diverged"] = True
        lines.append(json_files.text(files) + "\n")
    json_files.replace(path, "".join(lines))


def _name_and_data(run):
    return run.folder.name, run.about["data"]["fingerprint"]


def _without_repeats(found: list[RecordedRun]) -> list[RecordedRun]:
    """Leave out runs with the data, config and seeds of another; the longest stays."""
    kept: dict[str, RecordedRun] = {}
    for run in found:
        config = run.config
        own = [
            run.data,
            config.norm,
            config.seed,
            config.get("seeds", 1),
            settings(run),
        ]
        other = kept.setdefault(json.dumps(own), run)
        if other is run:
            continue
        less, more = sorted((other, run), key=lambda r: r.step)
        kept[json.dumps(own)] = more
        print(
            f"left out: {less.folder}: the config and the seed of {more.folder}",
            file=sys.stderr,
        )
    return list(kept.values())


def _with_distinct_data(found: list[RecordedRun]) -> list[RecordedRun]:
    """Give different data of the same name different names, by their checksums.

    Only data with the official fingerprint, where that is known, keeps the plain name.
    """
    fingerprints = collections.defaultdict(set)
    for run in found:
        fingerprints[run.data].add(run.about["data"]["fingerprint"])
    named = []
    for run in found:
        fingerprint = run.about["data"]["fingerprint"]
        official = FINGERPRINTS.get(run.data)
        is_ambiguous = len(fingerprints[run.data]) > 1
        # Where no official fingerprint is known, the name alone is enough for a single
        # set of data.
        if fingerprint != official and (official or is_ambiguous):
            checksum = fingerprint.rpartition("/")[2]
            run = run._replace(data=f"{run.data} {checksum[:8]}")
        named.append(run)
    return named


def of_figure(runs: Iterable[RecordedRun], figure: Figure) -> list[RecordedRun]:
    """Return the runs that belong to a figure."""
    chosen = []
    for run in runs:
        config = run.config
        if config.experiment == figure.experiment and config.norm in figure.legends:
            chosen.append(run)
    return chosen


# Fields of a config in which runs may differ and still share a curve. Only records of
# version 0.1 have eval_every, eval_splits and final_splits.
_FREE_FIELDS = {
    "seed",
    "seeds",
    "norm",
    "steps",
    "epochs",
    "steps_per_call",
    "placement",
    "pallas",
    "mesh",
    "best",
    "curves",
    "evals",
    "log_every",
    "eval_every",
    "save_every",
    "eval_batch_size",
    "eval_splits",
    "final_splits",
}


def settings(run: RecordedRun) -> dict[str, str]:
    """Return the fields of a run's config, as {dotted name: JSON}.

    Runs share a curve where all of them are equal. Fields such as the seed and the norm
    are left out.
    """
    found = {}

    def walk(prefix, fields):
        for name, value in fields.items():
            if isinstance(value, Mapping):
                walk(f"{prefix}{name}.", value)
            # None means not set, as does a field that an earlier version did not have.
            elif value is not None:
                found[prefix + name] = json.dumps(value)

    config = run.about["config"]
    walk("", {name: config[name] for name in config if name not in _FREE_FIELDS})
    return found


def main(argv: Sequence[str]) -> None:
    """Add the records of runs that have ended to a file.

    Raises:
      UserError: a wrong flag, or a path without runs.
    """
    parser = Parser(prog="python -m scripts.paper.records", description=__doc__)
    add = parser.add_argument
    add(
        "runs", nargs="+", type=pathlib.Path, help="run directories, or folders of some"
    )
    add("--out", required=True, type=pathlib.Path, metavar="FILE", help=f"*{SUFFIX}")
    args = parser.parse_args(argv)
    if not args.out.name.endswith(SUFFIX):
        parser.error(f"--out {args.out}: a name that ends in {SUFFIX} is needed")
    kept = [args.out] if args.out.exists() else []
    packed = []
    for run in find([*kept, *args.runs]):
        if run.finished or run.diverged:
            packed.append(run)
        else:
            print(f"left out: {run.folder}: it is not finished", file=sys.stderr)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    pack(packed, args.out)
    print(f"{len(packed)} runs are in {args.out}")


if __name__ == "__main__":
    ended(main, "packing records")
