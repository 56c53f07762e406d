"""Evaluation on whole splits: every example counted once, padding masked out, on as many devices as the parameters."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.engine import distribute

Array = Any


def mean_over_examples(
    values: Callable[[Mapping[str, Any], Mapping[str, Array]], Mapping[str, Array]],
) -> Callable[[Mapping[str, Any], Iterable[Mapping[str, Array]]], dict[str, float]]:
    """Make `mean(vars, batches) -> {name: float}` from `values(vars, batch) -> {name: (B,)}`.

    Each batch has a "mask" (B,): 1 for an example, 0 for padding. Sums are formed per batch on the devices (in float32),
    over batches on the host (in float64); `values` is compiled once, here, so call this in `make` and not per evaluation.
    Raises ValueError if the batches hold no example.
    """

    @jax.jit
    def sums(vars, batch):
        mask = batch["mask"]
        return {
            name: (v * mask).sum() for name, v in values(vars, batch).items()
        }, mask.sum()

    def mean(vars, batches):
        # All batches are dispatched before the first sum is read, so the devices never wait for the host.
        parts = [sums(vars, distribute.like(vars, batch)) for batch in batches]
        count = sum(float(n) for _, n in parts)
        if not count:
            raise ValueError(
                "no example to evaluate: every row of every batch is masked"
            )
        return {
            name: sum(float(np.asarray(s[name])) for s, _ in parts) / count
            for name in parts[0][0]
        }

    return mean


def classification(logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
    """Per case, from logits (B, classes) and labels (B,): "nll" in nats, and "error", 1 where the largest logit is another's."""
    nll = -jnp.take_along_axis(
        jax.nn.log_softmax(logits), labels[:, None].astype(int), axis=-1
    )[:, 0]
    return {"nll": nll, "error": (logits.argmax(-1) != labels).astype(jnp.float32)}


def rows_of_examples(
    values: Callable[[Mapping[str, Any], Mapping[str, Array]], Array],
) -> Callable[[Mapping[str, Any], Iterable[Mapping[str, Array]], int], np.ndarray]:
    """Make `rows(vars, batches, count) -> (count, ...)` from `values(vars, batch) -> (B, ...)`: row i is example i's.

    Each batch has a "mask" and an "index" (B,), as `lnrepro.data.batches.eval_batches` gives them; several processes
    need all rows each, so give them batches with `process=(0, 1)`. Raises ValueError unless every example comes.
    """
    run = jax.jit(values)

    def rows(vars, batches, count):
        out, seen = None, np.zeros(count, bool)
        for batch in batches:
            placed = batch if jax.process_count() > 1 else distribute.like(vars, batch)
            found, real = np.asarray(run(vars, placed)), np.asarray(batch["mask"]) > 0
            out = (
                np.empty((count, *found.shape[1:]), found.dtype) if out is None else out
            )
            out[batch["index"][real]], seen[batch["index"][real]] = found[real], True
        if not seen.all():
            raise ValueError(
                f"{count - seen.sum()} of {count} examples are in no batch"
            )
        return out

    return rows
