"""What stands behind the end of a text or a line changes neither loss nor gradient."""

import contextlib

import jax
import numpy as np
import pytest

from lnrepro.engine import experiment
from tests.experiments.small import config_of

# Norm, and the fields of a batch that have a length each.
PADDED = {
    "handwriting": ("layer", ("steps", "text")),
    "attentive_reader": ("batch_everywhere", ("passage", "question")),
    "skip_thoughts": ("layer", ("previous", "current", "next")),
    "order_embeddings": ("layer", ("tokens",)),
}


def spoilt(values, length):
    """The array with other values behind the lengths of its rows."""
    is_padding = np.arange(values.shape[1]) >= length[:, None]
    is_padding = is_padding.reshape(*is_padding.shape, *[1] * (values.ndim - 2))
    rubbish = np.nan if values.dtype.kind == "f" else 1
    return np.where(is_padding, rubbish, values).astype(values.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("name", PADDED)
def test_padding_leaves_no_trace(name):
    norm, fields = PADDED[name]
    config = config_of(name, norm=norm, batch_size=4)
    if name == "order_embeddings":
        # Tokens in one part.
        config.packed = False
    exp = experiment.load(experiment.with_sizes(config))
    vars = jax.jit(exp.init)(jax.random.key(0))
    with contextlib.closing(exp.batches(0)) as batches:
        batch = jax.tree.map(np.asarray, dict(next(batches)))
    junk = dict(batch)
    for field in fields:
        length = batch.get(f"{field}_length", batch.get("length"))
        junk[field] = jax.tree.map(lambda a, n=length: spoilt(a, n), batch[field])

    @jax.jit
    def run(params, batch):
        return exp.loss(vars | {"params": params}, batch, jax.random.key(1))

    gradient = jax.value_and_grad(run, has_aux=True)
    found, clean = (gradient(vars["params"], b) for b in (junk, batch))
    assert np.isfinite(clean[0][0])
    for a, b in zip(*map(jax.tree.leaves, (found, clean)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
