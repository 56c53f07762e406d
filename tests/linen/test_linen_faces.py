"""The linen faces: Flax's conventions for recurrent modules, stated as properties, and agreement with the functional
core."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from lnrepro.linen import (
    GRU,
    LSTM,
    RNN,
    BatchNorm,
    GRUCell,
    LayerNorm,
    LSTMCell,
    RNNCell,
)

D, H = 3, 5
X = jax.random.normal(jax.random.key(0), (4, 7, D))
LENGTHS = jnp.array([7, 0, 3, 5])
PAIRS = [(LSTM, LSTMCell), (GRU, GRUCell), (RNN, RNNCell)]


def same(a, b, atol=1e-6):
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, atol=atol), a, b)


@functools.cache
def built(face, **options):
    module = face(H, **options)
    return module, module.init(jax.random.key(1), X)


@pytest.mark.parametrize(("face", "cell"), PAIRS)
def test_cell_inside_flax_rnn_equals_the_sequence(face, cell):
    module, variables = built(face)
    theirs = nn.RNN(cell(H))
    for options in ({}, {"reverse": True}, {"reverse": True, "keep_order": True}):
        carry, y = module.apply(variables, X, return_carry=True, **options)
        want = theirs.apply(
            {"params": {"cell": variables["params"]}}, X, return_carry=True, **options
        )
        same((carry, y), want)


@pytest.mark.parametrize(
    "options", [{}, {"reverse": True}, {"reverse": True, "keep_order": True}]
)
def test_lengths_as_flax_has_them_but_for_length_zero_and_zeroed_padding(options):
    module, variables = built(LSTM)
    carry, y = module.apply(
        variables, X, seq_lengths=LENGTHS, return_carry=True, **options
    )
    theirs, z = nn.RNN(LSTMCell(H)).apply(
        {"params": {"cell": variables["params"]}},
        X,
        seq_lengths=LENGTHS,
        return_carry=True,
        **options,
    )
    valid = (jnp.arange(7) < LENGTHS[:, None])[..., None]
    same(y, jnp.where(valid, z, 0))
    some = np.array([0, 2, 3])
    same(
        jax.tree.map(lambda c: c[some], carry), jax.tree.map(lambda c: c[some], theirs)
    )
    assert (carry[0][1] == 0).all()  # flax returns the padded step's carry here


def test_bidirectional_of_cells_and_of_sequences():
    over_cells = nn.Bidirectional(nn.RNN(GRUCell(H)), nn.RNN(GRUCell(H)))
    variables = over_cells.init(jax.random.key(1), X)
    y = over_cells.apply(variables, X)
    over_sequences = nn.Bidirectional(GRU(H), GRU(H))
    flat = {
        "params": {side: tree["cell"] for side, tree in variables["params"].items()}
    }
    same(over_sequences.apply(flat, X), y)
    cell = functional.bidirectional(
        functional.gru(H, norm="layer"), functional.gru(H, norm="layer")
    )
    params = (flat["params"]["forward_rnn"], flat["params"]["backward_rnn"])
    same(functional.unroll(cell, params, X)[1], y)


def test_arguments_override_attributes():
    module, variables = built(LSTM, return_carry=True, time_major=True, reverse=True)
    plain, _ = built(LSTM)
    got = module.apply(
        variables, X, time_major=False, reverse=False, return_carry=False
    )
    same(got, plain.apply(variables, X))
    carry, y = module.apply(variables, X.swapaxes(0, 1))
    same(y.swapaxes(0, 1), plain.apply(variables, X, reverse=True))
    assert carry[0].shape == (4, H)


def test_initial_carry_continues_a_sequence():
    module, variables = built(GRU)
    carry, first = module.apply(variables, X[:, :3], return_carry=True)
    second = module.apply(variables, X[:, 3:], initial_carry=carry)
    same(jnp.concatenate([first, second], 1), module.apply(variables, X))


@pytest.mark.parametrize(
    ("dtype", "param_dtype"),
    [(jnp.bfloat16, jnp.float32), (jnp.bfloat16, jnp.bfloat16), (None, jnp.float32)],
)
def test_dtypes(dtype, param_dtype):
    module = LSTM(H, dtype=dtype, param_dtype=param_dtype, return_carry=True)
    variables = module.init(jax.random.key(0), X)
    assert {p.dtype for p in jax.tree.leaves(variables)} == {jnp.dtype(param_dtype)}
    out = module.apply(variables, X)
    assert {a.dtype for a in jax.tree.leaves(out)} == {jnp.dtype(dtype or jnp.float32)}
    if dtype:
        cell = nn.RNN(LSTMCell(H, dtype=dtype, param_dtype=param_dtype))
        assert cell.apply({"params": {"cell": variables["params"]}}, X).dtype == dtype


def test_batch_norm_statistics_per_step():
    module = LSTM(H, norm="batch", max_steps=4, momentum=0.5)
    variables = module.init(jax.random.key(0), X, use_running_average=False)
    assert variables["batch_stats"]["mean_x"].shape == (4, 4 * H)
    for _ in range(25):
        y, updates = module.apply(
            variables, X, use_running_average=False, mutable="batch_stats"
        )
        variables = {**variables, **updates}
    at_test = module.apply(variables, X[:, :4], use_running_average=True)
    same(at_test, y[:, :4], 1e-3)
    assert module.apply(variables, X, use_running_average=True).shape == y.shape
    with pytest.raises(ValueError, match="max_steps"):
        LSTM(H, norm="batch").init(jax.random.key(0), X)
    with pytest.raises(ValueError, match="module for sequences"):
        LSTMCell(H, norm="batch").init(
            jax.random.key(0), (X[:, 0, :H], X[:, 0, :H]), X[:, 0]
        )


def test_noise_needs_an_rng():
    module, variables = built(
        LSTM, wrap=functools.partial(functional.zoneout, rate_c=0.5, rate_h=0.5)
    )
    still = module.apply(variables, X)
    same(still, module.apply(variables, X))
    a, b = (
        module.apply(variables, X, rngs={"dropout": jax.random.key(k)}) for k in (1, 2)
    )
    assert jnp.abs(a - b).max() > 1e-3


def test_options_reach_the_cell():
    module = LSTM(
        H,
        forget_bias=1.0,
        peephole=True,
        learned_carry=True,
        cell_norm="carry",
        use_bias=True,
    )
    params = module.init(jax.random.key(0), X)["params"]
    assert {"peephole", "h0", "c0"} <= set(params)
    assert (params["bias"][:H] == 1).all()
    with pytest.raises(ValueError, match="learned carry"):
        LSTMCell(H, learned_carry=True).initialize_carry(jax.random.key(0), (2, D))
    with pytest.raises(ValueError, match="no features"):
        LSTM(H).init(jax.random.key(0), X[..., :0])
    with pytest.raises(TypeError, match="floating point"):
        LSTM(H).init(jax.random.key(0), X.astype(int))
    with pytest.raises(ValueError, match="unknown norm"):
        LSTM(H, norm="group").init(jax.random.key(0), X)


def test_layer_norm_face():
    module = LayerNorm()
    variables = module.init(jax.random.key(0), X)
    assert jax.tree.map(jnp.shape, variables["params"]) == {"scale": (D,), "bias": (D,)}
    same(
        module.apply(variables, X),
        nn.LayerNorm(epsilon=1e-5, use_fast_variance=False).apply(variables, X),
    )
    assert module.apply(variables, X.astype(jnp.bfloat16)).dtype == jnp.bfloat16
    assert LayerNorm(use_bias=False, use_scale=False).init(jax.random.key(0), X) == {}
    both = LayerNorm(reduction_axes=(-2, -1), feature_axes=(-2, -1))
    assert both.init(jax.random.key(0), X)["params"]["scale"].shape == (7, D)
    with pytest.raises(ValueError, match="feature_axes"):
        LayerNorm(feature_axes=0).init(jax.random.key(0), X)


def test_batch_norm_face():
    module = BatchNorm(momentum=0.5, unbiased=True)
    variables = module.init(jax.random.key(0), X, use_running_average=False)
    y, updates = module.apply(
        variables, X, use_running_average=False, mutable="batch_stats"
    )
    flat = np.asarray(X).reshape(-1, D)
    same(
        y,
        ((flat - flat.mean(0)) / np.sqrt(flat.var(0, ddof=1) + 1e-5)).reshape(X.shape),
        1e-5,
    )
    same(updates["batch_stats"]["mean"], flat.mean(0) / 2)
    same(updates["batch_stats"]["var"], 0.5 + flat.var(0, ddof=1) / 2, 1e-5)
    again = module.apply({**variables, **updates}, X, use_running_average=True)
    same(
        again,
        (X - updates["batch_stats"]["mean"])
        / jnp.sqrt(updates["batch_stats"]["var"] + 1e-5),
        1e-5,
    )
