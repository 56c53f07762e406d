"""Records of benchmarks: JSON files, the kept ones in docs/benchmarks.


{"benchmark": "cells, lstm", "date": "2026-11-24", "commit": "1a2b3c4",
 "device": "AMD EPYC 7R13", "versions": {"jax": "0.10.2", ...},
 "ratios": {"time, ours LN / Flax LN": 0.58, ...}, "details": ...}
"""

import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax

from lnrepro.engine import json_files, machine, provenance
from lnrepro.errors import UserError
from scripts.paper import ROOT

KEPT = ROOT / "docs/benchmarks"


def write(
    path: pathlib.Path | None,
    benchmark: str,
    ratios: Mapping[str, float],
    details: Any,
    device: str | None = None,
) -> None:
    """Print the ratios, and write a record.

    Args:
      path: the file; None writes none.
      benchmark: its name, with the flags that make its ratios different ones.
      ratios: {name: ratio}.
      details: other numbers, as JSON values.
      device: name of the device, where it is not the one at hand.

    Raises:
      OSError: it cannot be written.
    """
    for name, ratio in ratios.items():
        print(f"- {name}: {ratio:.3f}")
    if path is None:
        return
    record = {
        "benchmark": benchmark,
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "device": device or this_device(),
        "versions": provenance.versions(),
        "ratios": ratios,
        "details": details,
    }
    json_files.write(path, record)


def newest(name: str) -> pathlib.Path:
    """Return the newest kept record of a name, without the date in front of it.

    Raises:
      UserError: there is none.
    """
    found = sorted(KEPT.glob(f"????-??-??-{name}.json"))
    if not found:
        raise UserError(f"{KEPT}: there is no record {name}")
    return found[-1]


def kept(name: str) -> dict[str, Any]:
    """Return the newest kept record of a name.

    Raises:
      UserError: there is none.
    """
    return json.loads(newest(name).read_text(encoding="utf-8"))


def commit() -> str:
    """Return the first letters of the commit's hash, with its "+", see `git_commit`."""
    commit = provenance.git_commit() or "unknown"
    return commit[:7] + commit[40:]


def where() -> str:
    """Return device, version and commit, for the line above a table."""
    return f"{this_device()}, jax {jax.__version__}, commit {commit()}"


def this_device() -> str:
    """Return the name of the device, of a CPU with its number of cores."""
    first = jax.devices()[0]
    if first.platform != "cpu":
        return f"{jax.device_count()} {first.device_kind}"
    return f"{machine.processor()}, {machine.cores()} cores"
