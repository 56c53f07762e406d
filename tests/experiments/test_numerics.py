"""Loss and gradient of every experiment on inputs that no data set should hold.

Neither may be NaN or infinite. Real-valued inputs (the word vectors, in experiments
that read words) are scaled by 1e-6 to 1e6 and constant, all words are one, and
sequences are empty. A NaN in an input must reach the loss, because the trainer watches
the loss.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from lnrepro.engine import config_file, experiment, train
from lnrepro.engine.run import Run
from lnrepro.errors import RunError
from lnrepro.functional import norms
from tests.engine.toy import final_state
from tests.precisions import precisions
from tests.refused import refused
from tests.runs import ROOT

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


def norms_of(name):
    return experiment.fields(f"experiments.{name}")["norm"].allowed


def opened(name, norm):
    """The config, the experiment and its first batch, with inputs as real numbers."""
    flags = (f"--config.norm={norm}", f"--config.batch_size={ROWS}")
    config = config_file.read(f"{ROOT}/configs/{name}.py:smoke", flags)
    exp = experiment.load(experiment.with_sizes(config))
    batch = dict(next(iter(exp.batches(0))))
    for entry in batch.keys() & set(INPUTS[name]):
        batch[entry] = np.asarray(batch[entry], np.float32)
    for entry in lengths_of(batch):
        batch[entry] = np.minimum(batch[entry], LONGEST)
    return config, exp, batch


def lengths_of(batch):
    return [name for name in batch if name.endswith("length")]


def as_floats(tree, dtype):
    """The tree as arrays, real numbers in `dtype`."""

    def cast(a):
        real = jnp.issubdtype(jnp.result_type(a), jnp.floating)
        return jnp.asarray(a, dtype if real else None)

    return jax.tree.map(cast, tree)


def not_finite(tree):
    """The names of the leaves with a NaN or infinity."""
    leaves = jax.tree.leaves_with_path(as_floats(tree, jnp.float32))
    return [jax.tree_util.keystr(p) for p, x in leaves if not np.isfinite(x).all()]


def extremes(x):
    """Yield scaled arrays, and constant ones, whose variance is 0."""
    for scale in SCALES:
        yield x * jnp.asarray(scale, x.dtype)
        yield jnp.full_like(x, scale)
    yield jnp.zeros_like(x)


def stresses(inputs, params, batch):
    """Yield (params, batch), all of one shape."""
    sources = {name: batch if name in batch else params for name in inputs}
    values = [extremes(sources[name][name]) for name in inputs]
    for changed in zip(*values, strict=True):
        new = dict(zip(inputs, changed, strict=True))
        of_batch = {name: new[name] for name in inputs if name in batch}
        of_params = {name: new[name] for name in new.keys() - of_batch.keys()}
        yield params | of_params, batch | of_batch
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


def assert_sound(name, norm, dtype):
    _, exp, batch = opened(name, norm)
    collections = dict(jax.jit(exp.init)(jax.random.key(0, impl="rbg")))
    params, batch = as_floats((collections.pop("params"), batch), dtype)
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
    for where, p, b in poisons(INPUTS[name], params, batch):
        (value, _), _ = step(p, b)
        assert not np.isfinite(value), where


@pytest.mark.parametrize("name", QUICK)
def test_finite_at_the_start(name):
    assert_sound(name, "layer", jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_finite_at_the_start_under_the_last_norm(name):
    assert_sound(name, norms_of(name)[-1], jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "convnet"])
def test_finite_at_the_start_in_bfloat16(name):
    assert_sound(name, "layer", jnp.bfloat16)


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_products_of_the_gradient_have_the_precision_of_the_loss(name):
    """Also where JAX traces the gradient outside of the loss's context."""
    _, exp, batch = opened(name, "layer")
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


NORMS = {
    "layer": norms.layer_norm,
    "batch": lambda x: norms.batch_norm(x)[0],
    "unbiased batch": lambda x: norms.batch_norm(x[:1], unbiased=True)[0],
    "masked batch": lambda x: norms.batch_norm(x, mask=jnp.zeros(6))[0],
    "weight": lambda x: norms.weight_norm(x, jnp.ones(5)),
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_norms(norm, dtype):
    step = jax.jit(jax.value_and_grad(lambda x: (NORMS[norm](x) ** 2).sum()))
    drawn = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    for x in extremes(drawn):
        assert not_finite(step(jnp.asarray(x, dtype))) == [], x.ravel()[:3]


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        functional.SimpleCell(5, norm="layer"),
        functional.GRUCell(5, norm="layer"),
        functional.LSTMCell(5, norm="layer"),
        functional.LSTMCell(5, norm="batch"),
    ],
    ids=["simple", "gru", "lstm", "lstm-batch"],
)
def test_cells_in_bfloat16(cell):
    params = cell.init(jax.random.key(0), 3, jnp.bfloat16)

    def run(params, x, lengths):
        outputs = functional.unroll(cell, params, x, seq_lengths=lengths).outputs
        return outputs.astype(jnp.float32).sum()

    step = jax.jit(jax.value_and_grad(run, argnums=(0, 1)))
    x = np.random.default_rng(0).normal(size=(ROWS, 7, 3)).astype(np.float32)
    for lengths in np.array([[7] * 4, [0] * 4, [0, 1, 7, 3]]):
        # NaN in the padding must not reach outputs or gradients.
        padding = np.arange(7)[None, :, None] >= lengths[:, None, None]
        for inputs in (*extremes(x), np.where(padding, np.nan, x)):
            found = step(params, jnp.asarray(inputs, jnp.bfloat16), lengths)
            assert not_finite(found) == []


def test_the_guard_stops_a_run_and_keeps_the_last_good_checkpoint(
    tmp_path, monkeypatch
):
    config, exp, batch = opened("mnist", "layer")
    config.batch_size, config.steps, config.steps_per_call = ROWS, 6, 1
    config.log_every = config.save_every = 2
    config.evals, config.curves, config.best.metric = {}, (), None

    def batches(start):
        for k in itertools.count(start):
            factor = np.float32(np.nan if k == 4 else 1)
            yield batch | {"image": batch["image"] * factor}

    broken = exp._replace(batches=batches)
    monkeypatch.setattr(experiment, "load", lambda c: broken)
    monkeypatch.setattr(Run, "data_identity", lambda run: ("made up", {}))
    kept = "is nan at step 5: stopped; the last good checkpoint is kept"
    with refused(kept, error=RunError):
        train.train(config, tmp_path)
    # Step 5 had the NaN, and a checkpoint is saved every second step.
    saved = final_state(tmp_path)
    assert saved.step == 4
    assert not_finite(saved.state) == []
    assert not (tmp_path / "results.json").exists()
