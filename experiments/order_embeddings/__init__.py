"""Order-embeddings of images and captions (section 6.1, Figure 1, Table 2): retrieval of the one by the other.

`config.norm`: "none", or "layer" (eq. 26-28 in the caption GRU; words and images are not normalised).
`config.model.similarity`: "order", or "cosine" for the symmetric row of Table 2 (with margin 0.2).
"""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.batches import Plan, eval_batches, train_batches
from lnrepro.data.official.captions import PER_IMAGE, Captions
from lnrepro.data.ragged import forget_pages
from lnrepro.engine import evaluation, retrieval
from lnrepro.engine.errors import DataError, UserError
from lnrepro.engine.experiment import Evaluation, Experiment

from . import pictures, table
from .model import Encoders
from .ranking import ERRORS, ranking_loss


def make(config: ConfigDict) -> Experiment:
    """The experiment; recalls are percent, ranks count from 1, ties count against us (`lnrepro.engine.retrieval`).

    evaluate's splits: "valid" is one fold, the first `evaluation.fold` images; "test" the mean over `evaluation.folds`
    folds; "final" is "test" with pictures of what was retrieved, and Table 2. Every name but "final" opens that split.
    """
    encoders, errors = Encoders(config), ERRORS[config.model.similarity]
    if (
        list(config.buckets) != sorted(set(config.buckets))
        or not config.buckets
        or config.buckets[0] < 2
    ):
        raise UserError(
            f"config.buckets = {config.buckets}: ascending numbers of steps, a word and the end token at least"
        )
    buckets = np.array(config.buckets)
    packed = config.packed and jax.device_count() == 1

    def init(key):
        return {"params": encoders.init(key)}

    def loss(vars, batch, key):
        del key
        captions = encoders.captions(vars["params"], batch["tokens"], batch["length"])
        images = encoders.images(vars["params"], batch["image"])
        found = errors(captions, images)
        own, count = jnp.diag(found).mean(), len(found)
        other = (found.mean() - own / count) * count / max(count - 1, 1)
        return ranking_loss(found, config.margin), (
            {},
            {"own_error": own, "other_error": other},
        )

    embed_captions = evaluation.rows_of_examples(
        lambda vars, batch: encoders.captions(
            vars["params"], batch["tokens"], batch["length"]
        )
    )
    embed_images = evaluation.rows_of_examples(
        lambda vars, batch: encoders.images(vars["params"], batch["image"])
    )

    def batches(start_step: int) -> Iterator:
        columns, captions = _open(config, "train")
        plan = Plan(len(columns["image"]), config.batch_size, config.seed)

        def draw(rows, draws):
            forget_pages(columns["image"])
            tokens, length = captions.take(
                _drawn(rows["row"], draws), config.buckets[-1]
            )
            return {"image": rows["image"], "tokens": tokens, "length": length}

        held = {"image": columns["image"], "row": np.arange(plan.size)}
        stream = train_batches(held, plan, start_step=start_step, transform=draw)
        return _shaped(stream, plan, captions, start_step)

    def _shaped(stream, plan, captions, k) -> Iterator:
        """Batches as long as the longest caption drawn needs, over all processes."""
        with stream:
            for k, batch in enumerate(stream, k):  # noqa: B020
                longest = captions.lengths[_drawn(plan.rows(k), plan.draws(k))].max()
                batch = batch | {"tokens": (batch["tokens"][:, : _bucket(longest)],)}
                yield in_parts(batch, config.buckets) if packed else batch

    def _bucket(steps: int) -> int:
        return int(buckets[np.searchsorted(buckets, steps)])

    def embed(vars, columns, captions, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The first `count` images (count, K), and their captions (5 count, K)."""
        size, everything = (
            config.eval_batch_size,
            (0, 1),
        )  # several processes: each evaluates all of it
        images = {"image": columns["image"][:count]}
        lengths = captions.lengths[: PER_IMAGE * count]
        order = eval_batches(
            {"row": np.arange(len(lengths))},
            size,
            lengths=lengths,
            buckets=config.buckets,
            process=everything,
        )

        def with_tokens():
            for batch in order:
                steps = _bucket(lengths[batch["index"]].max())
                tokens, length = captions.take(batch.pop("row"), steps)
                yield batch | {"tokens": (tokens,), "length": length}

        found = embed_images(
            vars, eval_batches(images, size, process=everything), count
        )
        forget_pages(columns["image"])
        return found, embed_captions(vars, with_tokens(), len(lengths))

    def evaluate(vars, split):
        name, e = "test" if split == "final" else split, config.evaluation
        columns, captions = _open(config, name)
        count = e.fold * (1 if name == "valid" else e.folds)
        if len(columns["image"]) < count:
            raise DataError(
                f"{config.data.name} ({name}) has {len(columns['image'])} images, too few for {count // e.fold} of "
                f"{e.fold}: set config.evaluation.fold and .folds to what there is"
            )
        found, texts = embed(vars, columns, captions, count)
        scores = retrieval.mean_over_folds(errors, texts, found, e.fold)
        scores["image_recall_sum"] = sum(
            scores[f"image_r{k}"] for k in retrieval.RECALLS
        )
        if split != "final":
            return Evaluation(scores)
        matrix = retrieval.error_matrix(
            errors, texts[: PER_IMAGE * e.fold], found[: e.fold]
        )
        words = data.facts(config.data.name, config.data.dir)
        picture = pictures.retrievals(
            matrix, columns, captions, words, config.data.name
        )
        text = table.beside_the_paper((config, scores))
        return Evaluation(scores, {"retrievals": picture}, {"table2.md": text})

    return Experiment(init, loss, batches, evaluate)


def in_parts(batch: dict, edges: tuple[int, ...]) -> dict:
    """A batch with its pairs sorted from the longest caption to the shortest, its tokens (B, T) cut in time at `edges`.

    Each part keeps the rows that have not ended, rounded up to a quarter of the batch for the sake of few shapes. The
    loss does not depend on the order of the pairs, and a third of the steps goes on average. For one device: several
    would hold parts of different rows.
    """
    order = np.argsort(-batch["length"], kind="stable")
    batch = batch | {name: batch[name][order] for name in ("image", "length")}
    (tokens,), length = batch["tokens"], batch["length"]
    rows, steps = tokens.shape
    cuts = (0, *(edge for edge in edges if edge < steps), steps)
    quarter = -(-rows // 4)
    parts = []
    for start, end in itertools.pairwise(cuts):
        alive = int((length > start).sum())
        parts.append(
            tokens[order][: min(rows, -(-alive // quarter) * quarter), start:end]
        )
    return batch | {"tokens": tuple(parts)}


def _drawn(images: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """One of the five captions of each image (B,), by a uniform number in [0, 1) for each."""
    return PER_IMAGE * images + (PER_IMAGE * draws).astype(np.int64)


def _open(config: ConfigDict, split: str) -> tuple[dict, Captions]:
    """A split's columns and captions, held against the sizes in the config. Raises DataError where they differ."""
    spec, columns = config.data, data.open_config(config.data, split)
    facts = data.facts(spec.name, spec.dir)
    kinds = ("words", "dev_words") if spec.dev_words else ("words",)
    known = 2 + sum(len(facts[kind]) for kind in kinds)
    if known > spec.vocabulary:
        raise DataError(
            f"config.data.vocabulary = {spec.vocabulary}, but {spec.name} has {known} words with <eos> and <unk>"
        )
    if (features := columns["image"].shape[1]) != config.model.features:
        raise DataError(
            f"config.model.features = {config.model.features}, but {spec.name} has {features} an image"
        )
    return columns, Captions(columns, known, config.buckets[-1])
