"""DRAW (section 6.4, Figure 4): images drawn in glimpses by two LSTMs, with no, weight or layer normalisation.

    python -m lnrepro.main --config=configs/draw.py                scikit-learn's real digits; minutes, no download
    python -m lnrepro.main --config=configs/draw.py:paper          binarised MNIST, 64 glimpses, 256 units, 200 epochs
    ... --config.norm=none | weight | layer_cell | layer  --config.model.attention=False

The paper gives 64 glimpses, 256 units, Adam "with default setting" and batches of 128; read 2x2, write 5x5 and 100
latents are the DRAW paper's (Table 3). Learning rate, clipping and initial scales were chosen by measurement, for all
variants together: experiments/results/draw.md.

The final estimate of log p(x), 100 samples for each of 10,000 test images, costs as much as a hundred evaluations: hours on
a CPU. `--config.importance_examples=1000 --config.importance_samples=10` is a hundredth of it.

The embedded run is smaller (16 glimpses, 128 units, 16 latents, read 5x5, batches of 64, Adam 3e-3): about two minutes on
two idle cores, to a test bound near 90 nats on `binarized_digits`, a number that nothing else can be compared with.
"""

from ml_collections import ConfigDict

VARIANTS = ("", "paper", "smoke")


def get_config(variant: str = "") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(
            f"configs/draw.py has no variant {variant!r}; there are {', '.join(v or '(none)' for v in VARIANTS)}"
        )
    c = ConfigDict()
    c.experiment = "experiments.draw"
    c.norm = "layer_cell"
    c.seed = 0
    c.seeds = 1  # so many at once, from seed on
    c.batch_size = 128
    c.epochs = 200.0
    c.steps = 0
    c.steps_per_call = 1
    c.placement = "jit"

    c.data = ConfigDict(
        {"name": "binarized_mnist", "dir": "", "train_examples": 50_000}
    )
    c.model = ConfigDict(
        {
            "image_size": 28,
            "attention": True,
            "read_size": 2,
            "write_size": 5,
            "glimpses": 64,
            "units": 256,
            "latents": 100,
            # standard deviations of the kernels that the LSTMs' outputs feed, and the first value of LN's gains
            "init": {"read": 0.01, "latent": 0.01, "write": 0.01, "gain": 1.0},
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

    c.log_every = 50
    c.eval_every = c.save_every = 0  # once an epoch
    c.eval_batch_size = 500
    c.evaluation_seed = 0
    c.importance_samples = 100
    c.importance_examples = (
        0  # so many test images, at equal distances; 0 is all of them
    )
    c.eval_splits = ("valid", "test")
    c.final_splits = ("final",)

    if variant in ("", "smoke"):
        c.data.update({"name": "binarized_digits", "train_examples": 1297})
        # On 1,297 images the paper's settings stay at the mean image for thousands of steps: the corners, all that a 2x2
        # grid sees at first, are paper. A 5x5 grid, larger first latents and longer steps find the digits in hundreds.
        c.model.update({"glimpses": 16, "units": 128, "latents": 16, "read_size": 5})
        c.model.init.latent = 0.06
        c.optimizer.update({"learning_rate": 3e-3, "clip": 100.0})
        c.batch_size = 64
        c.epochs = 150.0
        c.eval_every = c.save_every = 200
        c.eval_batch_size = 128
    if variant == "smoke":
        c.model.update({"glimpses": 3, "units": 8, "latents": 4})
        c.steps = 4
        c.log_every = c.eval_every = c.save_every = 2
        c.importance_samples = 2
        c.importance_examples = 20
    bound = f"bound_{c.data.name}"
    c.best = ConfigDict({"metric": f"valid/{bound}", "mode": "min"})
    c.curves = (("bound, nats per image", (f"test/{bound}", "train/bound"), "linear"),)
    return c


NORMS = ("none", "weight", "layer_cell")
SWEEPS = {
    "": [{"norm": norm, "seed": seed} for norm in NORMS for seed in range(3)],
    "learning_rate": [
        {"norm": norm, "optimizer.learning_rate": rate}
        for norm in NORMS
        for rate in (3e-4, 1e-3, 3e-3)
    ],
}


def sweep(name: str = "") -> list[dict[str, object]]:
    """Figure 4's variants with three seeds; "learning_rate": each variant at three rates."""
    if name not in SWEEPS:
        raise ValueError(
            f"configs/draw.py has no sweep {name!r}; there are {', '.join(n or '(none)' for n in SWEEPS)}"
        )
    return SWEEPS[name]
