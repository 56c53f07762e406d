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

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from lnrepro.config import Expected, adam, choose, figure_sweeps, small_sweeps, variants

# Fields that other experiments do not have.
OWN = {
    "evaluation_seed": 0,
    "importance_samples": 100,
    "importance_examples": placeholder(int),
}
PAPER = {
    "norm": "layer_cell",
    "batch_size": 128,
    "epochs": 200.0,
    "data": {"name": "binarized_mnist", "train_examples": 50_000},
    "model": {
        "image_size": 28,
        "read_size": 2,
        "write_size": 5,
        "glimpses": 64,
        "units": 256,
        "latents": 100,
        # Standard deviations of the kernels that the LSTMs' outputs feed, and the first
        # value of LN's gains.
        "init": {"read": 0.01, "latent": 0.01, "write": 0.01, "gain": 1.0},
    },
    "optimizer": adam(1e-3, clip=10.0),
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
    "steps": 4,
    "log_every": 2,
    "save_every": 2,
    "eval_batch_size": 128,
    "evals": {"valid": "2", "test": "2"},
    "importance_samples": 2,
    "importance_examples": 20,
}
# Between runs that have learned and those that still draw the mean image.
EXPECTED = Expected(
    "test/bound",
    "min",
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
    "smoke": (PAPER, SMALLER, SMOKE),
}
HELP = {
    "model.image_size": "height and width of an image",
    "model.read_size": "filters along each side of the window that is read",
    "model.write_size": "filters along each side of the window that is written",
    "model.glimpses": "number of time steps",
    "model.units": "units of each LSTM",
    "model.latents": "numbers in the latent vector of a glimpse",
    "model.init.read": "std of the kernel of the read window at the start",
    "model.init.latent": "std of the kernel of the latents at the start",
    "model.init.write": "std of the kernels of the write window at the start",
    "model.init.gain": "first value of the gains of layer norm",
    "evaluation_seed": "seed of the noise of evaluations",
    "importance_samples": "draws for an image in the estimate of -log p(x)",
    "importance_examples": "test images of that estimate, spaced; None takes all",
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


def get_config(variant: str = "") -> ConfigDict:
    return variants("experiments.draw", VARIANTS, variant, OWN)


def sweep(name: str = "") -> list[dict[str, object]]:
    """Figure 4 with three seeds; "learning_rate": each norm at three rates."""
    return choose("sweep", SWEEPS, name)
