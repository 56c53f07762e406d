"""Skip-thought vectors (section 6.3, Figure 3, Table 3): GRUs that learn sentence vectors from the order of sentences.

    python -m lnrepro.main --config=configs/skip_thoughts.py              generated stories; minutes, no download
    python -m lnrepro.main --config=configs/skip_thoughts.py:gutenberg    real novels, reduced width
    python -m lnrepro.main --config=configs/skip_thoughts.py:paper        BookCorpus, 2400 units, 1,000,000 steps
    ... --config=configs/skip_thoughts.py:paper_gutenberg                 the paper's sizes on the real novels
    ... --config.norm=none | layer  --config.model.condition=True

The paper's run follows the authors' code: 620-d words, 20,000 of them, batches of 64 sentences of one length, the summed
loss clipped to global norm 5, Adam without effective bias correction at 2e-4, and the five transfer tasks every 50,000
steps, each with the frozen encoder: SICK (relatedness) and MR, CR, SUBJ, MPQA (classification).

The embedded run (128 units, 64-d words) ends with the transfer table, beside it what words without order and an untrained
encoder give, and with the nearest neighbours of some sentences in artifacts/neighbours.txt; its numbers are of generated
sentences, and nothing else can be compared with them.
"""

from ml_collections import ConfigDict

VARIANTS = ("", "gutenberg", "paper", "paper_gutenberg", "smoke")
TASKS = ("sick", "mr", "cr", "subj", "mpqa")


def get_config(variant: str = "") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(
            f"configs/skip_thoughts.py has no variant {variant!r}; there are {', '.join(v or '(none)' for v in VARIANTS)}"
        )
    c = ConfigDict()
    c.experiment = "experiments.skip_thoughts"
    c.norm = "layer"
    c.seed = 0
    c.seeds = 1  # so many at once, from seed on
    c.batch_size = 64
    c.epochs = 5.0
    c.steps = 1_000_000
    c.steps_per_call = 1  # batches differ in length
    c.placement = "jit"
    # model > 1: so many devices share each of these, which are as large as the vocabulary
    c.mesh = ConfigDict(
        {"model": 1, "shard": (("embedding", 0), ("output/w", 1), ("output/bias", 0))}
    )

    # train_examples: sentences; an epoch of the log is so many, though only triples of short sentences are learnt from
    c.data = ConfigDict({"name": "bookcorpus", "dir": "", "train_examples": 74_004_228})
    c.data.buckets = (5, 10, 15, 20, 25, 30)  # the encoder's compiled lengths
    c.model = ConfigDict(
        {
            "units": 2400,
            "word_size": 620,
            "vocabulary": 20_000,
            "condition": False,  # feed the vector to every step of the decoders (Kiros et al. 2015)
            "decoders_together": False,  # as one batched product; pays where small products leave the device idle
            "chunk_rows": 512,  # positions whose logits exist at once
        }
    )
    c.optimizer = ConfigDict(
        {
            "name": "kiros_adam",
            "learning_rate": 2e-4,
            "b1": 0.9,
            "b2": 0.999,
            "eps": 1e-8,
            "clip": 5.0,
            "clip_mode": "global",
        }
    )

    # How sentences are encoded for the tasks. word2vec: a .bin file whose words are mapped into the table ("": none).
    c.encoding = ConfigDict({"batch_size": 128, "lowercase": False, "word2vec": ""})
    c.transfer = ConfigDict(
        {
            "folds": 10,
            "seed": 1234,
            "sick_epochs": 100,
            "sick_batch": 128,
            "sick_blocks": 50,
        }
    )

    c.log_every = 100
    c.eval_every = c.save_every = 50_000
    c.eval_splits = TASKS
    c.final_splits = ("neighbours", "baselines")
    c.best = ConfigDict({"metric": "", "mode": "max"})

    if variant in ("gutenberg", "paper_gutenberg"):
        c.data.update({"name": "gutenberg", "train_examples": 214_263})
        c.encoding.lowercase = True
    if variant == "gutenberg":
        c.model.update({"units": 256, "word_size": 128, "vocabulary": 8_000})
        c.optimizer.learning_rate = 1e-3
        c.steps = 800
        c.log_every = 20
        c.eval_every = 200
        c.save_every = 50
        c.final_splits = ("neighbours",)
    if variant in ("", "smoke"):
        c.data.update({"name": "stories", "train_examples": 40_000})
        c.data.buckets = (10, 15)
        c.model.update(
            {"units": 128, "word_size": 64, "vocabulary": 300, "chunk_rows": 2048}
        )
        c.optimizer.learning_rate = 1e-3
        c.encoding.lowercase = True
        c.transfer.sick_epochs = 20
        c.steps = 1500
        c.log_every = 50
        c.eval_every = c.save_every = 300
        c.eval_splits = tuple(f"story_{task}" for task in TASKS)
    if variant == "smoke":
        c.model.update({"units": 16, "word_size": 8})
        c.batch_size = 16
        c.steps = 4
        c.log_every = c.eval_every = c.save_every = 2
        c.transfer.update({"folds": 3, "sick_epochs": 1, "sick_blocks": 2})
    first = c.eval_splits[0]
    c.curves = (
        ("nats per word", ("train/nll",), "linear"),
        ("Pearson", (f"{first}/pearson",), "linear"),
        (
            "accuracy, %",
            tuple(f"{task}/accuracy" for task in c.eval_splits[1:]),
            "linear",
        ),
    )
    return c


NORMS = ("none", "layer")
SWEEPS = {
    "": [{"norm": norm, "seed": seed} for norm in NORMS for seed in range(3)],
    "learning_rate": [
        {"norm": norm, "optimizer.learning_rate": rate}
        for norm in NORMS
        for rate in (1e-4, 2e-4, 1e-3)
    ],
}


def sweep(name: str = "") -> list[dict[str, object]]:
    """Figure 3's two variants with three seeds; "learning_rate": each at three rates."""
    if name not in SWEEPS:
        raise ValueError(
            f"configs/skip_thoughts.py has no sweep {name!r}; there are {', '.join(n or '(none)' for n in SWEEPS)}"
        )
    return SWEEPS[name]
