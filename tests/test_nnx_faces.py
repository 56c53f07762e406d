"""The nnx faces agree with linen and functional on the same parameters, and live with nnx's transformations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lnrepro import functional, linen
from lnrepro.nnx import GRU, LSTM, RNN, BatchNorm, GRUCell, LayerNorm, LSTMCell, RNNCell

D, H = 3, 5
X = jax.random.normal(jax.random.key(0), (4, 6, D))
LENGTHS = jnp.array([6, 0, 3, 5])


def same(a, b, atol=1e-6):
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, atol=atol), a, b)


def params_of(module):
    return {name: getattr(module, name)[...] for name in module.names}


@pytest.mark.parametrize(
    ("face", "cell", "other", "make"),
    [
        (LSTM, LSTMCell, linen.LSTM, functional.lstm),
        (GRU, GRUCell, linen.GRU, functional.gru),
        (RNN, RNNCell, linen.RNN, functional.rnn),
    ],
)
def test_three_faces_one_answer(face, cell, other, make):
    module = face(D, H, rngs=nnx.Rngs(0))
    params = params_of(module)
    carry, y = module(X, seq_lengths=LENGTHS, return_carry=True)
    same(other(H).apply({"params": params}, X, seq_lengths=LENGTHS, return_carry=True), (carry, y))
    same(functional.unroll(make(H, norm="layer"), params, X, lengths=LENGTHS), (carry, y))
    one = cell(D, H, rngs=nnx.Rngs(0))
    assert all((getattr(one, n)[...] == p).all() for n, p in params.items())
    for options in ({}, {"reverse": True}, {"reverse": True, "keep_order": True}):
        same(nnx.RNN(one)(X, **options), module(X, **options))
    both = nnx.Bidirectional(nnx.RNN(one), nnx.RNN(cell(D, H, rngs=nnx.Rngs(1))))
    same(both(X)[..., :H], module(X))


def test_training_step_under_jit():
    module = LSTM(D, H, rngs=nnx.Rngs(0))

    @nnx.jit
    def loss_and_grad(module, x):
        return nnx.value_and_grad(lambda m: jnp.mean(jnp.square(m(x))))(module)

    _, grads = loss_and_grad(module, X)
    assert float(jnp.abs(grads["w_h"][...]).max()) > 0


def test_batch_norm_sequence():
    module = LSTM(D, H, norm="batch", max_steps=4, momentum=0.5, rngs=nnx.Rngs(0))
    for _ in range(25):
        y = module(X)
    module.eval()
    same(module(X[:, :4]), y[:, :4], 1e-3)
    with pytest.raises(ValueError, match="max_steps"):
        LSTM(D, H, norm="batch", rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="module for sequences"):
        LSTMCell(D, H, norm="batch", rngs=nnx.Rngs(0))


def test_noise_follows_train_and_eval():
    module = GRU(D, H, wrap=functools.partial(functional.zoneout, rate_h=0.5), rngs=nnx.Rngs(0, dropout=1))
    assert jnp.abs(module(X) - module(X)).max() > 1e-3
    module.eval()
    same(module(X), module(X))


def test_norm_faces():
    x = X * 3 + 1
    norm = LayerNorm(D, rngs=nnx.Rngs(0))
    same(norm(x), functional.layer_norm(x))
    assert norm(x.astype(jnp.bfloat16)).dtype == jnp.bfloat16
    batch = BatchNorm(D, momentum=0.5, unbiased=True, rngs=nnx.Rngs(0))
    mask = jnp.arange(6) < LENGTHS[:, None]
    y = nnx.jit(lambda m, x: m(x, mask=mask))(batch, x)
    want, (mean, var) = functional.batch_norm(x, mask=mask, unbiased=True)
    same((y, batch.mean[...], batch.var[...]), (want, mean / 2, 0.5 + var / 2), 1e-5)
    batch.eval()
    same(batch(x), (x - mean / 2) / jnp.sqrt(0.5 + var / 2 + 1e-5), 1e-5)
