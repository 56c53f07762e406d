"""The settings of each experiment: the paper's, its code's, ours and the best ones."""

import importlib
from collections.abc import Iterator

from ml_collections import ConfigDict

from scripts import markdown as md
from scripts.paper import protocols
from scripts.paper.claims import NORMS

# What the paper and its code say of each experiment: the section; the settings in the
# text, where what is not named is not in the text; those of the authors' code, or of
# the code that they extended, "" where there is none; the initial values of `:paper`.
SOURCES = {
    "order_embeddings": (
        "6.1",
        "Adam; the rest as Vendrov et al.",
        "Adam 0.001 without bias correction, batch 128, clip 2 per tensor, 100 epochs",
        "recurrent: orthogonal; others: uniform",
    ),
    "attentive_reader": (
        "6.2",
        "as Cooijmans et al.: clip 10",
        "Adam 8e-05, batch 64; the clip sets in at a norm of 100",
        "orthogonal times 0.05; others: uniform",
    ),
    "skip_thoughts": (
        "6.3",
        "as the public code; 1,000,000 steps",
        "Adam 0.0002 without bias correction, batch 64, clip 5",
        "recurrent: orthogonal; others: uniform",
    ),
    "draw": (
        "6.4",
        "Adam, default; batch 128; 200 epochs",
        "",
        "LSTM: LeCun; others: normal, 0.01",
    ),
    "handwriting": (
        "6.5",
        "Adam, batch 8",
        "",
        "recurrent: orthogonal; LSTM: Glorot; others: normal, 0.075",
    ),
    "mnist": ("6.6", "Adam, batch 128 and 4", "", "LeCun"),
    "convnet": ("6.7", "", "", "LeCun"),
}
HEAD = (
    "section",
    "the paper's text",
    "the authors' code",
    "`:paper`",
    "initial values",
    "best rates, `:small`",
)


def table() -> str:
    """Return the table of settings."""
    rows = []
    for experiment, (section, text, code, start) in SOURCES.items():
        config = importlib.import_module(f"configs.{experiment}")
        paper = ", ".join(_settings(config.get_config("paper")))
        rows.append((section, text, code, paper, start, _best(experiment)))
    return md.table(HEAD, rows)


def _settings(config: ConfigDict) -> Iterator[str]:
    """Yield the settings of a config in words."""
    adam = config.optimizer
    kind = " without bias correction" if adam.name == "kiros_adam" else ""
    yield f"Adam {adam.learning_rate:g}{kind}"
    yield f"batch {config.batch_size}"
    if adam.clip:
        per_tensor = " per tensor" if adam.clip_mode == "per_tensor" else ""
        yield f"clip {adam.clip:g}{per_tensor}"
    yield f"{config.steps:,} steps" if config.steps else f"{config.epochs:g} epochs"


def _best(experiment: str) -> str:
    """Return the norms with their own rates, by batch size where there are two."""
    found = []
    for sweep in ("small", "small_bz4"):
        rates = sorted(protocols.stated_rates(experiment, sweep).items())
        found.append(", ".join(f"{NORMS[norm]} {rate:g}" for norm, rate in rates))
    of_128, of_4 = found
    return f"{of_128} (batch 128); {of_4} (batch 4)" if of_4 else of_128
