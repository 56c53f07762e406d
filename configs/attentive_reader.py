"""The attentive reader (section 6.2, Figure 2): which entity is missing in a sentence about a news story.

    python -m lnrepro.main --config=configs/attentive_reader.py              generated stories; minutes, no download
    python -m lnrepro.main --config=configs/attentive_reader.py:paper        CNN, four sentences, 800,000 steps
    python -m lnrepro.main --config=configs/attentive_reader.py:gutenberg    the paper's sizes on novels, a stand-in
    ... --config.norm=none | layer | batch | batch_everywhere  --config.model.gain.layer=0.1  --config.model.bidirectional

Settings of the code state 94f7398, with which the paper's curves were made: D = H = 240 for everything, one direction,
learned h_0, dropout 0.5, the dq-similarity and the skip term, Adam 8e-5, batches of 64, clipping at 10, validation
every 1,000 steps. It compares the norm with 100 where it should with 10, and then divides by its root:
--config.optimizer.clip_mode=attentive_reader does that too. The four most relevant sentences of each story are chosen by
overlap with the question; `:paper` reads cnn_top4, the authors' own choice (`--config.data.name=cnn` with its vocabulary
and entities for the official files). Batch norm evaluates with population statistics by time step;
--config.model.evaluation_statistics=batch takes each validation batch's own, as that code state does.

The embedded run: 4,000 generated stories of about 56 words (`news_stories`), D = H = 64, Adam 1e-3, 2,500 steps, about a
minute on two idle cores; it stays at guessing for 1,200 steps and then learns to look. Error about 0.17, where the most
frequent entity of the story has 0.86; artifacts/attention.png shows which words it looked at.
"""

from ml_collections import ConfigDict

VARIANTS = ("", "paper", "gutenberg", "smoke")


def get_config(variant: str = "") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(
            f"configs/attentive_reader.py has no variant {variant!r}; there are "
            f"{', '.join(v or '(none)' for v in VARIANTS)}"
        )
    c = ConfigDict()
    c.experiment = "experiments.attentive_reader"
    c.norm = "layer"
    c.seed = 0
    c.seeds = 1  # so many at once, from seed on
    c.batch_size = 64
    c.epochs = 0.0
    c.steps = 800_000
    c.steps_per_call = 1
    c.placement = "jit"
    # model > 1: so many devices share each of these, which are as large as the vocabulary
    c.mesh = ConfigDict(
        {"model": 1, "shard": (("embedding", 0), ("output/w", 1), ("output/bias", 0))}
    )
    c.permute_entities = "training"  # or "always", at evaluation too, or "never"

    c.data = ConfigDict(
        {
            "name": "cnn_top4",
            "dir": "",
            "train_examples": 380_298,
            "vocabulary": 65_830,
            "entities": 600,
            "sentences": 4,
            "unanswerable": "keep",
            "too_long": "refuse",
            "passage_buckets": (
                48,
                64,
                80,
                96,
                112,
                128,
                144,
                160,
                192,
                256,
                512,
                2048,
            ),
            "question_buckets": (12, 16, 20, 24, 32, 48, 128),
        }
    )
    c.model = ConfigDict(
        {
            "units": 240,
            "bidirectional": False,
            "dropout": 0.5,
            "dropout_scaling": "train",  # "test": kept values are not enlarged in training, all are reduced at test time
            "gain": {"layer": 1.0, "batch": 0.1},  # where gains start
            "statistics_steps": 320,  # time steps with population statistics of their own; later ones use the last
            "momentum": 0.99,
            "evaluation_statistics": "population",
        }
    )
    c.optimizer = ConfigDict(
        {
            "name": "adam",
            "learning_rate": 8e-5,
            "b1": 0.9,
            "b2": 0.999,
            "eps": 1e-8,
            "clip": 10.0,
            "clip_mode": "global",
        }
    )
    c.log_every = 100
    c.eval_every = c.save_every = 1000
    c.eval_batch_size = 64
    c.evaluation_questions = (
        0  # so many of a split, at equal distances; 0 is all of them
    )
    c.eval_splits = ("valid",)
    c.final_splits = ("attention",)

    if variant == "gutenberg":
        c.data.update(
            {
                "name": "gutenberg_cloze",
                "train_examples": 30_000,
                "vocabulary": 32_092,
                "entities": 51,
            }
        )
        c.data.passage_buckets = (72, 104, 128, 152, 184, 232, 320)
        c.data.question_buckets = (16, 28, 44, 80)
        c.steps = 1500
        c.log_every, c.eval_every, c.save_every = 25, 250, 50
    if variant in ("", "smoke"):
        c.data.update(
            {
                "name": "news_stories",
                "train_examples": 4000,
                "vocabulary": 159,
                "entities": 12,
            }
        )
        c.data.sentences = 0
        c.data.passage_buckets = (56, 80)
        c.data.question_buckets = (12,)
        c.model.update({"units": 64, "dropout": 0.1, "statistics_steps": 80})
        c.optimizer.learning_rate = 1e-3
        c.batch_size = 32
        c.steps = 2500
        c.log_every, c.eval_every, c.save_every = 50, 250, 250
    if variant == "smoke":
        c.model.update({"units": 8, "statistics_steps": 40})
        c.steps = 4
        c.log_every = c.eval_every = c.save_every = 2
        c.evaluation_questions = 20
    c.best = ConfigDict({"metric": "valid/error", "mode": "min"})
    c.curves = (
        ("error rate", ("valid/error", "valid/entity_error", "train/error"), "linear"),
        ("nats", ("valid/nll", "train/nll"), "linear"),
    )
    return c


NORMS = ("none", "layer", "batch", "batch_everywhere")
SWEEPS = {
    "": [{"norm": norm, "seed": seed} for norm in NORMS for seed in range(3)],
    "learning_rate": [
        {"norm": norm, "optimizer.learning_rate": rate}
        for norm in NORMS
        for rate in (8e-5, 8e-4, 8e-3)
    ],
    "gain": [{"norm": "layer", "model.gain.layer": gain} for gain in (0.1, 1.0)],
}


def sweep(name: str = "") -> list[dict[str, object]]:
    """Figure 2's variants with three seeds; "learning_rate": each at three of Cooijmans et al.'s; "gain": LN's two starts."""
    if name not in SWEEPS:
        raise ValueError(
            f"configs/attentive_reader.py has no sweep {name!r}; there are {', '.join(n or '(none)' for n in SWEEPS)}"
        )
    return SWEEPS[name]
