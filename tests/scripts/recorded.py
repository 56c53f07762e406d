"""Recorded runs that no training made."""

import pathlib

from experiments.paper_results import FINGERPRINTS
from scripts.paper.records import RecordedRun, of_files


def files_of(experiment, norm, seed, values, data="binarized_mnist", **config):
    """The files of a run; the `values` are records without epoch and data."""
    own = FINGERPRINTS.get(data, f"{data}/1.0.0/abc")
    fingerprint = config.pop("fingerprint", own)
    fixed = {"experiment": experiment, "norm": norm, "seed": seed}
    fixed |= {"batch_size": 128, "steps": 10_000, "data": {"name": data}}
    about = {"config": fixed | config, "data": {"fingerprint": fingerprint}}
    records = [{"epoch": 1.0, "data": data} | record for record in values]
    return {"config.json": about | {"git": "0123456"}, "metrics.jsonl": records}


def recorded(*run, **config) -> RecordedRun:
    """The run of `files_of`."""
    return of_files(pathlib.Path("run"), files_of(*run, **config))
