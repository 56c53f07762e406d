"""Handwriting synthesis (section 6.5, Figure 5): a network that writes a text with a pen, with and without LN.

    python -m lnrepro.main --config=configs/handwriting.py            generated pen strokes; minutes, no download
    python -m lnrepro.main --config=configs/handwriting.py:paper      IAM-OnDB, 3 x 400 units, 500 steps, batches of 8
    ... --config.norm=none | layer   --config.model.peephole=True --config.model.clip_cells=10. --config.model.clip_outputs=100.
    python scripts/write.py --workdir=runs/... --text="layer normalization" --bias=1.0 --out=line.svg

The paper gives three LSTMs of 400, 20 Gaussians, a window of 10 over 57 symbols, batches of 8, sequences of 500 steps and
Adam; not its learning rate, nor clipping (chosen by measurement, for both variants: experiments/results/handwriting.md),
nor how many updates (Figure 5 ends at 200,000). Peepholes and clipped derivatives (10, 100) are Graves'.

The embedded run writes generated lines of short words (`generated_strokes`) with a smaller net: under three minutes on
two idle cores; its likelihoods compare with nothing else.
"""

from ml_collections import ConfigDict

VARIANTS = ("", "paper", "smoke")


def get_config(variant: str = "") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(
            f"configs/handwriting.py has no variant {variant!r}; there are {', '.join(v or '(none)' for v in VARIANTS)}"
        )
    c = ConfigDict()
    c.experiment = "experiments.handwriting"
    c.norm = "layer"
    c.seed = 0
    c.seeds = 1  # so many at once, from seed on
    c.batch_size = 8
    c.epochs = 0.0
    c.steps = 200_000
    c.steps_per_call = 1
    c.placement = "jit"

    c.data = ConfigDict({"name": "iam_ondb", "dir": "", "train_examples": 10_741})
    c.model = ConfigDict(
        {
            "units": 400,
            "gaussians": 20,
            "window_gaussians": 10,
            "symbols": 57,
            "steps": 500,  # of a line, at most; what is longer is cut off
            "characters": 64,  # of a text, at least the longest line's
            "kappa_bias": -3.0,  # exp(-3) = 0.05 characters a step
            "peephole": False,
            "clip_cells": 0.0,  # Graves: 10
            "clip_outputs": 0.0,  # Graves: 100
        }
    )
    c.optimizer = ConfigDict(
        {
            "name": "adam",
            "learning_rate": 1e-3,
            "b1": 0.9,
            "b2": 0.999,
            "eps": 1e-8,
            "clip": 10.0,
            "clip_mode": "global",
        }
    )

    c.log_every = 20
    c.eval_every = c.save_every = 1000
    c.eval_batch_size = 64
    c.eval_examples = (
        0  # so many lines of a split, at equal distances; 0 is all of them
    )
    c.eval_splits = ("valid",)
    c.final_splits = ("final",)
    c.samples = ConfigDict(
        {
            "texts": ("layer normalization", "the quick brown fox"),
            "bias": 1.0,
            "steps": 900,
        }
    )
    c.best = ConfigDict({"metric": "valid/nll", "mode": "min"})
    c.curves = (
        (
            "negative log likelihood, nats per sequence",
            ("valid/nll", "train/nll"),
            "linear",
            200,
        ),
    )  # Figure 5's

    if variant in ("", "smoke"):
        c.data.update({"name": "generated_strokes", "train_examples": 3000})
        c.model.update(
            {
                "units": 128,
                "gaussians": 8,
                "window_gaussians": 4,
                "steps": 160,
                "characters": 20,
            }
        )
        c.model.kappa_bias = -2.3  # a character of these is ten steps
        c.optimizer.update({"learning_rate": 3e-3, "clip": 1000.0})
        c.batch_size = 16
        c.steps = 1500
        c.eval_every = c.save_every = 250
        c.eval_examples = 100
    if variant == "smoke":
        c.model.update({"units": 8, "gaussians": 3, "window_gaussians": 2, "steps": 30})
        c.steps = 4
        c.log_every = c.eval_every = c.save_every = 2
        c.eval_examples = 10
        c.samples.steps = 20
    return c


NORMS = ("none", "layer")
SWEEPS = {
    "": [{"norm": norm, "seed": seed} for norm in NORMS for seed in range(3)],
    "learning_rate": [
        {"norm": norm, "optimizer.learning_rate": rate}
        for norm in NORMS
        for rate in (3e-4, 1e-3, 3e-3)
    ],
}


def sweep(name: str = "") -> list[dict[str, object]]:
    """Figure 5's two variants with three seeds; "learning_rate": each at three rates."""
    if name not in SWEEPS:
        raise ValueError(
            f"configs/handwriting.py has no sweep {name!r}; there are {', '.join(n or '(none)' for n in SWEEPS)}"
        )
    return SWEEPS[name]
