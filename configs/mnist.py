"""Permutation-invariant MNIST (section 6.6, Figure 6): 784-1000-1000-10.

    python -m lnrepro.main --config=configs/mnist.py
    python -m lnrepro.main --config=configs/mnist.py:small       18 of 60 epochs
    python -m lnrepro.main --config=configs/mnist.py:small_bz4   6 of 60 epochs
    python -m lnrepro.main --config=configs/mnist.py:paper       batch size 128, left
    python -m lnrepro.main --config=configs/mnist.py:paper_bz4   batch size 4, right
    ... --config.norm=none | layer | batch  --config.seed=1

The default trains on 1,437 small digits inside scikit-learn, in seconds. The paper
gives sizes, batch sizes and Adam. The learning rate, the non-linearity (ReLU) and the
initialisation are common defaults.
"""

from experiments.fields.mnist import FIELDS
from lnrepro.config import Expected, variants
from lnrepro.sweeps import figure_sweeps, small_sweeps

PAPER = {
    "batch_size": 128,
    "epochs": 60.0,
    "steps_per_call": 11,  # An epoch has 429 = 39 * 11 steps.
    "data": {"name": "mnist", "train_examples": 55_000},
    # Five epochs: a save costs as much as ten steps.
    "save_every": 2145,
    "eval_batch_size": 1000,
    "evals": {"valid": "epoch", "test": "epoch"},
    "best": {"metric": "valid/error"},
    "curves": (
        ("NLL, nats per image", ("train/nll", "test/nll"), "log"),
        ("test error, fraction", ("test/error",), "linear"),
    ),
}
BATCHES_OF_4 = {
    "batch_size": 4,
    "steps_per_call": 50,
    # The paper: "the variance term for BN is computed using the unbiased estimator".
    "batch_norm": {"unbiased": True},
    "save_every": 13_750,
}
EMBEDDED = {
    "data": {
        "name": "digits",
        "train_examples": 1437,
        "features": 64,
        "full_ink": 16.0,
    },
    "eval_batch_size": 180,
    "epochs": 20.0,
    "save_every": None,
}
# An evaluation every third of an epoch, or every fifth.
SMALL = {
    "epochs": 18.0,
    "log_every": 143,
    "evals": {"valid": "143", "test": "143"},
}
SMALL_BATCHES_OF_4 = {
    "epochs": 6.0,
    "log_every": 2750,
    "evals": {"valid": "2750", "test": "2750"},
}
SMOKE = {"model": {"hidden": (32, 32)}, "batch_size": 64, "epochs": 2.0}
# The test error of a quarter of the steps is as low.
EXPECTED = Expected(
    "train/nll",
    0.003,
    seconds=6,
    measured=(0.00028, 0.00035),
    shuffled=0.749,
    quarter=0.0116,
)
VARIANTS = {
    "": (PAPER, EMBEDDED),
    "paper": (PAPER,),
    "paper_bz4": (PAPER, BATCHES_OF_4),
    "small": (PAPER, SMALL),
    "small_bz4": (PAPER, BATCHES_OF_4, SMALL_BATCHES_OF_4),
    "smoke": (PAPER, EMBEDDED, SMOKE),
}
NORMS = ("none", "batch", "layer")
SWEEPS = {
    **figure_sweeps(NORMS, seeds=5, rates=(1e-4, 3e-4, 1e-3, 3e-3, 1e-2)),
    **small_sweeps(
        "small",
        {"none": 1e-3, "batch": 3e-4, "layer": 1e-3},
        (3e-4, 1e-3, 3e-3),
        epochs=6.0,
    ),
    **small_sweeps(
        "small_bz4",
        {"none": 1e-4, "batch": 3e-4, "layer": 1e-3},
        (1e-4, 3e-4, 1e-3),
        epochs=2.0,
    ),
}
get_config = variants("experiments.mnist", VARIANTS, FIELDS)
