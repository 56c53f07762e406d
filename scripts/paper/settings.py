"""The settings of each experiment: the paper's, its code's, ours and the best ones."""

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from scripts import markdown as md
from scripts.paper import protocols
from scripts.paper.claims import NORMS
from scripts.paper.records import RecordedRun


class Source(NamedTuple):
    """What the paper and its code say of an experiment.

    Attributes:
      experiment: name of the folder in experiments/.
      section: of the paper.
      text: the paper's settings. What is not named is not in the text.
      code: the settings of the authors' code, or of the code that they extended; ""
        where there is none.
      start: the initial values that `:paper` takes.
    """

    experiment: str
    section: str
    text: str
    code: str
    start: str


SOURCES = (
    Source(
        "order_embeddings",
        "6.1",
        "Adam; the rest as Vendrov et al.",
        "Adam 0.001 without bias correction, batch 128, clip 2 per tensor, 100 epochs",
        "recurrent: orthogonal; others: uniform",
    ),
    Source(
        "attentive_reader",
        "6.2",
        "as Cooijmans et al.: clip 10",
        "Adam 8e-05, batch 64; the clip sets in at a norm of 100",
        "orthogonal times 0.05; others: uniform",
    ),
    Source(
        "skip_thoughts",
        "6.3",
        "as the public code; 1,000,000 steps",
        "Adam 0.0002 without bias correction, batch 64, clip 5",
        "recurrent: orthogonal; others: uniform",
    ),
    Source(
        "draw",
        "6.4",
        "Adam, default; batch 128; 200 epochs",
        "",
        "LSTM: LeCun; others: normal, 0.01",
    ),
    Source(
        "handwriting",
        "6.5",
        "Adam, batch 8",
        "",
        "recurrent: orthogonal; LSTM: Glorot; others: normal, 0.075",
    ),
    Source("mnist", "6.6", "Adam, batch 128 and 4", "", "LeCun"),
    Source("convnet", "6.7", "", "", "LeCun"),
)
HEAD = (
    "section",
    "the paper's text",
    "the authors' code",
    "`:paper`",
    "initial values",
    "best rates, `:small`",
)


def table(runs: Sequence[RecordedRun]) -> str:
    """Return the table of settings.

    Args:
      runs: runs of `:small`. Their rates are the best ones of each norm.
    """
    rows = []
    for source in SOURCES:
        config = importlib.import_module(f"configs.{source.experiment}")
        paper = ", ".join(_settings(config.get_config("paper")))
        own = [run for run in runs if run.experiment == source.experiment]
        best = "; ".join(_best(own))
        rows.append(
            (source.section, source.text, source.code, paper, source.start, best)
        )
    return f"{md.table(HEAD, rows)}\n"


def _settings(config: ConfigDict) -> Iterator[str]:
    """Yield the settings of a config in words."""
    adam: Any = config.optimizer
    kind = " without bias correction" if adam.name == "kiros_adam" else ""
    yield f"Adam {adam.learning_rate:g}{kind}"
    yield f"batch {config.batch_size}"
    if adam.clip:
        per_tensor = " per tensor" if adam.clip_mode == "per_tensor" else ""
        yield f"clip {adam.clip:g}{per_tensor}"
    yield f"{config.steps:,} steps" if config.steps else f"{config.epochs:g} epochs"


def _best(runs: Sequence[RecordedRun]) -> Iterator[str]:
    """Yield each norm with its own rate, by batch size."""
    tuned = [run for run in runs if protocols.belongs(run, protocols.TUNED)]
    sizes = sorted({run.config.batch_size for run in tuned}, reverse=True)
    for size in sizes:
        rates = {r.config.norm: r.rate for r in tuned if r.config.batch_size == size}
        of_norms = [f"{NORMS[norm]} {rate:g}" for norm, rate in rates.items()]
        note = f" (batch {size})" if len(sizes) > 1 else ""
        yield ", ".join(of_norms) + note
