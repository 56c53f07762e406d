"""Zoneout, dropout, stacks, and bidirectional pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from lnrepro.functional import (
    DreamerBlockGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    bidirectional,
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


def init(cell, features_in=D):
    return cell.init(jax.random.key(0), features_in)


# Noise


def test_zoneout_keeps_or_moves_each_unit_and_takes_the_expectation_at_test_time():
    plain = LSTMCell(64, "layer")
    cell = zoneout(plain, 0.5, 0.25)
    params = init(cell)
    old = (jnp.full((2, 64), 0.3), jnp.full((2, 64), -0.2))
    new, _ = step(plain, params, old, X[:, 0])
    noisy, _ = step(cell, params, old, X[:, 0], key=jax.random.key(3))
    for before, after, got, rate in zip(old, new, noisy, (0.5, 0.25), strict=True):
        kept, moved = got == before, jnp.abs(got - after) < 1e-6
        assert (kept | moved).all()
        assert abs(kept.mean() - rate) < 0.12
    mean, _ = step(cell, params, old, X[:, 0])
    same(mean, (0.5 * old[0] + 0.5 * new[0], 0.25 * old[1] + 0.75 * new[1]))


def test_zoneout_of_a_cell_whose_carry_is_h_uses_the_rate_of_h():
    plain = GRUCell(H, "none")
    params, h = init(plain), jnp.ones((2, H))
    new, _ = step(plain, params, h, X[:, 0])
    mixed, _ = step(zoneout(plain, 0.9, 0.25), params, h, X[:, 0])
    same(mixed, 0.25 * h + 0.75 * new)


def test_variational_dropout_uses_one_mask_for_the_whole_sequence():
    cell = variational_dropout(SimpleCell(H, "none"), 0.5, 0.5)
    params = init(cell)
    noise = cell.sample(jax.random.key(5), X[:, 0])
    assert set(np.unique(noise["h"])) <= {0.0, 2.0}
    assert set(np.unique(noise["x"])) <= {0.0, 2.0}
    h, outputs = jnp.zeros((2, H)), []
    for t in range(T):
        a = (X[:, t] * noise["x"]) @ params["w_x"]
        a = a + (h * noise["h"]) @ params["w_h"] + params["bias"]
        h = jnp.tanh(a)
        outputs.append(h)
    same(unroll(cell, params, X, noise=noise).outputs, jnp.stack(outputs, 1))
    # It does nothing at test time.
    same(unroll(cell, params, X), unroll(SimpleCell(H, "none"), params, X))


@pytest.mark.parametrize(
    "cell",
    [
        GRUCell(H, "none", reset="before"),
        DreamerBlockGRUCell(H, hidden_features=5, input_sizes=(D,), blocks=2),
    ],
    ids=["gru", "dreamer"],
)
def test_variational_dropout_reaches_every_product_with_h(cell):
    params = init(cell)
    h = jax.random.normal(jax.random.key(2), (2, H))
    noise = variational_dropout(cell, 0.0, 0.5).sample(jax.random.key(5), X[:, 0])
    dropped = dict(noise, h=jnp.zeros_like(noise["h"]))
    # A unit of h that all products drop reaches the new h by the update gate alone.
    wrapped = variational_dropout(cell, 0.0, 0.5)

    def other_units(h):
        return step(wrapped, params, h, X[:, 0], noise=dropped)[1][0]

    slopes = jax.jacobian(other_units)(h)[:, 0]
    same(slopes, jnp.diag(jnp.diag(slopes)), 0)


def test_unroll_draws_the_masks_from_its_key():
    cell = variational_dropout(SimpleCell(64, "none"), 0.5, 0.0)
    params = init(cell)
    key = jax.random.key(5)
    drawn = unroll(cell, params, X, key=key).outputs
    same(drawn, unroll(cell, params, X, key=key).outputs, 0)
    assert jnp.abs(drawn - unroll(cell, params, X).outputs).max() > 1e-3
    # x is the same in every step, so one mask gives one projection at all steps.
    constant = jnp.broadcast_to(X[:, :1], X.shape)
    no_recurrence = params | {"w_h": jnp.zeros_like(params["w_h"])}
    outputs = unroll(cell, no_recurrence, constant, key=key).outputs
    same(outputs, jnp.broadcast_to(outputs[:, :1], outputs.shape))


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        zoneout(LSTMCell(H, "layer"), 0.3, 0.3),
        variational_dropout(LSTMCell(H, "layer"), 0.3, 0.3),
        LSTMCell(H, "layer", recurrent_dropout=0.3),
        zoneout(
            variational_dropout(
                stack(GRUCell(H, "none", recurrent_dropout=0.2), LSTMCell(H, "rms")),
                0.3,
                0.3,
            ),
            0.3,
            0.3,
        ),
    ],
    ids=["zoneout", "variational", "recurrent", "all"],
)
def test_the_lean_backward_pass_sees_the_same_noise(cell):
    params = init(cell)
    assert cell.is_noisy

    def gradients(options):
        def loss(params, x):
            key = jax.random.key(2)
            return jnp.sum(unroll(cell, params, x, key=key, options=options).outputs)

        return jax.jit(jax.grad(loss, (0, 1)))(params, X)

    autodiff = gradients(ScanOptions(backward="autodiff"))
    same(gradients(ScanOptions()), autodiff, 1e-5)
    same(gradients(ScanOptions(save="carries")), autodiff, 1e-5)


# Stacks


@pytest.mark.parametrize("skip", ["none", "graves", "residual"])
def test_steps_of_a_stack_equal_its_scan(skip):
    cell = stack(
        LSTMCell(H, "layer"), GRUCell(H, "none"), SimpleCell(H, "none"), skip=skip
    )
    params = init(cell)
    lengths = jnp.array([T, 2])
    result = unroll(cell, params, X, seq_lengths=lengths, return_carries=True)
    assert result.outputs.shape == (2, T, cell.features)
    carry = cell.initial_carry(params, X[:, 0])
    one_step = jax.jit(step, static_argnums=0)
    for t in range(T):
        carry, y = one_step(cell, params, carry, X[:, t], mask=t < lengths)
        same(y, result.outputs[:, t])
        same(carry, jax.tree.map(lambda c, t=t: c[:, t], result.carries))
    same(carry, result.carry)


def test_a_stack_is_its_cells_one_after_the_other():
    cells = LSTMCell(4, "layer"), GRUCell(5, "rms"), SimpleCell(3, "none")
    params = init(stack(*cells))
    assert [p["w_x"].shape[0] for p in params] == [D, 4, 5]
    below = X
    for cell, cell_params in zip(cells, params, strict=True):
        below = unroll(cell, cell_params, below).outputs
    same(unroll(stack(*cells), params, X).outputs, below)


def test_every_cell_of_a_graves_stack_sees_the_input():
    cell = stack(LSTMCell(4, "none"), LSTMCell(5, "none"), skip="graves")
    params = init(cell)
    assert cell.features == 9
    assert params[1]["w_x"].shape == (D + 4, 20)
    first = unroll(LSTMCell(4, "none"), params[0], X).outputs
    second = unroll(
        LSTMCell(5, "none"), params[1], jnp.concatenate([X, first], -1)
    ).outputs
    same(unroll(cell, params, X).outputs, jnp.concatenate([first, second], -1))


def test_a_residual_stack_adds_the_input_of_a_cell_where_the_sizes_agree():
    cell = stack(
        GRUCell(H, "none"), GRUCell(H, "none"), GRUCell(6, "none"), skip="residual"
    )
    params = init(cell)
    # The first cell has another number of inputs, the last of outputs.
    first = unroll(GRUCell(H, "none"), params[0], X).outputs
    second = first + unroll(GRUCell(H, "none"), params[1], first).outputs
    third = unroll(GRUCell(6, "none"), params[2], second).outputs
    same(unroll(cell, params, X).outputs, third)
    two = stack(GRUCell(H, "none"), GRUCell(H, "none"), skip="residual")
    same(unroll(two, params[:2], X).outputs, second)


@pytest.mark.slow
@pytest.mark.parametrize("skip", ["none", "graves", "residual"])
def test_gradients_of_a_stack(skip):
    with jax.enable_x64(True):
        cell = stack(LSTMCell(H, "layer"), GRUCell(H, "layer"), skip=skip)
        params = cell.init(jax.random.key(0), D, jnp.float64)
        x = jax.random.normal(jax.random.key(1), (2, T, D), jnp.float64)
        lengths = jnp.array([T, 2])

        def gradients(options):
            def loss(params, x):
                result = unroll(cell, params, x, seq_lengths=lengths, options=options)
                return sum(jnp.sum(jnp.sin(a)) for a in jax.tree.leaves(result))

            return jax.jit(jax.grad(loss, (0, 1)))(params, x)

        same(
            gradients(ScanOptions()), gradients(ScanOptions(backward="autodiff")), 1e-10
        )


def test_wrappers_reach_into_stacks():
    cells = LSTMCell(H, "none"), GRUCell(H, "none")
    of_stack = zoneout(stack(*cells, skip="residual"), 0.3, 0.4)
    assert of_stack == stack(*[zoneout(c, 0.3, 0.4) for c in cells], skip="residual")
    of_stack = variational_dropout(stack(*cells), 0.5, 0.25)
    assert of_stack == stack(*[variational_dropout(c, 0.5, 0.25) for c in cells])
    nested = zoneout(stack(stack(*cells), GRUCell(H, "none")), 0.1)
    inner = [zoneout(c, 0.1) for c in cells]
    assert nested == stack(stack(*inner), zoneout(GRUCell(H, "none"), 0.1))


def test_zoneout_of_a_stack_has_an_effect_in_every_cell():
    plain = stack(LSTMCell(H, "none"), GRUCell(H, "none"))
    params = init(plain)
    noisy = unroll(zoneout(plain, 0.5, 0.5), params, X).carry
    carry = unroll(plain, params, X).carry
    for cell_noisy, cell_plain in zip(noisy, carry, strict=True):
        assert jnp.abs(cell_noisy[-1] - cell_plain[-1]).max() > 1e-3


def test_stacks_of_stacks():
    cells = LSTMCell(H, "none"), GRUCell(H, "none"), SimpleCell(H, "none")
    flat, nested = stack(*cells), stack(stack(*cells[:2]), cells[2])
    params = init(flat)
    same(
        unroll(flat, params, X).outputs,
        unroll(nested, (params[:2], params[2]), X).outputs,
    )


@pytest.mark.slow
def test_batch_norm_in_a_stack():
    bottom, middle, top = (
        LSTMCell(H, "batch"),
        GRUCell(5, "none"),
        SimpleCell(3, "batch"),
    )
    cell = stack(bottom, middle, top)
    params = init(cell)
    assert cell.sites == {"0/x": 16, "0/h": 16, "0/c": 4, "2/x": 3, "2/h": 3}
    lengths = jnp.array([T, 2])
    result = unroll(cell, params, X, seq_lengths=lengths)
    values = result.statistics.values
    assert set(values) == set(cell.sites)
    first = unroll(bottom, params[0], X, seq_lengths=lengths)
    for site, statistics in first.statistics.values.items():
        same(values[f"0/{site}"], statistics)

    running = {
        site: (jnp.zeros((T, size)), jnp.ones((T, size)))
        for site, size in cell.sites.items()
    }
    tracked = functional.track(running, result.statistics, 0.0)
    given = unroll(cell, params, X, seq_lengths=lengths, statistics=tracked)
    same(given.outputs, result.outputs, 1e-5)
    assert given.statistics is None


# Bidirectional pairs


def test_bidirectional_is_two_runs():
    left, right = LSTMCell(H, "layer"), GRUCell(H, "layer")
    params = init(left), init(right)
    lengths = jnp.array([3, T])
    result = bidirectional(left, right, params, X, seq_lengths=lengths)
    forward = unroll(left, params[0], X, seq_lengths=lengths)
    backward = unroll(right, params[1], X[:1, :3][:, ::-1])
    same(result.carry[0], forward.carry)
    same(result.carry[1][0], backward.carry[0])
    assert result.carries is None
    assert result.statistics is None
    expected = jnp.concatenate([forward.outputs[0, :3], backward.outputs[0, ::-1]], -1)
    same(result.outputs[0, :3], expected)
    assert (result.outputs[0, 3:] == 0).all()


@pytest.mark.slow
def test_bidirectional_passes_all_arguments_on():
    cell = zoneout(stack(LSTMCell(H, "layer"), GRUCell(H, "none")), 0.2, 0.2)
    params = init(cell), cell.init(jax.random.key(7), D)
    carries = tuple(
        jax.tree.map(lambda c, by=by: c + by, cell.initial_carry(p, X[:, 0]))
        for p, by in zip(params, (0.1, -0.2), strict=True)
    )
    flags = {
        "seq_lengths": jnp.array([T, 4]),
        "mask": jnp.array([[1, 0, 1, 1, 1], [1, 1, 1, 0, 1]], bool),
        "resets": jnp.array([[0, 0, 1, 0, 0], [0, 1, 0, 0, 0]], bool),
    }
    key = jax.random.key(3)
    result = bidirectional(
        cell, cell, params, X, initial_carry=carries, key=key, **flags
    )
    halves = []
    for number, run_key in enumerate(jax.random.split(key)):
        half = unroll(
            cell,
            params[number],
            X,
            initial_carry=carries[number],
            key=run_key,
            reverse=number == 1,
            keep_order=True,
            **flags,
        )
        same(result.carry[number], half.carry)
        halves.append(half.outputs)
    same(result.outputs, jnp.concatenate(halves, -1))

    flags = {**flags, "mask": flags["mask"].T, "resets": flags["resets"].T}
    time_major = bidirectional(
        cell,
        cell,
        params,
        X.swapaxes(0, 1),
        initial_carry=carries,
        key=key,
        time_major=True,
        **flags,
    )
    same(time_major.outputs.swapaxes(0, 1), result.outputs)


def test_bidirectional_runs_concatenated_sequences_as_it_runs_each_alone():
    cells = (
        stack(LSTMCell(H, "layer", learned_carry=True), GRUCell(H, "none")),
        GRUCell(H, "layer", learned_carry=True),
    )
    params = jax.tree.map(
        lambda a: a + 0.1, tuple(cell.init(jax.random.key(7), D) for cell in cells)
    )
    resets = jnp.zeros((2, T), bool).at[:, 2].set(True)

    @jax.jit
    def whole(x):
        return bidirectional(*cells, params, x, resets=resets).outputs

    alone = [bidirectional(*cells, params, x).outputs for x in (X[:, :2], X[:, 2:])]
    same(whole(X), jnp.concatenate(alone, 1))
    # No gradient flows between the two.
    of_first = jax.jit(jax.grad(lambda x: jnp.sum(whole(x)[:, :2])))(X)
    of_second = jax.jit(jax.grad(lambda x: jnp.sum(whole(x)[:, 2:])))(X)
    assert (of_first[:, 2:] == 0).all()
    assert (of_second[:, :2] == 0).all()


def test_bidirectional_batch_norm_has_a_pair_of_statistics():
    cell = LSTMCell(H, "batch")
    params = init(cell), cell.init(jax.random.key(7), D)
    lengths = jnp.array([3, T])
    result = bidirectional(cell, cell, params, X, seq_lengths=lengths)
    left, right = result.statistics
    same(left, unroll(cell, params[0], X, seq_lengths=lengths).statistics)
    reverse = unroll(cell, params[1], X, seq_lengths=lengths, reverse=True)
    same(right, reverse.statistics)
    given = bidirectional(
        cell,
        cell,
        params,
        X,
        seq_lengths=lengths,
        statistics=(left.values, right.values),
    )
    same(given.outputs, result.outputs, 1e-5)
    assert given.statistics is None


def test_a_bidirectional_pair_of_which_one_has_batch_norm():
    cells = LSTMCell(H, "none"), SimpleCell(H, "batch")
    params = init(cells[0]), init(cells[1])
    result = bidirectional(*cells, params, X)
    left, right = result.statistics
    assert left is None
    assert set(right.values) == {"x", "h"}


@pytest.mark.parametrize(
    "call",
    [
        lambda: zoneout(LSTMCell(2, "none"), 1.0),
        lambda: zoneout(LSTMCell(2, "none"), 0.0, -0.5),
        lambda: variational_dropout(LSTMCell(2, "none"), 1.5),
        lambda: variational_dropout(LSTMCell(2, "none"), 0.0, 1.0),
        lambda: stack(),
        lambda: stack(LSTMCell(2, "none"), skip="all"),
    ],
)
def test_bad_options_are_refused(call):
    with pytest.raises(ValueError, match=r"rate|stack"):
        call()


def test_dropout_of_h_asks_for_the_names_of_the_recurrent_weights():
    class Renamed(SimpleCell):
        def prepare(self, params):
            weights, rest = super().prepare(params)
            weights["recurrent"] = weights.pop("w_h")
            return weights, rest

    params = init(SimpleCell(H, "none"))
    cell = variational_dropout(Renamed(H, "none"), rate_h=0.5)
    with pytest.raises(ValueError, match="Renamed has no weight of the names w_h"):
        unroll(cell, params, X)


def test_zoneout_asks_for_h_as_the_last_array_of_the_carry():
    class Swapped(LSTMCell):
        def initial_carry(self, params, x):
            return super().initial_carry(params, x)[::-1]

        def step(self, dot, params, carry, x_proj, context):
            new, statistics = super().step(dot, params, carry[::-1], x_proj, context)
            return new[::-1], statistics

        def output(self, carry):
            return carry[0]

    params = init(Swapped(H))
    same(unroll(Swapped(H), params, X).outputs, unroll(LSTMCell(H), params, X).outputs)
    with pytest.raises(ValueError, match="output of Swapped must be h, the last array"):
        unroll(zoneout(Swapped(H), 0.1, 0.2), params, X)


@pytest.mark.parametrize("count", [1, 3])
def test_params_of_another_number_of_cells_are_refused(count):
    params = (init(GRUCell(D, "none")),) * count
    with pytest.raises(ValueError, match=f"2 cells; it is a tuple of length {count}"):
        unroll(stack(GRUCell(D, "none"), GRUCell(D, "none")), params, X)


def test_params_of_a_pair_that_are_no_pair_are_refused():
    cell = LSTMCell(H, "none")
    with pytest.raises((TypeError, ValueError), match="pair"):
        bidirectional(cell, cell, init(cell), X)
