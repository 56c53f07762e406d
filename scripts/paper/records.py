"""The records of runs, from run directories and from files that hold several runs.

    python -m scripts.paper.records RUN_OR_FOLDER ... --out SWEEP.runs.jsonl

adds the records of runs that have finished or diverged to a file, which is made where
there is none. Each of its lines is a run: its name and the contents of its config.json
and metrics.jsonl, and of evaluation.json where there is one. Metrics have eight
significant digits, about as fine as a float32. The same runs give the same bytes.
"""

import collections
import json
import math
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments.paper_results import FINGERPRINTS
from lnrepro.config import flat
from lnrepro.engine import json_files, loaded_run, provenance, run_config, workdir
from lnrepro.engine.command_line import Parser
from lnrepro.engine.experiment import total_steps
from lnrepro.errors import UserError, run_script
from lnrepro.folders import files_below

# Files of several runs end in this.
SUFFIX = ".runs.jsonl"
# Fields of a config in which runs may differ and still share a curve. The length is
# compared in steps, and the data by its fingerprint.
FREE_FIELDS = re.compile(
    "(seeds?|norm|steps|epochs|steps_per_call|placement|kernels|pallas|mesh|best|"
    r"curves|evals|(log|save)_every|eval_batch_size|data\.(dir|train_examples))(\..*)?"
)
# The setting that each norm has a value of its own of under the protocol "tuned".
RATE = "optimizer.learning_rate"
# Fields that configs do not have, but kept records do, with the JSON of the value that
# stands for what the code does.
GONE_FIELDS = {
    "data.dev_words": "false",
    "data.too_long": '"refuse"',
    "data.unanswerable": '"keep"',
    "evaluation.ties": '"last"',
    "layer_norm.gain_per_unit": "false",
    "model.attention": "true",
    "model.batch_norm_rows": '"words"',
    "model.bidirectional": "false",
    "model.condition": "false",
    "model.decoders_together": "false",
    "model.dropout_scaling": '"train"',
    "permute_entities": '"training"',
}
Record = Mapping[str, Any]
# (dotted name, JSON of the value) of each field of a config that runs of a curve share.
Settings = tuple[tuple[str, str], ...]


class RecordedRun(NamedTuple):
    """A run as its records tell it.

    Attributes:
      folder: the run directory, or FILE/NAME of a run in a file of several.
      files: a line of a file of several: the contents of its files by their names.
      config: the config.
      experiment: config.experiment, such as mine.rnn; of those of the paper, such as
        draw.
      norm: the norm.
      seed: the seed.
      data: what the data set is called in figures: its name, with the checksum of the
        examples where other data has the same name.
      fingerprint: the fingerprint of its data.
      batch_size: the size of its batches, None if its config has none.
      rate: the learning rate, None if its config has none.
      length: the number of steps that the run shall train.
      records: the records of metrics.jsonl.
      diverged: whether a number of it was not finite.
    """

    folder: pathlib.Path
    files: Mapping[str, Any]
    config: ConfigDict
    experiment: str
    norm: str
    seed: int
    data: str
    fingerprint: str
    batch_size: int | None
    rate: float | None
    length: int
    records: Sequence[Record]
    diverged: bool

    @property
    def step(self) -> int:
        """The last step on record."""
        return self.records[-1]["step"] if self.records else 0

    @property
    def finished(self) -> bool:
        """Whether the records reach the last step, with finite numbers."""
        return not self.diverged and 0 < self.length <= self.step

    @property
    def ended(self) -> bool:
        """Whether it has finished or diverged."""
        return self.finished or self.diverged

    def settings(self, but: str = "") -> Settings:
        """Return settings and length. Runs share a curve where they are equal.

        Args:
          but: a setting that is left out.
        """
        found = [("steps", str(self.length))]
        for name, value in flat(self.config).items():
            text = json.dumps(value)
            # None means not set, as does a field that an earlier version did not have.
            is_set = value is not None and GONE_FIELDS.get(name) != text
            if is_set and name != but and not FREE_FIELDS.fullmatch(name):
                found.append((name, text))
        return tuple(found)

    def name_of(self, metric: str) -> str:
        """Return the name of a metric in this run's records.

        The transfer tasks of generated stories have names of their own: story_sick for
        sick. In records of earlier versions the bounds of DRAW end with the data set.
        """
        for name in (f"story_{metric}", f"{metric}_{self.config.data.name}"):
            if any(name in record for record in self.records):
                return name
        return metric

    def values(self, metric: str) -> list[tuple[Record, float]]:
        """Return the records that have a finite value of a metric, with the value."""
        name = self.name_of(metric)
        return [(r, r[name]) for r in self.records if _is_finite(r.get(name))]

    def curve(self, metric: str) -> dict[int, float]:
        """Return {step: value} of a metric."""
        return {record["step"]: value for record, value in self.values(metric)}


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def difference(own: Settings, others: Iterable[Settings]) -> str:
    """Return the settings of `own` that not all others have, as text."""
    shared, words = set(own).intersection(*others), []
    for name, value in own:
        if (name, value) not in shared:
            words.append(f"{name.rpartition('.')[2]} {value}")
    return ", ".join(words)


def find(paths: Iterable[pathlib.Path]) -> list[RecordedRun]:
    """Read all runs at and below the given paths.

    A run that cannot be read is named on stderr and left out, as is one that repeats
    another one's config and seed.

    Args:
      paths: run directories, files of several runs, and folders that contain some.

    Raises:
      UserError: there is none that can be read at or below one of the paths.
    """
    return _without_repeats(_with_distinct_data(_read(paths)))


def _read(paths) -> list[RecordedRun]:
    """Read the runs of `find`, with those that repeat another one."""
    found = []
    for path in paths:
        there = list(_at_and_below(path))
        if not there:
            raise UserError(
                f"{path}: there is no run directory (with a config.json) at or below "
                f"it, and no file of runs (*{SUFFIX})"
            )
        found += there
    return found


def _at_and_below(path, needs_all=False) -> Iterator[RecordedRun]:
    """Yield the runs at and below a path that can be read, in the order of names.

    Raises:
      UserError: one cannot be read, and all are needed.
    """
    for file in [path] if path.is_file() else files_below(path):
        lines = [None] if file.name == "config.json" else []
        if file.name.endswith(SUFFIX):
            lines = file.read_text("utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                if line is None:
                    yield of_files(file.parent, _files(file.parent))
                else:
                    files = json.loads(line)
                    yield of_files(file / files["run"], files)
            # A run of another version may lack fields.
            except (UserError, OSError, *json_files.MALFORMED) as e:
                where = file if line is None else f"{file}:{number}"
                reason = f"{type(e).__name__}: {e}"
                if needs_all:
                    raise UserError(f"{where}: {reason}; mend or remove it") from None
                print(f"left out: {where}: {reason}", file=sys.stderr)


def of_files(folder: pathlib.Path, files: Mapping[str, Any]) -> RecordedRun:
    """Return a run.

    Args:
      folder: where it is.
      files: the contents of its files by their names.

    Raises:
      UserError: it has no number of steps.
    """
    about = files["config.json"]
    config = run_config.from_json(about["config"])
    return RecordedRun(
        folder=folder,
        files=files,
        config=config,
        experiment=str(config.experiment).removeprefix("experiments."),
        norm=config.norm,
        seed=config.seed,
        data=config.data.name,
        fingerprint=about["data"]["fingerprint"],
        batch_size=config.get("batch_size"),
        rate=config.get("optimizer", {}).get("learning_rate"),
        length=total_steps(config),
        records=files["metrics.jsonl"],
        diverged=files.get("diverged", False),
    )


def _files(folder) -> dict[str, Any]:
    """Return the contents of a run directory, as a line of a file has them."""
    loaded = loaded_run.load(folder)
    # A run that was resumed may have several commits.
    about = {**loaded.about, "git": ", ".join(provenance.commits(folder)) or None}
    files = {"run": folder.name, "config.json": about, "metrics.jsonl": loaded.metrics}
    evaluation = folder / "evaluation.json"
    if evaluation.exists():
        files["evaluation.json"] = json.loads(evaluation.read_bytes())
    if workdir.ended(folder) == "diverged":
        files["diverged"] = True
    return files


def _without_repeats(found) -> list[RecordedRun]:
    """Leave out runs with the data, config and seed of another.

    A finished run stays, then one that diverged, then the longest.
    """
    kept = {}
    for run in found:
        key = run.data, run.norm, run.seed, run.settings()
        less, more = sorted((kept.get(key, run), run), key=_progress)
        # A run may be below two of the paths.
        if less.folder != more.folder:
            reason = f"the config and the seed of {more.folder}"
            print(f"left out: {less.folder}: {reason}", file=sys.stderr)
        kept[key] = more
    return list(kept.values())


def _progress(run):
    return run.finished, run.diverged, run.step


def _with_distinct_data(found) -> Iterator[RecordedRun]:
    """Give different data of the same name different names, by their checksums.

    Only data with the official fingerprint, where that is known, keeps the plain name.
    """
    fingerprints = collections.defaultdict(set)
    for run in found:
        fingerprints[run.data].add(run.fingerprint)
    # Where no official fingerprint is known, the name alone is enough for a single set
    # of data.
    for name, official in FINGERPRINTS.items():
        fingerprints[name] = {official}
    for run in found:
        if {run.fingerprint} != fingerprints[run.data]:
            checksum = run.fingerprint.rpartition("/")[2]
            run = run._replace(data=f"{run.data} {checksum[:8]}")
        yield run


def _with_short_metrics(files) -> dict[str, Any]:
    records = [
        {k: float(f"{v:.8g}") if isinstance(v, float) else v for k, v in record.items()}
        for record in files["metrics.jsonl"]
    ]
    return {**files, "metrics.jsonl": records}


def main(argv: Sequence[str]) -> None:
    """Add the records of runs that have ended to a file.

    Raises:
      UserError: a wrong flag, a path without runs, or a line of the file that is no
        run.
    """
    parser = Parser(prog="python -m scripts.paper.records", description=__doc__)
    parser.add_argument("runs", nargs="+", type=pathlib.Path, help="run directories")
    parser.add_argument("--out", required=True, type=pathlib.Path, help=f"*{SUFFIX}")
    args = parser.parse_args(argv)
    if not args.out.name.endswith(SUFFIX):
        parser.error(f"--out {args.out}: a name that ends in {SUFFIX} is needed")
    # What cannot be read would be lost.
    found = list(_at_and_below(args.out, needs_all=True)) if args.out.exists() else []
    for run in _read(args.runs):
        if run.ended:
            found.append(run)
        else:
            print(f"left out: {run.folder}: it is not finished", file=sys.stderr)
    found = _without_repeats(_with_distinct_data(found))
    # A line for each, in the order of their names.
    found.sort(key=lambda run: (run.folder.name, run.fingerprint))
    lines = [f"{json_files.text(_with_short_metrics(run.files))}\n" for run in found]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    json_files.replace(args.out, "".join(lines))
    print(f"{len(lines)} runs are in {args.out}")


if __name__ == "__main__":
    run_script(main, "packing records")
