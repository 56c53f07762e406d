"""The ratios of benchmarks over commits, as a picture."""

import argparse
import collections
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from lnrepro.errors import UserError
from scripts.benches.records import FIELDS, FOLDER


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `history`."""
    parser.add_argument(
        "records",
        nargs="*",
        type=pathlib.Path,
        default=[FOLDER],
        help=f"records, or folders of them; {FOLDER} by default",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=FOLDER / "history.png",
        help="the picture",
    )


def main(args: argparse.Namespace) -> int:
    """Draw the ratios of all records: a panel for each benchmark and device.

    Returns:
      0.

    Raises:
      UserError: there is no record, or a file is none.
    """
    records = read(args.records)
    panels = collections.defaultdict(list)
    for record in records:
        panels[f"{record['benchmark']}\n{record['device']}"].append(record)
    draw(panels, args.out)
    print(f"{len(records)} records of {len(panels)} benchmarks, in {args.out}")
    return 0


def read(paths: Iterable[pathlib.Path]) -> list[dict[str, Any]]:
    """Read records, the oldest first.

    Args:
      paths: files, or folders whose .json files are read.

    Raises:
      UserError: there is no record, or a file is none.
    """
    files = []
    for path in paths:
        files += sorted(path.rglob("*.json")) if path.is_dir() else [path]
    records = []
    for file in files:
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            missing = [name for name in FIELDS if name not in record]
        except (OSError, ValueError, TypeError) as e:
            raise UserError(f"{file}: not a record of a benchmark ({e})") from None
        if missing:
            raise UserError(
                f"{file}: not a record of a benchmark, it has no {missing[0]!r}"
            )
        records.append(record)
    if not records:
        raise UserError(
            f"there is no record in {', '.join(map(str, paths))}; write one with "
            "python scripts/bench.py cells --json FILE"
        )
    # Records of one day stay in the order of their names.
    return sorted(records, key=lambda record: record["date"])


def draw(panels: Mapping[str, list[dict[str, Any]]], out: pathlib.Path) -> None:
    """Draw a panel for each benchmark: a line for each ratio, over its commits.

    Args:
      panels: {title: its records, the oldest first}.
      out: the picture.

    Raises:
      OSError: it cannot be written.
    """
    import matplotlib

    # The backend Agg draws without a display.
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(
        len(panels),
        figsize=(9, 3.4 * len(panels)),
        squeeze=False,
        layout="constrained",
    )
    for ax, (title, records) in zip(axes[:, 0], panels.items(), strict=True):
        names = {}
        for record in records:
            names |= dict.fromkeys(record["ratios"])
        for name in names:
            # NaN leaves a gap where a record does not have this ratio.
            values = [record["ratios"].get(name, float("nan")) for record in records]
            ax.plot(range(len(records)), values, marker=".", label=name)
        labels = [f"{record['commit']}\n{record['date']}" for record in records]
        ax.set_xticks(range(len(records)), labels, fontsize=7)
        ax.set(title=title, ylabel="ratio", ylim=(0, None))
        ax.axhline(1, color="grey", linewidth=0.8)
        ax.grid(alpha=0.3)
        # Steps on several chips are compared with none, and have no ratios.
        if names:
            ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7)
    out.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(out, dpi=110)
    plt.close(fig)
