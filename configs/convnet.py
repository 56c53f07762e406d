"""Small ConvNet (remark of section 6.7): no, batch or layer normalisation, and the statistics near the image border.

    python -m lnrepro.main --config=configs/convnet.py             1,437 small digits inside scikit-learn; seconds
    python -m lnrepro.main --config=configs/convnet.py:paper       MNIST, 5 epochs; some minutes on two cores
    ... --config.norm=none | batch | layer  --config.seed=1
    ... --config.layer_norm.statistics=position                    over the channels at each position alone

The paper's remark names no data, network, optimiser or number: all of it is our choice. "border" among the final splits
draws the statistics of the units near the border (artifacts/statistics.png).
"""

from ml_collections import ConfigDict

VARIANTS = ("", "paper", "smoke")


def get_config(variant: str = "") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(
            f"configs/convnet.py has no variant {variant!r}; there are {', '.join(v or '(none)' for v in VARIANTS)}"
        )
    c = ConfigDict()
    c.experiment = "experiments.convnet"
    c.norm = "layer"
    c.seed = 0
    c.seeds = 1  # so many at once, from seed on
    c.batch_size = 128
    c.epochs = 5.0
    c.steps = 0
    c.steps_per_call = 1
    c.placement = "jit"

    c.data = ConfigDict(
        {
            "name": "mnist",
            "dir": "",
            "train_examples": 55_000,
            "image": (28, 28),
            "full_ink": 255.0,
        }
    )
    c.model = ConfigDict(
        {"channels": (16, 32, 64), "strides": (1, 2, 2), "classes": 10}
    )
    c.layer_norm = ConfigDict(
        {"eps": 1e-5, "statistics": "layer", "gain_per_unit": False}
    )
    c.batch_norm = ConfigDict({"eps": 1e-5, "momentum": 0.9})
    c.optimizer = ConfigDict(
        {
            "name": "adam",
            "learning_rate": 1e-3,
            "b1": 0.9,
            "b2": 0.999,
            "eps": 1e-8,
            "clip": 0.0,
            "clip_mode": "global",
        }
    )

    c.log_every = 43  # a tenth of an epoch of MNIST
    c.eval_every = 86
    c.save_every = 0  # once an epoch
    c.eval_batch_size = 1000
    c.eval_splits = ("valid", "test")
    c.final_splits = ("border",)
    c.best = ConfigDict({"metric": "valid/error", "mode": "min"})
    c.curves = (
        ("NLL", ("train/nll", "test/nll"), "log"),
        ("test error", ("test/error",), "linear"),
    )

    if variant in ("", "smoke"):
        c.data.update(
            {
                "name": "digits",
                "train_examples": 1437,
                "image": (8, 8),
                "full_ink": 16.0,
            }
        )
        c.model.update({"channels": (16, 32), "strides": (1, 2)})
        c.eval_batch_size = 180
        c.epochs = 30.0
        c.log_every = c.eval_every = 0  # once an epoch
    if variant == "smoke":
        c.model.channels = (4, 8)
        c.batch_size = 64
        c.epochs = 2.0
    return c


NORMS = ("none", "batch", "layer")
SWEEPS = {
    "": [{"norm": norm, "seed": seed} for norm in NORMS for seed in range(5)],
    "learning_rate": [
        {"norm": norm, "optimizer.learning_rate": rate}
        for norm in NORMS
        for rate in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
    ],
}


def sweep(name: str = "") -> list[dict[str, object]]:
    """The remark's three variants with five seeds; "learning_rate": each variant at five rates."""
    if name not in SWEEPS:
        raise ValueError(
            f"configs/convnet.py has no sweep {name!r}; there are {', '.join(n or '(none)' for n in SWEEPS)}"
        )
    return SWEEPS[name]
