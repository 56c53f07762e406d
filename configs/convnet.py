"""Convolutional networks (section 6.7): the paper's remark.

    python -m lnrepro.main --config=configs/convnet.py
    python -m lnrepro.main --config=configs/convnet.py:small    MNIST, 3 epochs
    python -m lnrepro.main --config=configs/convnet.py:paper    MNIST, 5 epochs
    ... --config.norm=none | batch | layer  --config.seed=1
    ... --config.layer_norm.statistics=position    over the channels of each position

The default trains on 1,437 small digits inside scikit-learn, in seconds. The paper's
remark names no data, network, optimiser or number: all of it is our choice. The
evaluation "border" draws the statistics of the units near the image border
(artifacts/statistics.png).
"""

from experiments.fields.convnet import FIELDS
from lnrepro.config import Expected, variants
from lnrepro.sweeps import figure_sweeps, small_sweeps

PAPER = {
    "batch_size": 128,
    "epochs": 5.0,
    "data": {"name": "mnist", "train_examples": 55_000},
    "log_every": 43,  # A tenth of an epoch of MNIST.
    "eval_batch_size": 1000,
    "evals": {"valid": "86", "test": "86", "border": "end"},
    "best": {"metric": "valid/error"},
    "curves": (
        ("NLL, nats per image", ("train/nll", "test/nll"), "log"),
        ("test error, fraction", ("test/error",), "linear"),
    ),
}
EMBEDDED = {
    "data": {
        "name": "digits",
        "train_examples": 1437,
        "image": (8, 8),
        "full_ink": 16.0,
    },
    "model": {"channels": (16, 32), "strides": (1, 2)},
    "eval_batch_size": 180,
    "epochs": 30.0,
    "log_every": None,
    "evals": {"valid": "epoch", "test": "epoch"},
}
SMALL = {"epochs": 3.0}
SMOKE = {"model": {"channels": (4, 8)}, "batch_size": 64, "epochs": 2.0}
# The test error of a quarter of the steps is almost as low.
EXPECTED = Expected(
    "train/nll",
    0.05,
    seconds=8,
    measured=(0.0094, 0.0131),
    shuffled=1.79,
    quarter=0.155,
)
VARIANTS = {
    "": (PAPER, EMBEDDED),
    "paper": (PAPER,),
    "small": (PAPER, SMALL),
    "smoke": (PAPER, EMBEDDED, SMOKE),
}
NORMS = ("none", "batch", "layer")
SWEEPS = {
    **figure_sweeps(NORMS, seeds=5, rates=(1e-4, 3e-4, 1e-3, 3e-3, 1e-2)),
    **small_sweeps("small", dict.fromkeys(NORMS, 3e-3), (1e-3, 3e-3, 1e-2), epochs=1.0),
}
get_config = variants("experiments.convnet", VARIANTS, FIELDS)
