"""DRAW (section 6.4, Figure 4): images drawn in glimpses by two LSTMs.

    python -m lnrepro.main --config=configs/draw.py          scikit-learn's digits
    python -m lnrepro.main --config=configs/draw.py:small    binarised MNIST, 4 minutes
    python -m lnrepro.main --config=configs/draw.py:paper    binarised MNIST
    ... --config.norm=none | weight | layer_cell | layer

The paper gives 64 glimpses, 256 units, Adam "with default setting" and batches of 128.
Read 2x2, write 5x5 and 100 latents are the DRAW paper's (Table 3). Learning rate,
clipping and initial scales were chosen by measurement, for all variants together:
docs/experiments/draw.md.

The last evaluation estimates log p(x) from 100 samples for each of 10,000 test images.
It costs as much as a hundred other evaluations: hours on a CPU.
`--config.importance_examples=1000 --config.importance_samples=10` is a hundredth of it.

The default is smaller: 12 glimpses, 64 units, 16 latents, read 5x5, batches of 32,
Adam from 5e-3 down to 0. Nothing else can be compared with its bounds.
"""

from experiments.fields.draw import FIELDS
from lnrepro.config import SMOKE_STEPS, Expected, variants
from lnrepro.sweeps import figure_sweeps, small_sweeps

PAPER = {
    "batch_size": 128,
    "epochs": 200.0,
    "data": {"name": "binarized_mnist", "train_examples": 50_000},
    "optimizer": {"clip": 10.0},
    "log_every": 50,
    "eval_batch_size": 500,
    "evals": {"valid": "epoch", "test": "epoch", "final": "end"},
    "best": {"metric": "valid/bound"},
    "curves": (("bound, nats per image", ("test/bound", "train/bound"), "linear"),),
}
# What all smaller variants share. With the paper's settings, 1,297 images stay at the
# mean image for thousands of steps: a 2x2 grid first sees the corners, which are empty.
# A 5x5 grid, larger first latents and a larger learning rate find the digits in
# hundreds of steps.
SMALLER = {
    "model": {
        "glimpses": 16,
        "units": 128,
        "latents": 16,
        "read_size": 5,
        "init": {"latent": 0.06},
    },
    "optimizer": {"learning_rate": 3e-3, "clip": 100.0},
    "batch_size": 64,
}
# Only the default. Larger first latents leave the mean image at about the same step
# whatever the seed, and the falling rate ends the runs close to each other.
EMBEDDED = {
    "data": {"name": "binarized_digits", "train_examples": 1297},
    "model": {"glimpses": 12, "units": 64, "init": {"latent": 0.15}},
    "optimizer": {"learning_rate": 5e-3, "decay": "cosine"},
    "batch_size": 32,
    "epochs": None,
    "steps": 2000,
    "save_every": 200,
    "eval_batch_size": 128,
    "evals": {"valid": "200", "test": "200"},
}
# Binarised MNIST, with more latents.
SMALL = {
    "data": {"name": "binarized_mnist", "train_examples": 50_000},
    "model": {"latents": 32},
    "epochs": None,
    "steps": 9000,
    "save_every": 500,
    "eval_batch_size": 500,
    "evals": {"valid": "450", "test": "450"},
    "importance_samples": 10,
    "importance_examples": 500,
}
SMOKE = {
    "data": {"name": "binarized_digits", "train_examples": 1297},
    "model": {"glimpses": 3, "units": 8, "latents": 4},
    "epochs": 150.0,
    "eval_batch_size": 128,
    "evals": {"valid": "2", "test": "2"},
    "importance_samples": 2,
    "importance_examples": 20,
}
# Between runs that have learned and those that still draw the mean image.
EXPECTED = Expected(
    "test/bound",
    140.0,
    seconds=90,
    measured=(104.3, 120.6),
    shuffled=216.7,
    quarter=208.9,
)
VARIANTS = {
    "": (PAPER, SMALLER, EMBEDDED),
    "paper": (PAPER,),
    "small": (PAPER, SMALLER, SMALL),
    "smoke": (PAPER, SMALLER, SMOKE_STEPS, SMOKE),
}
NORMS = ("none", "weight", "layer_cell")
SWEEPS = {
    **figure_sweeps(NORMS, seeds=3, rates=(3e-4, 1e-3, 3e-3)),
    **small_sweeps(
        "small",
        {"none": 3e-3, "weight": 1e-2, "layer_cell": 3e-3},
        (1e-3, 3e-3, 1e-2),
        steps=3000,
    ),
}
get_config = variants("experiments.draw", VARIANTS, FIELDS)
