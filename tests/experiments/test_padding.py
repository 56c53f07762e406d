"""What stands behind the end of a text or a line changes neither loss nor gradient."""

import contextlib

import jax
import numpy as np
import pytest

from lnrepro.engine import config_file, experiment
from tests.runs import ROOT

# Norm, and the fields of a batch that have a length each.
PADDED = {
    "handwriting": ("layer", {"steps": "steps_length", "text": "text_length"}),
    "attentive_reader": (
        "batch_everywhere",
        {"passage": "passage_length", "question": "question_length"},
    ),
    "skip_thoughts": (
        "layer",
        {name: f"{name}_length" for name in ("previous", "current", "next")},
    ),
    "order_embeddings": ("layer", {"tokens": "length"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PADDED)
def test_padding_leaves_no_trace(name):
    norm, fields = PADDED[name]
    config = config_file.read(f"{ROOT}/configs/{name}.py:smoke")
    config.norm, config.batch_size = norm, 4
    if name == "order_embeddings":
        # Tokens in one part.
        config.packed = False
    exp = experiment.load(experiment.with_sizes(config))
    vars = jax.jit(exp.init)(jax.random.key(0))
    with contextlib.closing(exp.batches(0)) as batches:
        batch = jax.tree.map(np.asarray, dict(next(batches)))
    junk = dict(batch)
    for field, length in fields.items():
        (values,) = jax.tree.leaves(batch[field])
        is_padding = np.arange(values.shape[1]) >= batch[length][:, None]
        is_padding = is_padding.reshape(*is_padding.shape, *[1] * (values.ndim - 2))
        rubbish = np.nan if values.dtype.kind == "f" else 1
        changed = np.where(is_padding, rubbish, values).astype(values.dtype)
        junk[field] = jax.tree.map(lambda _, new=changed: new, batch[field])

    @jax.jit
    def run(params, batch):
        return exp.loss(vars | {"params": params}, batch, jax.random.key(1))

    gradient = jax.value_and_grad(run, has_aux=True)
    found, clean = (gradient(vars["params"], b) for b in (junk, batch))
    assert np.isfinite(clean[0][0])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        found,
        clean,
    )
