"""Evaluation of whole splits: every example counts once, padding does not count.

Shape letters: B batch, N examples.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.engine import distribute
from lnrepro.engine.experiment import Eval, Evaluation, Metrics

# Batches that are dispatched ahead of the devices.
AHEAD = 4
Array = Any
Vars = Mapping[str, Any]
Batch = Mapping[str, Array]


def mean_over_examples(
    values: Callable[[Vars, Batch], Mapping[str, Array]],
) -> Callable[[Vars, Iterable[Batch]], dict[str, float]]:
    """Make a function that averages over all examples.

    `values` is compiled here, so call this once in `make`.

    Args:
      values: (vars, batch) -> {name: [B]}.

    Returns:
      (vars, batches) -> {name: mean}. Each batch has a "mask" [B], 1 for an example and
      0 for padding. Sums within a batch run on the devices in float32, sums over
      batches on the host in float64.
    """

    @jax.jit
    def sums(vars, batch):
        mask = batch["mask"]
        # Padding may hold anything, even NaN, which times 0 is NaN.
        totals = {
            name: jnp.where(mask > 0, v, 0).sum()
            for name, v in values(vars, batch).items()
        }
        return totals, mask.sum()

    def mean(vars, batches):
        found = []
        for batch in batches:
            found.append(sums(vars, distribute.like(vars, batch)))
            # Some batches are dispatched ahead, so that the devices do not wait for the
            # host. With all of them, their memory would be taken at once.
            jax.block_until_ready(found[-AHEAD - 1 : -AHEAD])
        count = sum(float(rows) for _, rows in found)
        means = {}
        for name in found[0][0]:
            means[name] = sum(float(totals[name]) for totals, _ in found) / count
        return means

    return mean


def split_eval(
    config: ConfigDict,
    split: str,
    evaluate: Callable[[Vars, str], Evaluation],
    metrics: Metrics | None,
) -> Eval:
    """Make an evaluation of a split of the data set.

    Args:
      config: the config, which names the data set.
      split: the split. Before training it is checked that there is one.
      evaluate: (vars, split) -> Evaluation.
      metrics: what it measures; None: not known before.
    """

    def run(vars):
        return evaluate(vars, split)

    def known():
        data.open_columns(config.data.name, split, config.data.dir)
        return metrics

    return Eval(run, known)


def split_evals(
    config: ConfigDict, evaluate: Callable[[Vars, str], Evaluation], metrics: Metrics
) -> dict[str, Eval]:
    """Make an evaluation of each split that `config.evals` names.

    Args:
      config: the config.
      evaluate: (vars, split) -> Evaluation.
      metrics: what it measures.
    """
    return {
        split: split_eval(config, split, evaluate, metrics) for split in config.evals
    }


def classification(logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
    """Compute the loss and the error of every example.

    Args:
      logits: [B, classes].
      labels: [B], integers.

    Returns:
      {"nll": [B] in nats, "error": [B], 1 where another class has the largest logit}.
    """
    log_probabilities = jax.nn.log_softmax(logits)
    # [B] -> [B, 1], since take_along_axis needs an index of the same rank.
    index = labels[:, None].astype(int)
    nll = -jnp.take_along_axis(log_probabilities, index, axis=-1)[:, 0]
    error = logits.argmax(-1) != labels
    return {"nll": nll, "error": error.astype(jnp.float32)}


def rows_of_examples(
    values: Callable[[Vars, Batch], Array],
) -> Callable[[Vars, Iterable[Batch], int], np.ndarray]:
    """Make a function that collects a row for every example.

    Args:
      values: (vars, batch) -> [B, ...].

    Returns:
      (vars, batches, N) -> [N, ...], whose row i belongs to example i. Each batch has a
      "mask" and an "index" [B], as those of `lnrepro.data.batches.eval_batches`. With
      several processes each needs all rows: give batches with `process=(0, 1)`. It
      raises ValueError unless the batches have as many examples.
    """
    run = jax.jit(values)

    def rows(vars, batches, count):
        out, missing = None, count
        for batch in batches:
            # With several processes, each has all rows and computes them by itself.
            placed = batch if jax.process_count() > 1 else distribute.like(vars, batch)
            found = np.asarray(run(vars, placed))
            # The last batch is padded with rows that belong to no example.
            is_example = np.asarray(batch["mask"]) > 0
            if out is None:
                # The shape of a row is known only from the first batch.
                out = np.empty((count, *found.shape[1:]), found.dtype)
            out[batch["index"][is_example]] = found[is_example]
            missing -= is_example.sum()
        if out is None or missing:
            raise ValueError(f"{missing} of {count} examples are in no batch")
        return out

    return rows
