"""Permutation-invariant MNIST (section 6.6, Figure 6): 784-1000-1000-10 with no, layer or batch normalisation.

    python -m lnrepro.main --config=configs/mnist.py               1,437 small digits inside scikit-learn; seconds
    python -m lnrepro.main --config=configs/mnist.py:paper         MNIST, batch size 128 (Figure 6, left)
    python -m lnrepro.main --config=configs/mnist.py:paper_bz4     MNIST, batch size 4 (Figure 6, right)
    ... --config.norm=none | layer | batch  --config.seed=1

The paper gives sizes, batch sizes and Adam; learning rate, non-linearity (ReLU) and initialisation are common defaults.
"""

from ml_collections import ConfigDict

VARIANTS = ("", "paper", "paper_bz4", "smoke")


def get_config(variant: str = "") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(
            f"configs/mnist.py has no variant {variant!r}; there are {', '.join(v or '(none)' for v in VARIANTS)}"
        )
    c = ConfigDict()
    c.experiment = "experiments.mnist"
    c.norm = "layer"
    c.seed = 0
    c.seeds = 1  # so many at once, from seed on
    c.batch_size = 128
    c.epochs = 60.0
    c.steps = 0
    c.steps_per_call = 11  # an epoch has 429 = 39 * 11
    c.placement = "jit"

    c.data = ConfigDict(
        {
            "name": "mnist",
            "dir": "",
            "train_examples": 55_000,
            "features": 784,
            "full_ink": 255.0,
        }
    )
    c.model = ConfigDict({"hidden": (1000, 1000), "classes": 10})
    c.layer_norm = ConfigDict({"eps": 1e-5})
    # The paper: "the variance term for BN is computed using the unbiased estimator" at batch size 4.
    c.batch_norm = ConfigDict({"eps": 1e-5, "momentum": 0.99, "unbiased": False})
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

    c.log_every = c.eval_every = 0  # once an epoch
    c.save_every = 2145  # 5 epochs at batch size 128: a save costs as much as ten steps
    c.eval_batch_size = 1000
    c.eval_splits = ("valid", "test")
    c.final_splits = ()
    c.best = ConfigDict({"metric": "valid/error", "mode": "min"})
    c.curves = (
        ("NLL", ("train/nll", "test/nll"), "log"),
        ("test error", ("test/error",), "linear"),
    )

    if variant == "paper_bz4":
        c.batch_size = 4
        c.batch_norm.unbiased = True
        c.steps_per_call = 50
        c.save_every = 13_750
    if variant in ("", "smoke"):
        c.data.update(
            {"name": "digits", "train_examples": 1437, "features": 64, "full_ink": 16.0}
        )
        c.eval_batch_size = 180
        c.epochs = 20.0
        c.save_every = 0
    if variant == "smoke":
        c.model.hidden = (32, 32)
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
    """Figure 6's variants with five seeds; "learning_rate": each variant at five rates."""
    if name not in SWEEPS:
        raise ValueError(
            f"configs/mnist.py has no sweep {name!r}; there are {', '.join(n or '(none)' for n in SWEEPS)}"
        )
    return SWEEPS[name]
