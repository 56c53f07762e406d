"""No NaN out of any experiment unless one went in, and what stops a run then."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from lnrepro.engine import experiment, train
from lnrepro.errors import RunError
from lnrepro.functional import norms
from tests import runs
from tests.engine.toy import final_state
from tests.hardening.numerics import (
    INPUTS,
    ROWS,
    SCALES,
    check,
    compiled,
    norms_of,
    not_finite,
    opened,
)

# The first experiment runs always, and the others only with the slow tests.
LATER = [pytest.param(name, marks=pytest.mark.slow) for name in list(INPUTS)[1:]]


def assert_sound(name, norm, dtype):
    # At least so many inputs, so that an empty list cannot pass.
    tried, wrong, put, unseen = check(name, norm, dtype)
    assert tried >= 12
    assert put > 5
    assert wrong == {}
    assert unseen == []


@pytest.mark.parametrize("name", ["mnist", "order_embeddings"])
def test_finite_at_the_start(name):
    assert_sound(name, "layer", jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in INPUTS if name not in ("mnist", "order_embeddings")]
)
def test_finite_at_the_start_under_the_last_norm(name):
    assert_sound(name, norms_of(name)[-1], jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "convnet"])
def test_finite_at_the_start_in_bfloat16(name):
    assert_sound(name, "layer", jnp.bfloat16)


def inputs_like(x):
    # Scaled inputs and constant ones; a constant has variance 0.
    return [x * s for s in SCALES] + [jnp.full_like(x, s) for s in (0, *SCALES)]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_norms(dtype):
    for name, f in {
        "layer": norms.layer_norm,
        "batch": lambda x: norms.batch_norm(x)[0],
        "unbiased batch": lambda x: norms.batch_norm(x[:1], unbiased=True)[0],
        "masked batch": lambda x: norms.batch_norm(x, mask=jnp.zeros(6))[0],
        "weight": lambda x: norms.weight_norm(x, jnp.ones(5)),
    }.items():
        step = compiled(
            jax.value_and_grad(
                lambda x, f=f: jnp.square(f(x)).astype(jnp.float32).sum()
            )
        )
        for x in inputs_like(np.random.default_rng(0).normal(size=(6, 5))):
            assert not_finite(step(x.astype(dtype))) == [], (name, x.ravel()[:3])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "norm"),
    [
        ("SimpleCell", "layer"),
        ("GRUCell", "layer"),
        ("LSTMCell", "layer"),
        ("LSTMCell", "batch"),
    ],
)
def test_cells_in_bfloat16(kind, norm):
    cell = getattr(functional, kind)(5, norm=norm)
    params = cell.init(jax.random.key(0), 3, jnp.bfloat16)

    @compiled
    def step(params, x, lengths):
        def run(params, x):
            outputs = functional.unroll(cell, params, x, seq_lengths=lengths).outputs
            return outputs.astype(jnp.float32).sum()

        return jax.value_and_grad(run, argnums=(0, 1))(params, x)

    x = np.random.default_rng(0).normal(size=(ROWS, 7, 3))
    for lengths in np.array([[7] * 4, [0] * 4, [0, 1, 7, 3]]):
        # NaN in the padding must not reach outputs or gradients.
        padding = np.arange(7)[None, :, None] >= lengths[:, None, None]
        for inputs in (*inputs_like(x), np.where(padding, np.nan, x)):
            assert (
                not_finite(step(params, jnp.asarray(inputs, jnp.bfloat16), lengths))
                == []
            )


def poisoned(exp, entry, batch, at):
    """Repeat one batch, in which `entry` is NaN in the step after `at`."""
    batch = jax.tree.map(
        lambda a: np.asarray(a, np.float32 if a.dtype == float else a.dtype), batch
    )
    # made here, for most of a compiled step's time would go into drawing the first
    # parameters
    first = jax.tree.map(
        lambda a: np.random.default_rng(0).normal(0, 0.1, a.shape).astype(a.dtype),
        jax.eval_shape(exp.init, jax.random.key(0)),
    )

    # `factor` is NaN in one batch and 1 in all others.
    def batches(start):
        for k in itertools.count(start):
            yield {
                "batch": batch,
                "factor": np.full(ROWS, np.nan if k == at else 1, np.float32),
            }

    def loss(vars, batch, key):
        factor, batch = batch["factor"][0], batch["batch"]
        if entry in batch:
            return exp.loss(vars, batch | {entry: batch[entry] * factor}, key)
        params = vars["params"]
        return exp.loss(
            vars | {"params": params | {entry: params[entry] * factor}}, batch, key
        )

    return exp._replace(init=lambda key: first, batches=batches, loss=loss)


@pytest.mark.parametrize("name", ["mnist", *LATER])
def test_the_guard_stops_each_experiment_and_keeps_the_last_good_checkpoint(
    name, tmp_path, monkeypatch
):
    config, exp, batch = opened(name, "layer")
    config.batch_size, config.steps, config.steps_per_call = ROWS, 6, 1
    config.log_every = config.save_every = 2
    config.evals, config.curves, config.best.metric = {}, (), None
    monkeypatch.setattr(
        experiment,
        "load",
        lambda c: poisoned(exp, INPUTS[name][0], batch, 4),
    )
    monkeypatch.setattr(train, "_data_identity", lambda c: ("made up", {}))
    with pytest.raises(
        RunError,
        match=r"^train/\w+ is nan at step 5: stopped; the last good checkpoint is kept",
    ) as e:
        train.train(config, tmp_path)
    assert e.value.exit_code == 1
    saved = final_state(tmp_path, config)
    # Step 5 had the NaN, and a checkpoint is saved every second step.
    assert saved.step == 4
    assert not_finite(saved.state) == []
    assert not (tmp_path / "results.json").exists()


@pytest.mark.slow
def test_a_run_that_diverges_ends_with_one_line_and_exit_code_1(tmp_path):
    flags = [
        "--config.norm=none",
        "--config.optimizer.learning_rate=1e20",
        f"--workdir={tmp_path / 'run'}",
    ]
    code, _, err = runs.run(tmp_path, runs.SMOKE, *flags)
    assert code == 1
    lines = err.strip().splitlines()
    assert len(lines) == 1
    assert (
        "stopped; the last good checkpoint is kept. Try a smaller "
        "config.optimizer.learning_rate" in lines[0]
    )
