"""Skip-thought vectors (section 6.3, Figure 3, Table 3) and their transfer tasks.

    python -m lnrepro.main --config=configs/skip_thoughts.py           generated stories
    python -m lnrepro.main --config=configs/skip_thoughts.py:gutenberg   novels, narrow
    python -m lnrepro.main --config=configs/skip_thoughts.py:small       42 minutes
    python -m lnrepro.main --config=configs/skip_thoughts.py:paper       BookCorpus
    ... --config=configs/skip_thoughts.py:paper_gutenberg    the paper's sizes on novels
    ... --config.norm=none | layer

The paper's run follows the authors' code: 2400 units, 620-d words, 20,000 of them,
1,000,000 steps with batches of 64 sentences of one length, the summed loss clipped to
global norm 5, Adam without effective bias correction at 2e-4. Every 50,000 steps it is
evaluated on the five transfer tasks with the frozen encoder: SICK (relatedness) and MR,
CR, SUBJ, MPQA (classification).

The default (128 units, 64-d words) ends with the transfer table and, for comparison,
what words without order and an untrained encoder give. artifacts/neighbours.txt has the
nearest neighbours of some sentences. Its numbers are of generated sentences, and
nothing else can be compared with them.
"""

from experiments.fields.skip_thoughts import FIELDS
from lnrepro.config import SMOKE_STEPS, Expected, variants
from lnrepro.sweeps import figure_sweeps, small_sweeps

TASKS = ("sick", "mr", "cr", "subj", "mpqa")
PAPER = {
    "batch_size": 64,
    "steps": 1_000_000,
    "data": {
        "name": "bookcorpus",
        # Number of sentences, an epoch of the log. Only triples of short sentences are
        # trained on.
        "train_examples": 74_004_228,
    },
    "optimizer": {"name": "kiros_adam", "learning_rate": 2e-4, "clip": 5.0},
    "log_every": 100,
    "save_every": 50_000,
}
ON_GUTENBERG = {
    "data": {"name": "gutenberg", "train_examples": None},
    "encoding": {"lowercase": True},
}
NARROW = {
    "model": {"units": 256, "word_size": 128, "vocabulary": 8_000},
    "optimizer": {"learning_rate": 1e-3},
    "steps": 800,
    "log_every": 20,
    "save_every": 50,
}
EMBEDDED = {
    "data": {"name": "stories", "train_examples": 40_000, "buckets": (10, 15)},
    "model": {"units": 128, "word_size": 64, "vocabulary": 300, "chunk_rows": 2048},
    "optimizer": {"learning_rate": 1e-3},
    "encoding": {"lowercase": True},
    "transfer": {"sick_epochs": 20},
    "steps": 1500,
    "log_every": 50,
    "save_every": 300,
}
SMALL = {"steps": 4000}
SMOKE = {
    "model": {"units": 16, "word_size": 8},
    "batch_size": 16,
    "transfer": {"folds": 3, "sick_epochs": 1, "sick_blocks": 2},
}


def transfer(prefix: str, every: int) -> dict[str, object]:
    """Return evaluations of the transfer sets every so many steps, and their curves."""
    names = [f"{prefix}{task}" for task in TASKS]
    accuracies = tuple(f"{name}/accuracy" for name in names[1:])
    return {
        "evals": {name: str(every) for name in names} | {"neighbours": "end"},
        "curves": (
            ("nats per word", ("train/nll",), "linear"),
            ("Pearson", (f"{names[0]}/pearson",), "linear"),
            ("accuracy, %", accuracies, "linear"),
        ),
    }


BASELINES = {"evals": {"baselines": "end"}}
EXPECTED = Expected(
    "story_sick/pearson",
    0.78,
    seconds=66,
    measured=(0.824, 0.848),
    shuffled=0.576,
    quarter=0.754,
)
VARIANTS = {
    "": (PAPER, EMBEDDED, transfer("story_", 300), BASELINES),
    "gutenberg": (PAPER, ON_GUTENBERG, NARROW, transfer("", 200)),
    "paper": (PAPER, transfer("", 50_000), BASELINES),
    "paper_gutenberg": (PAPER, ON_GUTENBERG, transfer("", 50_000), BASELINES),
    "small": (PAPER, ON_GUTENBERG, NARROW, SMALL, transfer("", 400)),
    "smoke": (PAPER, EMBEDDED, SMOKE_STEPS, SMOKE, transfer("story_", 2), BASELINES),
}
NORMS = ("none", "layer")
SWEEPS = {
    **figure_sweeps(NORMS, seeds=3, rates=(1e-4, 2e-4, 1e-3)),
    # The tries say 3e-3 for no norm. Of the whole runs with seeds 0 to 4, those with
    # 1e-3 end better in four of five tasks.
    **small_sweeps(
        "small", {"none": 1e-3, "layer": 3e-3}, (3e-4, 1e-3, 3e-3), steps=1300
    ),
}
get_config = variants("experiments.skip_thoughts", VARIANTS, FIELDS)
