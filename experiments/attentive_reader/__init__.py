"""The attentive reader (section 6.2, Figure 2): which entity is missing in a sentence about a passage.

`config.norm`: "none", "layer" (LN in both LSTMs, eq. 20-22), "batch" (BN-LSTM of Cooijmans et al. 2016: statistics per
time step) or "batch_everywhere" (the same, and BN on the five maps of attention and read-out).
"""

import functools

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.batches import evenly_spaced
from lnrepro.data.official.cnn import FIRST_ENTITY
from lnrepro.engine import evaluation
from lnrepro.engine.errors import UserError
from lnrepro.engine.experiment import Evaluation, Experiment

from . import passages, pictures
from .model import Reader

PERMUTATIONS = ("training", "always", "never")


def make(config: ConfigDict) -> Experiment:
    """The experiment. Metrics: nll, -log(p(answer) + 1e-8) in nats, and error, the share of questions where another word of
    the whole vocabulary has the largest score.

    evaluate also gives entity_error, where only entities of the passage may be chosen, and what needs no reading
    (passages.frequency_errors); its split "attention" gives pictures of validation passages.
    """
    passages.check(config)
    reader, spec = Reader(config), config.data
    if config.permute_entities not in PERMUTATIONS:
        raise UserError(
            f"config.permute_entities = {config.permute_entities!r}: choose one of {PERMUTATIONS}"
        )
    statistics = {"batch_stats": reader.population()} if reader.batch else {}

    def init(key):
        return {"params": reader.init(key), **statistics}

    def loss(vars, batch, key):
        dropout_key, names_key = jax.random.split(key)
        if config.permute_entities != "never":
            batch = renamed(
                batch, jax.random.permutation(names_key, spec.entities), spec
            )
        params = vars["params"]
        reading = reader.read(params, batch, key=dropout_key)
        likely, wrong = reader.answered(params, reading.readout, batch["answer"])
        nll = -likely.mean()
        new = (
            {"batch_stats": reader.remember(vars["batch_stats"], reading.seen)}
            if reader.batch
            else {}
        )
        return nll, (new, {"nll": nll, "error": wrong.mean()})

    def test(vars, batch):
        """A reading with population statistics, or the batch's own where the config asks for the authors' way."""
        own = config.model.evaluation_statistics == "batch"
        return reader.read(
            vars["params"], batch, population=None if own else vars.get("batch_stats")
        )

    def values(vars, batch):
        if config.permute_entities == "always":  # one renaming for the whole evaluation
            batch = renamed(
                batch,
                jax.random.permutation(jax.random.key(config.seed), spec.entities),
                spec,
            )
        g, answer = test(vars, batch).readout, batch["answer"]
        (likely, wrong), scores = (
            reader.answered(vars["params"], g, answer),
            reader.scores(vars["params"], g),
        )
        rows = jnp.arange(len(answer))[:, None]
        # padding marks column 0, which is no entity
        present = jnp.zeros(scores.shape, bool).at[rows, batch["passage"]].set(True)
        word = jnp.arange(reader.vocabulary)
        present &= (word >= FIRST_ENTITY) & (word < FIRST_ENTITY + spec.entities)
        chosen = jnp.where(present, scores, -jnp.inf).argmax(-1)
        return {
            "nll": -likely,
            "error": wrong.astype(jnp.float32),
            "entity_error": (chosen != answer).astype(jnp.float32),
        }

    @jax.jit
    def look(vars, batch):
        reading = test(vars, batch)
        return reading.attention.T, reader.scores(
            vars["params"], reading.readout
        ).argmax(-1)

    means = evaluation.mean_over_examples(values)

    @functools.cache
    def questions(split):
        columns = passages.load(config, split)
        rows = evenly_spaced(len(columns["answer"]), config.evaluation_questions)
        if len(rows) < len(columns["answer"]):
            columns = passages.rows_of(columns, rows)
        return columns, passages.frequency_errors(columns, spec.entities)

    def evaluate(vars, split):
        if split == "attention":
            columns, _ = questions("valid")
            words, caption = (
                data.facts(spec.name, spec.dir)["words"],
                f"{spec.name} (valid), norm {config.norm}",
            )
            return pictures.all_of(
                config, columns, words, functools.partial(look, vars), caption
            )
        columns, known = questions(split)
        found = means(vars, passages.validation(config, columns))
        return Evaluation(found | known)

    def batches(start_step):
        return passages.training(config, passages.load(config, "train"), start_step)

    return Experiment(init, loss, batches, evaluate)


def renamed(batch, permutation: jax.Array, spec: ConfigDict):
    """The batch with its entities' ids permuted, alike in passages, questions and answers; permutation (E,)."""
    ids = (
        jnp.arange(spec.vocabulary)
        .at[FIRST_ENTITY : FIRST_ENTITY + spec.entities]
        .set(FIRST_ENTITY + permutation)
    )
    return {
        **batch,
        **{name: ids[batch[name]] for name in ("passage", "question", "answer")},
    }
