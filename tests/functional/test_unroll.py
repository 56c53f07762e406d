"""Properties of a cell over time that hold whatever the cell: steps, batch axes, directions, padding, derivatives,
refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from lnrepro.functional import gru, init, lstm, rnn, unroll

D, H = 3, 4
CELL = lstm(H, norm="layer")
PARAMS = init(CELL, jax.random.key(0), D)
X = jax.random.normal(jax.random.key(1), (2, 6, D))


def same(a, b, atol=1e-6):
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, atol=atol), a, b)


@pytest.mark.parametrize("make", [lstm, gru, rnn])
def test_steps_equal_the_scan(make):
    cell = make(H, norm="layer")
    params = init(cell, jax.random.key(0), D)
    last, y, carries = unroll(cell, params, X, all_carries=True)
    carry = functional.initial_carry(cell, params, X[:, 0])
    one = jax.jit(lambda carry, x: functional.step(cell, params, carry, x))
    for t in range(X.shape[1]):
        carry, out = one(carry, X[:, t])
        same(out, y[:, t])
        same(carry, jax.tree.map(lambda c, t=t: c[:, t], carries))
    same(carry, last)


def test_two_halves_equal_the_whole():
    last, y = unroll(CELL, PARAMS, X)
    middle, first = unroll(CELL, PARAMS, X[:, :2])
    end, second = unroll(CELL, PARAMS, X[:, 2:], carry=middle)
    same((last, y), (end, jnp.concatenate([first, second], 1)))


def test_any_number_of_batch_axes():
    x = jax.random.normal(jax.random.key(2), (2, 3, 5, D))
    lengths = jnp.array([[5, 0, 2], [1, 4, 5]])
    carry, y = unroll(CELL, PARAMS, x, lengths=lengths)
    flat_carry, flat = unroll(CELL, PARAMS, x.reshape(6, 5, D), lengths=lengths.reshape(6))
    same(y, flat.reshape(2, 3, 5, H))
    same(carry, jax.tree.map(lambda c: c.reshape(2, 3, H), flat_carry))
    carry, y = unroll(CELL, PARAMS, x[0, 0])
    same(y, flat[0])
    assert carry[0].shape == (H,)
    deep = unroll(CELL, PARAMS, x[None], lengths=lengths[None])[1]
    same(deep[0], unroll(CELL, PARAMS, x, lengths=lengths)[1])


def test_gradient_without_and_with_three_batch_axes():
    def loss(params, x):
        return jnp.sum(jnp.sin(unroll(CELL, params, x)[1]))

    one = jax.grad(loss)(PARAMS, X[0])
    three = jax.grad(loss)(PARAMS, X[:1, None, None])
    same(one, three, 1e-5)


def test_time_major_is_a_transposition():
    mask = jnp.array([[1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 1]])
    carry, y = unroll(CELL, PARAMS, X, mask=mask)
    other, z = unroll(CELL, PARAMS, X.swapaxes(0, 1), mask=mask.T, time_major=True)
    same((carry, y), (other, z.swapaxes(0, 1)))


def test_length_zero_returns_the_initial_carry_and_padding_is_zero():
    start = (jnp.ones((2, H)), 2 * jnp.ones((2, H)))
    carry, y = unroll(CELL, PARAMS, X, lengths=jnp.array([0, 3]), carry=start)
    same(jax.tree.map(lambda c: c[0], carry), jax.tree.map(lambda c: c[0], start))
    assert (y[0] == 0).all()
    assert (y[1, 3:] == 0).all()
    assert (y[1, :3] != 0).all()
    carry, y = unroll(CELL, PARAMS, X[:, :0], carry=start)
    same(carry, start)
    assert y.shape == (2, 0, H)


def test_padding_may_hold_nan():
    lengths = jnp.array([2, 4])
    bad = jnp.where(jnp.arange(6)[:, None] < lengths[:, None, None], X, jnp.nan)

    def loss(params, x):
        return jnp.sum(unroll(CELL, params, x, lengths=lengths)[1])

    grads = jax.jit(jax.grad(loss, (0, 1)))
    same(grads(PARAMS, bad), grads(PARAMS, X))


@pytest.mark.parametrize("keep_order", [True, False])
def test_reverse_equals_running_the_reversed_sequence(keep_order):
    lengths = jnp.array([4, 6])
    flipped = jnp.stack([jnp.concatenate([X[0, :4][::-1], X[0, 4:]]), X[1][::-1]])
    carry, y = unroll(CELL, PARAMS, flipped, lengths=lengths)
    if keep_order:
        y = jnp.stack([jnp.concatenate([y[0, :4][::-1], y[0, 4:]]), y[1][::-1]])
    same((carry, y), unroll(CELL, PARAMS, X, lengths=lengths, reverse=True, keep_order=keep_order))


def test_resets_equal_separate_sequences():
    resets = jnp.array([[0, 0, 0, 1, 0, 0]] * 2)
    whole = unroll(CELL, PARAMS, X, resets=resets)[1]
    parts = [unroll(CELL, PARAMS, part)[1] for part in (X[:, :3], X[:, 3:])]
    same(whole, jnp.concatenate(parts, 1))


def test_batch_norm_statistics_per_step():
    cell = lstm(H, norm="batch")
    params = init(cell, jax.random.key(0), D)
    lengths = jnp.array([4, 2])
    carry, y, (batch, seen) = unroll(cell, params, X, lengths=lengths, with_statistics=True)
    assert seen.tolist() == [True] * 4 + [False] * 2
    np.testing.assert_allclose(batch["x"][0][0], (X[:, 0] @ params["w_x"]).mean(0), atol=1e-6)
    again = unroll(cell, params, X, lengths=lengths, statistics=batch)  # the same statistics, given
    same((carry, y), again, 1e-5)
    running = {site: (jnp.zeros((3, n)), jnp.ones((3, n))) for site, n in cell.sites.items()}
    tracked = functional.track(running, (batch, seen), 0.75)
    np.testing.assert_allclose(tracked["c"][0], 0.25 * batch["c"][0][:3], atol=1e-6)
    beyond = unroll(cell, params, X, statistics=tracked)[1]  # T = 6 > T_max = 3: the last row serves
    longer = jax.tree.map(lambda s: jnp.concatenate([s, s[2:], s[2:], s[2:]]), tracked)
    same(beyond, unroll(cell, params, X, statistics=longer)[1])


def test_reversed_batch_norm_counts_steps_from_each_sequence_s_end():
    cell = rnn(H, norm="batch")
    params = init(cell, jax.random.key(0), D)
    lengths = jnp.array([3, 6])
    flipped = functional.flip(X.swapaxes(0, 1), lengths).swapaxes(0, 1)
    carry, y = unroll(cell, params, X, lengths=lengths, reverse=True, keep_order=False)
    same((carry, y), unroll(cell, params, flipped, lengths=lengths))


def test_lean_backward_equals_autodiff_for_carries_as_well():
    with jax.enable_x64(True):
        for make, reverse in ((lstm, False), (gru, True)):
            cell = make(H, norm="layer", learned_carry=True)
            params = init(cell, jax.random.key(0), D, jnp.float64)
            x = jax.random.normal(jax.random.key(1), (3, 8, D), jnp.float64)
            carry = jax.tree.map(lambda c: c + 0.3, functional.initial_carry(cell, params, x[:, 0]))

            def grads(cell=cell, params=params, x=x, carry=carry, reverse=reverse, **how):
                def loss(params, x, carry):
                    last, y, carries = unroll(cell, params, x, carry=carry, all_carries=True, reverse=reverse, **how)
                    return sum(jnp.sum(jnp.sin(a)) for a in jax.tree.leaves((last, y, carries)))

                return jax.grad(loss, (0, 1, 2))(params, x, carry)

            hows = ({"backward": "autodiff"}, {"save": "recurrent"}, {"save": "projections"})
            hows += ({"save": "carries", "chunk": 2}, {"save": "projections", "chunk": 2})
            plain, *others = jax.jit(lambda grads=grads, hows=hows: [grads(**how) for how in hows])()
            for other in others:
                same(other, plain, 1e-10)


def test_what_is_made_again_takes_no_memory():
    cell, x = lstm(32, norm="layer"), jnp.ones((2, 1024, 8))
    params = init(cell, jax.random.key(0), 8)

    def memory(**options):
        loss = jax.jit(jax.grad(lambda p: unroll(cell, p, x, **options)[1].sum()))
        return loss.lower(params).compile().memory_analysis().temp_size_in_bytes

    everything = memory(backward="autodiff")
    assert memory(backward="autodiff", remat=True) < 0.7 * everything
    sizes = [memory(save=save) for save in ("carries", "recurrent", "projections")]
    assert sizes == sorted(sizes)
    assert sizes[0] < 0.7 * sizes[2]
    assert sizes[2] < 0.4 * everything


def test_second_derivatives_reverse_over_reverse():
    with jax.enable_x64(True):
        params = init(CELL, jax.random.key(0), D, jnp.float64)
        x = jax.random.normal(jax.random.key(1), (2, 4, D), jnp.float64)

        def curvature(x, **how):
            def slope(x):
                return jnp.sum(jnp.square(jax.grad(lambda x: jnp.sum(unroll(CELL, params, x, **how)[1]))(x)))

            return jax.jit(jax.grad(slope))(x)

        same(curvature(x), curvature(x, backward="autodiff"), 1e-9)


def test_forward_mode_works_with_autodiff_and_says_so_without():
    def f(x, **how):
        return unroll(CELL, PARAMS, x, **how)[1]

    _, forward = jax.jvp(lambda x: f(x, backward="autodiff"), (X,), (jnp.ones_like(X),))
    _, back = jax.vjp(f, X)
    np.testing.assert_allclose(jnp.sum(forward), jnp.sum(back(jnp.ones_like(forward))[0]), rtol=1e-4)
    with pytest.raises(TypeError, match="backward='autodiff'"):
        jax.jvp(f, (X,), (jnp.ones_like(X),))

    def along(x, **how):
        """The Hessian times a vector, forward over reverse."""
        return jax.jvp(jax.grad(lambda x: jnp.sum(jnp.square(f(x, **how)))), (x,), (jnp.ones_like(x),))[1]

    np.testing.assert_allclose(along(X), along(X, backward="autodiff"), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("make", [lstm, gru, rnn])
def test_bfloat16_stays_bfloat16(make):
    cell = make(H, norm="layer")
    params = init(cell, jax.random.key(0), D, jnp.bfloat16)
    carry, y = unroll(cell, params, X.astype(jnp.bfloat16))
    assert {a.dtype for a in jax.tree.leaves((carry, y))} == {jnp.dtype(jnp.bfloat16)}
    wide = unroll(cell, jax.tree.map(lambda p: p.astype(jnp.float32), params), X)[1]
    np.testing.assert_allclose(y.astype(jnp.float32), wide, atol=0.06)


ZEROS = jnp.zeros((2, H))


@pytest.mark.parametrize(
    ("error", "message", "x", "options"),
    [
        (TypeError, "floating point", X.astype(jnp.int32), {}),
        (ValueError, "4 features, but w_x takes 3", jnp.ones((2, 6, 4)), {}),
        (ValueError, "mask has shape", X, {"mask": jnp.ones((2, 5))}),
        (ValueError, "resets has shape", X, {"resets": jnp.ones((6, 2))}),
        (ValueError, r"-1\.\.3 must lie in 0\.\.6", X, {"lengths": jnp.array([-1, 3])}),
        (ValueError, r"2\.\.7 must lie in 0\.\.6", X, {"lengths": jnp.array([2, 7])}),
        (ValueError, "lengths have shape", X, {"lengths": jnp.array([2])}),
        (TypeError, "must be integers", X, {"lengths": jnp.array([2.0, 3.0])}),
        (TypeError, "carry has dtype bfloat16", X, {"carry": (ZEROS.astype(jnp.bfloat16), ZEROS)}),
        (ValueError, "carry has shape", X, {"carry": (ZEROS[:1], ZEROS)}),
        (ValueError, "this cell's is", X, {"carry": ZEROS}),
        (ValueError, "time and a feature axis", X[0, 0], {}),
        (ValueError, "backward='fast'", X, {"backward": "fast"}),
        (ValueError, "chunk=4 must divide", X, {"chunk": 4}),
        (ValueError, "norm='batch'", X, {"with_statistics": True}),
    ],
)
def test_bad_input_is_refused(error, message, x, options):
    with pytest.raises(error, match=message):
        unroll(CELL, PARAMS, x, **options)


@pytest.mark.parametrize("backward", ["lean", "autodiff"])
def test_constants_reach_every_step_and_get_no_gradient(backward):
    """A cell that adds its constants to the input projection is the cell whose projections had them added."""

    def pointwise(params, carry, px, ph, tick):
        return CELL.pointwise(params, carry, px + tick.constants, ph, tick)

    reader = CELL._replace(pointwise=pointwise)
    given = jax.random.normal(jax.random.key(5), (2, 4 * H))
    x = jnp.concatenate([X, jnp.broadcast_to(jnp.eye(2)[:, None], (2, X.shape[1], 2))], -1)  # a row of w_x for each
    wider = PARAMS | {"w_x": jnp.concatenate([CELL.kernels(PARAMS).x, given])}
    plain = CELL._replace(kernels=lambda params: CELL.kernels(params)._replace(x=params["w_x"]))
    same(unroll(reader, PARAMS, X, constants=given, backward=backward), unroll(plain, wider, x), atol=1e-5)
    run = lambda given: unroll(reader, PARAMS, X, constants=given, backward=backward)[1].sum()  # noqa: E731
    assert not jax.grad(run)(given).any()
