"""MNIST read pixel by pixel: an LSTM over 784 steps. Not in the paper.

    python -m lnrepro.main --config=configs/sequential_mnist.py          8x8 digits
    python -m lnrepro.main --config=configs/sequential_mnist.py:small    MNIST
    ... --config.norm=none | layer | rms  --config.seed=1

The default reads the 64 pixels of scikit-learn's digits. `:small` reads MNIST's 784.
An embedding of each pixel, one LSTM of 64 units with a forget bias of 1 (Jozefowicz et
al., 2015), Adam, and gradients clipped to a norm of 1: all of it is our choice.
"""

from experiments.fields.sequential_mnist import FIELDS
from lnrepro.config import SMOKE_STEPS, Expected, variants
from lnrepro.sweeps import figure_sweeps, small_sweeps

SMALL = {
    "batch_size": 128,
    "steps": 1200,
    "data": {"name": "mnist", "train_examples": 55_000},
    "optimizer": {"clip": 1.0},
    "log_every": 40,
    "save_every": 120,
    "eval_batch_size": 1000,
    "evals": {"valid": "120", "test": "120"},
    "best": {"metric": "valid/error"},
    "curves": (
        ("NLL, nats per image", ("train/nll", "test/nll"), "linear"),
        ("test error, fraction", ("test/error",), "linear"),
    ),
}
EMBEDDED = {
    "data": {
        "name": "digits",
        "train_examples": 1437,
        "features": 64,
        "full_ink": 16.0,
    },
    "batch_size": 64,
    "steps": 660,
    "log_every": 22,
    "save_every": 110,
    "eval_batch_size": 180,
    "evals": {"valid": "110", "test": "110"},
}
# Only the default.
DEFAULT = {
    "optimizer": {"learning_rate": 3e-3, "decay": "cosine"},
    "batch_size": 32,
    "steps": 880,
}
SMOKE = {
    "model": {"units": 8},
    "evals": {"valid": "2", "test": "2"},
}
EXPECTED = Expected(
    "valid/error",
    0.28,
    seconds=25,
    measured=(0.106, 0.2),
    shuffled=0.9,
    quarter=0.378,
)
VARIANTS = {
    "": (SMALL, EMBEDDED, DEFAULT),
    "small": (SMALL,),
    "smoke": (SMALL, EMBEDDED, SMOKE_STEPS, SMOKE),
}
NORMS = ("none", "layer", "rms")
# On MNIST, 3e-3 is the better of 1e-3 and 3e-3: docs/should-i-normalise.md.
SWEEPS = {
    **figure_sweeps(NORMS, seeds=3, rates=(1e-3, 3e-3, 1e-2)),
    **small_sweeps("small", dict.fromkeys(NORMS, 3e-3), (1e-3, 3e-3, 1e-2)),
}
get_config = variants("experiments.sequential_mnist", VARIANTS, FIELDS)
