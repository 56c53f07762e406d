"""Name the best learning rate of each norm, from the records of runs.

    python -m scripts.paper.rates RUN_OR_FOLDER ...

    python scripts/sweep.py configs/draw.py:small --name small_rates
    python -m scripts.paper.rates runs/draw/small

Runs of the same length are compared by where they end, in the metric of the plan's
question about them. A rate at which runs diverge comes after those at which fewer do.
"""

import collections
import pathlib
from collections.abc import Iterable, Sequence

from lnrepro.engine.command_line import Parser
from lnrepro.errors import run_script
from scripts import markdown as md
from scripts.paper import ends
from scripts.paper.claims import CLAIMS, PLAN, Claim
from scripts.paper.ends import End
from scripts.paper.records import RecordedRun, find


def by_norm(
    runs: Iterable[RecordedRun],
) -> dict[tuple[Claim, str, int, str], list[End]]:
    """Return the ends of each rate, the best first.

    The keys are the claim whose metric is compared, the data set, the number of steps
    and the norm.

    Args:
      runs: the runs; those that have not ended are left out.
    """
    claims = [*(question.claim for question in PLAN), *CLAIMS]
    groups = collections.defaultdict(list)
    for run in runs:
        about = [claim for claim in claims if claim.is_about(run)]
        if about and run.ended:
            norm = run.config.norm
            groups[about[0], run.data, run.length, norm, run.rate].append(run)
    found = collections.defaultdict(list)
    for (claim, *of_norm, _), own in groups.items():
        if end := ends.of_seeds(own, claim):
            found[claim, *of_norm].append(end)
    return {key: ends.ranked(of, key[0].sign) for key, of in found.items()}


def main(argv: Sequence[str]) -> None:
    """Print the rates of each norm, the best first.

    Raises:
      UserError: a wrong flag, or a path without runs.
    """
    parser = Parser(prog="python -m scripts.paper.rates", description=__doc__)
    parser.add_argument("runs", nargs="+", type=pathlib.Path, help="run directories")
    rows = []
    for key, found in by_norm(find(parser.parse_args(argv).runs)).items():
        claim, data, length, norm = key
        texts = [f"{end.rate:g} ({end.text})" for end in found]
        about = claim.experiment, data, f"{length:,}", norm, claim.quantity
        rows.append((*about, "; ".join(texts)))
    head = ("experiment", "data", "steps", "norm", "metric", "rates, the best first")
    print(md.table(head, sorted(rows)))


if __name__ == "__main__":
    run_script(main, "comparing learning rates")
