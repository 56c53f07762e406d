"""Loss and gradient of every experiment on inputs that no data set should hold.

Neither may be NaN or infinite. Real-valued inputs (the word vectors, in experiments
that read words) are scaled by 1e-6 to 1e6 and constant, all words are one, and
sequences are empty. A NaN in an input must reach the loss, because the trainer watches
the loss.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.engine import experiment
from tests.experiments.small import config_of
from tests.precisions import precisions

HIGHEST = jax.lax.Precision.HIGHEST
SCALES = (1e-6, 1e-3, 1.0, 1e3, 1e6)
ROWS = 4
# Longest sequence. The layer norm of zeros multiplies a gradient by 1 / sqrt(eps) = 316
# in every step, so that the true gradient of 15 steps is beyond float32.
LONGEST = 10
# Names of the real-valued inputs in a batch, or else of the word vectors in the
# parameters.
INPUTS = {
    "mnist": ("image",),
    "convnet": ("image",),
    "draw": ("image",),
    "handwriting": ("steps",),
    "order_embeddings": ("image", "words"),
    "attentive_reader": ("embedding",),
    "skip_thoughts": ("embedding",),
}
QUICK = ("mnist", "order_embeddings")
SLOW = [name for name in INPUTS if name not in QUICK]


def opened(name, norm):
    """The experiment and its first batch, with inputs as real numbers."""
    config = config_of(name, norm=norm, batch_size=ROWS)
    exp = experiment.load(experiment.with_sizes(config))
    batch = dict(next(iter(exp.batches(0))))
    for entry in batch.keys() & set(INPUTS[name]):
        batch[entry] = np.asarray(batch[entry], np.float32)
    for entry in lengths_of(batch):
        batch[entry] = np.minimum(batch[entry], LONGEST)
    return exp, batch


def lengths_of(batch):
    return [name for name in batch if name.endswith("length")]


def not_finite(tree):
    """The names of the leaves with a NaN or infinity."""
    leaves = jax.tree.leaves_with_path(tree)
    return [jax.tree_util.keystr(p) for p, x in leaves if not np.isfinite(x).all()]


def extremes(x):
    """Yield scaled arrays, and constant ones, whose variance is 0."""
    for scale in SCALES:
        yield x * jnp.asarray(scale, x.dtype)
        yield jnp.full_like(x, scale)
    yield jnp.zeros_like(x)


def stresses(inputs, params, batch):
    """Yield (params, batch), all of one shape."""
    # A name may be one of both.
    values = [extremes((params | batch)[name]) for name in inputs]
    for changed in zip(*values, strict=True):
        new_params, new_batch = dict(params), dict(batch)
        for name, value in zip(inputs, changed, strict=True):
            (new_batch if name in batch else new_params)[name] = value
        yield new_params, new_batch
    # Every other entry but the lengths becomes zero: one word, one class.
    lengths = lengths_of(batch)
    words = {k: v for k, v in batch.items() if k not in (*inputs, *lengths)}
    yield params, batch | jax.tree.map(jnp.zeros_like, words)
    # Each length by itself, and all of them together: all rows empty, then only one.
    for names in (*([name] for name in lengths), lengths):
        for rows in (slice(None), 0):
            yield params, batch | {n: batch[n].at[rows].set(0) for n in names}


def poisons(inputs, params, batch):
    """Yield (where, params, batch) with NaN in a row of an input or in a parameter."""
    for name in batch.keys() & set(inputs):
        # Only the last row: the mean over the batch must still show it.
        yield name, params, batch | {name: batch[name].at[-1].set(jnp.nan)}
    leaves, tree = jax.tree.flatten(params)
    for i, leaf in enumerate(leaves):
        poisoned = [*leaves[:i], jnp.full_like(leaf, jnp.nan), *leaves[i + 1 :]]
        yield i, jax.tree.unflatten(tree, poisoned), batch


def assert_sound(name, norm):
    exp, batch = opened(name, norm)
    collections = dict(jax.jit(exp.init)(jax.random.key(0, impl="rbg")))
    params, batch = jax.tree.map(jnp.asarray, (collections.pop("params"), batch))
    key = jax.random.key(1, impl="rbg")

    # One program for all inputs, since they have one shape.
    @jax.jit
    def step(params, batch):
        def loss(params):
            return exp.loss({"params": params, **collections}, batch, key)

        return jax.value_and_grad(loss, has_aux=True)(params)

    tried = [not_finite(step(p, b)) for p, b in stresses(INPUTS[name], params, batch)]
    assert len(tried) >= 12
    assert not any(tried), tried
    (_, (_, numbers)), _ = step(params, batch)
    # A share of the batch, whatever its size.
    assert 0 <= numbers.get("error", 0) <= 1
    for where, p, b in poisons(INPUTS[name], params, batch):
        (value, _), _ = step(p, b)
        assert not np.isfinite(value), where


@pytest.mark.parametrize("name", QUICK)
def test_finite_at_the_start(name):
    assert_sound(name, "layer")


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_finite_at_the_start_under_the_last_norm(name):
    allowed = experiment.fields(f"experiments.{name}")["norm"].allowed
    assert_sound(name, allowed[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_products_of_the_gradient_have_the_precision_of_the_loss(name):
    """Also where JAX traces the gradient outside of the loss's context."""
    exp, batch = opened(name, "layer")
    key = jax.random.key(1)
    start = jax.eval_shape(exp.init, key)

    @jax.jit
    def loss(params):
        with jax.default_matmul_precision("high"):
            return exp.loss({**start, "params": params}, batch, key)[0]

    found = set(precisions(jax.make_jaxpr(jax.grad(loss))(start["params"])))
    # Some products have the highest precision whatever the caller's is.
    known = [(precision,) * 2 for precision in (jax.lax.Precision.HIGH, HIGHEST)]
    assert known[0] in found
    assert found <= set(known)
