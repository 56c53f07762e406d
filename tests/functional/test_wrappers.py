"""Zoneout, dropout, stacks and bidirectional pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import (
    Tick,
    bidirectional,
    gru,
    init,
    initial_carry,
    lstm,
    recurrent_dropout,
    rnn,
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)

D, H, T = 3, 4, 5
X = jax.random.normal(jax.random.key(1), (2, T, D))


def same(a, b, atol=1e-6):
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, atol=atol), a, b)


def test_zoneout_keeps_or_moves_each_unit_and_takes_the_expectation_at_test_time():
    plain = lstm(64, norm="layer")
    cell = zoneout(plain, 0.5, 0.25)
    params = init(cell, jax.random.key(0), D)
    old = (jnp.full((2, 64), 0.3), jnp.full((2, 64), -0.2))
    new, _ = step(plain, params, old, X[:, 0])
    noisy, _ = step(cell, params, old, X[:, 0], Tick(key=jax.random.key(3)))
    for before, after, got, rate in zip(old, new, noisy, (0.5, 0.25), strict=True):
        kept, moved = got == before, jnp.abs(got - after) < 1e-6
        assert (kept | moved).all()
        assert abs(kept.mean() - rate) < 0.12
    mean, _ = step(cell, params, old, X[:, 0])
    same(mean, (0.5 * old[0] + 0.5 * new[0], 0.25 * old[1] + 0.75 * new[1]))


def test_variational_dropout_uses_one_mask_for_the_whole_sequence():
    cell = variational_dropout(rnn(H), 0.5, 0.5)
    params = init(cell, jax.random.key(0), D)
    key = jax.random.key(5)
    _, drawn = jax.random.split(key)
    masks = cell.sample(drawn, X[:, 0])
    assert set(np.unique(masks["h"])) <= {0.0, 2.0}
    h, ys = jnp.zeros((2, H)), []
    for t in range(T):
        h = jnp.tanh((X[:, t] * masks["x"]) @ params["w_x"] + (h * masks["h"]) @ params["w_h"] + params["bias"])
        ys.append(h)
    same(unroll(cell, params, X, key=key)[1], jnp.stack(ys, 1))
    same(unroll(cell, params, X)[1], unroll(rnn(H), params, X)[1])  # nothing at test time


def test_recurrent_dropout_drops_the_candidate_only():
    cell = recurrent_dropout(gru(64), 0.5)
    params = init(cell, jax.random.key(0), D)
    h = jnp.full((2, 64), 0.5)
    dropped, _ = step(cell, params, h, X[:, 0], Tick(key=jax.random.key(1)))
    a = X[:, 0] @ params["w_x"] + params["bias"]
    z = jax.nn.sigmoid((a + h @ params["w_h"])[:, :64])
    share = (jnp.abs(dropped - (1 - z) * h) < 1e-6).mean()  # candidate dropped: only the old h is left
    assert 0.35 < share < 0.65


@pytest.mark.parametrize(
    "wrap",
    [lambda c: zoneout(c, 0.3, 0.3), lambda c: variational_dropout(c, 0.3, 0.3), lambda c: recurrent_dropout(c, 0.3)],
)
def test_the_lean_backward_sees_the_same_noise(wrap):
    cell = wrap(lstm(H, norm="layer"))
    params = init(cell, jax.random.key(0), D)

    def grads(**how):
        return jax.jit(jax.grad(lambda p, x: jnp.sum(unroll(cell, p, x, key=jax.random.key(2), **how)[1]), (0, 1)))(
            params, X
        )

    same(grads(), grads(backward="autodiff"), 1e-5)


@pytest.mark.parametrize("skip", ["none", "graves", "residual"])
def test_stack_steps_equal_its_scan(skip):
    cell = stack(lstm(H, norm="layer"), gru(H), rnn(H), skip=skip)
    params = init(cell, jax.random.key(0), D)
    lengths = jnp.array([T, 2])
    last, y = unroll(cell, params, X, lengths=lengths)
    assert y.shape == (2, T, cell.features)
    carry = initial_carry(cell, params, X[:, 0])
    for t in range(T):
        carry, out = step(cell, params, carry, X[:, t], Tick(mask=t < lengths))
        same(out, y[:, t])
    same(carry, last)


def test_graves_stack_shows_every_layer_the_input():
    cell = stack(lstm(4), lstm(5), skip="graves")
    params = init(cell, jax.random.key(0), D)
    assert params[1]["w_x"].shape == (D + 4, 20)
    _, first = unroll(lstm(4), params[0], X)
    _, second = unroll(lstm(5), params[1], jnp.concatenate([X, first], -1))
    same(unroll(cell, params, X)[1], jnp.concatenate([first, second], -1))


def test_bidirectional_is_two_runs():
    cell = bidirectional(lstm(H, norm="layer"), lstm(H, norm="layer"))
    params = init(cell, jax.random.key(0), D)
    lengths = jnp.array([3, T])
    _, y = unroll(cell, params, X, lengths=lengths)
    left = unroll(lstm(H, norm="layer"), params[0], X, lengths=lengths)[1]
    right = unroll(lstm(H, norm="layer"), params[1], X[:1, :3][:, ::-1])[1][:, ::-1]
    same(y[..., :H], left)
    same(y[0, :3, H:], right[0])
    assert (y[0, 3:] == 0).all()
    with pytest.raises(ValueError, match="cannot be stepped"):
        step(cell, params, None, X[:, 0])


def test_wrappers_reach_into_stacks():
    cell = zoneout(stack(lstm(H), gru(H)), 0.5, 0.5)
    params = init(cell, jax.random.key(0), D)
    assert jnp.abs(unroll(cell, params, X)[1] - unroll(stack(lstm(H), gru(H)), params, X)[1]).max() > 1e-3


@pytest.mark.parametrize(
    "call",
    [
        lambda: zoneout(lstm(2), 1.0),
        lambda: recurrent_dropout(lstm(2), -0.1),
        lambda: stack(),
        lambda: stack(lstm(2), skip="all"),
    ],
)
def test_bad_options_are_refused(call):
    with pytest.raises(ValueError, match=r"rate|stack"):
        call()
