"""Handwriting synthesis (section 6.5, Figure 5): pen strokes that write a given text.

    python -m lnrepro.main --config=configs/handwriting.py        generated pen strokes
    python -m lnrepro.main --config=configs/handwriting.py:small    IAM-OnDB, 17 minutes
    python -m lnrepro.main --config=configs/handwriting.py:paper    IAM-OnDB
    ... --config.norm=none | layer_cell | layer  --config.model.peephole=True
    python scripts/write_handwriting.py --workdir=RUN --text="layer norm"

The paper gives three LSTMs of 400 units, 20 Gaussians, a window of 10 over 57 symbols,
batches of 8, sequences of 500 steps and Adam. It does not give the learning rate, the
clipping (chosen by measurement, for both variants: docs/experiments/handwriting.md)
or the number of updates (Figure 5 ends at 200,000). Peepholes are Graves'; he
also clips derivatives at 10 and 100.

The default writes generated lines of short words (`generated_strokes`) with a smaller
network. Nothing else can be compared with its likelihoods.
"""

from experiments.fields.handwriting import FIELDS
from lnrepro.config import SMOKE_STEPS, Expected, variants
from lnrepro.sweeps import figure_sweeps, small_sweeps

PAPER = {
    "batch_size": 8,
    "steps": 200_000,
    "data": {"name": "iam_ondb", "train_examples": 10_741},
    "optimizer": {"clip": 10.0},
    "log_every": 20,
    "save_every": 1000,
    "eval_batch_size": 64,
    "evals": {"valid": "1000", "final": "end"},
    "best": {"metric": "valid/nll"},
    # In units of 200 updates, as in Figure 5.
    "curves": (
        (
            "negative log likelihood, nats per sequence",
            ("valid/nll", "train/nll"),
            "linear",
            200,
        ),
    ),
}
EMBEDDED = {
    "data": {"name": "generated_strokes", "train_examples": 3000},
    "model": {
        "units": 128,
        "gaussians": 8,
        "window_gaussians": 4,
        "steps": 160,
        "characters": 20,
        "kappa_bias": -2.3,  # A character of these lines takes ten steps.
    },
    "optimizer": {"learning_rate": 3e-3, "clip": 1000.0},
    "batch_size": 16,
    "steps": 1500,
    "save_every": 250,
    "evals": {"valid": "250"},
    "eval_examples": 100,
}
# IAM-OnDB with half the units, and lines cut after 300 steps.
SMALL = {
    "model": {"units": 200, "steps": 300},
    "steps": 4000,
    "save_every": 200,
    "evals": {"valid": "200"},
    "eval_examples": 640,
}
SMOKE = {
    "model": {"units": 8, "gaussians": 3, "window_gaussians": 2, "steps": 30},
    "evals": {"valid": "2"},
    "eval_examples": 10,
    "samples": {"steps": 20},
}
EXPECTED = Expected(
    "valid/nll",
    -300.0,
    seconds=99,
    measured=(-445.9, -391.4),
    shuffled=232.0,
    quarter=-241.0,
)
VARIANTS = {
    "": (PAPER, EMBEDDED),
    "paper": (PAPER,),
    "small": (PAPER, SMALL),
    "smoke": (PAPER, EMBEDDED, SMOKE_STEPS, SMOKE),
}
NORMS = ("none", "layer")
SWEEPS = {
    **figure_sweeps(NORMS, seeds=3, rates=(3e-4, 1e-3, 3e-3)),
    # The tries cannot tell 3e-3 and 1e-2 apart for layer norm. Runs of the whole length
    # with seeds 0 and 1 can: docs/log.md, 2026-11-25.
    **small_sweeps(
        "small", {"none": 1e-2, "layer": 3e-3}, (1e-3, 3e-3, 1e-2), steps=1300
    ),
}
get_config = variants("experiments.handwriting", VARIANTS, FIELDS)
