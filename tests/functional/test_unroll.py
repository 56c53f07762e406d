"""Properties of a cell over time that hold for every cell.

Steps, batch axes, direction, padding, resets, derivatives, and refusals.
"""

import functools
import re

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
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)

D, H = 3, 4
CELL = LSTMCell(H, "layer")
PARAMS = CELL.init(jax.random.key(0), D)
X = jax.random.normal(jax.random.key(1), (2, 6, D))
AUTODIFF = ScanOptions(backward="autodiff")
CELLS = [LSTMCell, GRUCell, SimpleCell]
# Compiled as a whole, which takes less time than one operation after the other.
jit_unroll = jax.jit(unroll, static_argnums=0)


def same(a, b, atol=1e-6):
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, atol=atol), a, b)


def shifted(tree, by):
    return jax.tree.map(lambda a: a + by, tree)


def is_zero(tree):
    return not any(np.any(leaf) for leaf in jax.tree.leaves(tree))


# One type of result


def test_the_result_always_has_four_fields():
    plain = unroll(CELL, PARAMS, X)
    assert plain._fields == ("carry", "outputs", "carries", "statistics")
    assert plain.carries is None
    assert plain.statistics is None
    carry, outputs, carries, statistics = unroll(CELL, PARAMS, X, return_carries=True)
    assert statistics is None
    same(outputs, carries[1])
    same(carry, jax.tree.map(lambda c: c[:, -1], carries))
    same(plain.outputs, outputs)


# Steps and batch axes


@pytest.mark.parametrize("make", CELLS)
def test_steps_equal_the_scan(make):
    cell = make(H, "layer")
    params = cell.init(jax.random.key(0), D)
    result = unroll(cell, params, X, return_carries=True)
    carry = cell.initial_carry(params, X[:, 0])
    one_step = jax.jit(step, static_argnums=0)
    for t in range(X.shape[1]):
        carry, y = one_step(cell, params, carry, X[:, t])
        same(y, result.outputs[:, t])
        same(carry, jax.tree.map(lambda c, t=t: c[:, t], result.carries))
    same(carry, result.carry)


def test_two_halves_equal_the_whole():
    whole = unroll(CELL, PARAMS, X)
    first = unroll(CELL, PARAMS, X[:, :2])
    second = unroll(CELL, PARAMS, X[:, 2:], initial_carry=first.carry)
    same(whole.carry, second.carry)
    same(whole.outputs, jnp.concatenate([first.outputs, second.outputs], 1))


def test_any_number_of_batch_axes():
    x = jax.random.normal(jax.random.key(2), (2, 3, 5, D))
    lengths = jnp.array([[5, 0, 2], [1, 4, 5]])
    two = jit_unroll(CELL, PARAMS, x, seq_lengths=lengths)
    flat = jit_unroll(CELL, PARAMS, x.reshape(6, 5, D), seq_lengths=lengths.reshape(6))
    same(two.outputs, flat.outputs.reshape(2, 3, 5, H))
    same(two.carry, jax.tree.map(lambda c: c.reshape(2, 3, H), flat.carry))
    none = jit_unroll(CELL, PARAMS, x[0, 0])
    same(none.outputs, flat.outputs[0])
    assert none.carry[0].shape == (H,)
    three = jit_unroll(CELL, PARAMS, x[None], seq_lengths=lengths[None])
    same(three.outputs[0], two.outputs)


def test_gradient_without_and_with_three_batch_axes():
    def loss(params, x):
        return jnp.sum(jnp.sin(unroll(CELL, params, x).outputs))

    gradient = jax.jit(jax.grad(loss))
    none = gradient(PARAMS, X[0])
    three = gradient(PARAMS, X[:1, None, None])
    same(none, three, 1e-5)


def test_an_empty_batch():
    def loss(params, x):
        result = unroll(CELL, params, x, seq_lengths=jnp.zeros((0,), int))
        return result.outputs.sum(), result

    gradient, result = jax.jit(jax.grad(loss, has_aux=True))(PARAMS, X[:0])
    assert result.outputs.shape == (0, 6, H)
    assert is_zero(gradient)


def test_time_major_is_a_transposition():
    mask = jnp.array([[1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 1]])
    resets = jnp.array([[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1]])
    batch_major = unroll(CELL, PARAMS, X, mask=mask, resets=resets, return_carries=True)
    time_major = unroll(
        CELL,
        PARAMS,
        X.swapaxes(0, 1),
        mask=mask.T,
        resets=resets.T,
        return_carries=True,
        time_major=True,
    )
    same(batch_major.carry, time_major.carry)
    same(batch_major.outputs, time_major.outputs.swapaxes(0, 1))
    same(
        batch_major.carries,
        jax.tree.map(lambda c: c.swapaxes(0, 1), time_major.carries),
    )


# Padding


@pytest.mark.parametrize("reverse", [False, True])
def test_length_zero_returns_the_initial_carry_and_padding_is_zero(reverse):
    start = (jnp.ones((2, H)), 2 * jnp.ones((2, H)))
    result = unroll(
        CELL,
        PARAMS,
        X,
        seq_lengths=jnp.array([0, 3]),
        initial_carry=start,
        reverse=reverse,
    )
    same(
        jax.tree.map(lambda c: c[0], result.carry),
        jax.tree.map(lambda c: c[0], start),
    )
    assert (result.outputs[0] == 0).all()
    assert (result.outputs[1, 3:] == 0).all()
    assert (result.outputs[1, :3] != 0).all()


@pytest.mark.parametrize("reverse", [False, True])
def test_no_steps(reverse):
    start = (jnp.ones((2, H)), 2 * jnp.ones((2, H)))

    def run(params, start):
        return unroll(
            CELL,
            params,
            X[:, :0],
            initial_carry=start,
            return_carries=True,
            reverse=reverse,
        )

    # Compiled, it is lowered by the form of each platform.
    run = jax.jit(run)
    result = run(PARAMS, start)
    same(result.carry, start)
    assert result.outputs.shape == (2, 0, H)
    assert result.carries[0].shape == (2, 0, H)
    gradient = jax.grad(lambda *a: jnp.sum(run(*a).carry[0]), (0, 1))(PARAMS, start)
    assert is_zero(gradient[0])
    assert (gradient[1][0] == 1).all()


def test_mask_and_lengths_are_joined():
    mask = jnp.array([[1, 0, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1]], bool)
    lengths = jnp.array([4, 6])
    joined = mask & (jnp.arange(6) < lengths[:, None])
    both = unroll(CELL, PARAMS, X, mask=mask, seq_lengths=lengths)
    same(both, unroll(CELL, PARAMS, X, mask=joined))
    # What is masked could as well be absent.
    kept = X[1][np.flatnonzero(joined[1])]
    same(
        jax.tree.map(lambda c: c[1], both.carry),
        unroll(CELL, PARAMS, kept).carry,
    )


def test_padding_may_hold_nan():
    lengths = jnp.array([2, 4])
    valid = jnp.arange(6)[:, None] < lengths[:, None, None]
    bad = jnp.where(valid, X, jnp.nan)

    def loss(params, x):
        return jnp.sum(unroll(CELL, params, x, seq_lengths=lengths).outputs)

    gradients = jax.jit(jax.grad(loss, (0, 1)))
    same(gradients(PARAMS, bad), gradients(PARAMS, X))


def test_a_masked_step_may_hold_nan():
    mask = jnp.array([True, False])
    bad = X[:, 0].at[1].set(jnp.nan)
    carry = CELL.initial_carry(PARAMS, X[:, 0])

    def loss(params, x):
        return jnp.sum(step(CELL, params, carry, x, mask=mask)[1])

    gradients = jax.jit(jax.grad(loss, (0, 1)))
    same(gradients(PARAMS, bad), gradients(PARAMS, X[:, 0]))


def test_a_masked_step_passes_the_carry_on():
    carry = (jnp.ones((2, H)), 2 * jnp.ones((2, H)))
    mask = jnp.array([True, False])
    new, y = step(CELL, PARAMS, carry, X[:, 0], mask=mask)
    plain, plain_y = step(CELL, PARAMS, carry, X[:, 0])
    same(jax.tree.map(lambda c: c[0], new), jax.tree.map(lambda c: c[0], plain))
    same(jax.tree.map(lambda c: c[1], new), jax.tree.map(lambda c: c[1], carry))
    same(y[0], plain_y[0])
    assert (y[1] == 0).all()


# Direction


@pytest.mark.parametrize("keep_order", [True, False])
def test_reverse_equals_running_the_reversed_sequence(keep_order):
    lengths = jnp.array([4, 6])
    flipped = jnp.stack([jnp.concatenate([X[0, :4][::-1], X[0, 4:]]), X[1][::-1]])
    carry, outputs, *_ = unroll(CELL, PARAMS, flipped, seq_lengths=lengths)
    if keep_order:
        first = jnp.concatenate([outputs[0, :4][::-1], outputs[0, 4:]])
        outputs = jnp.stack([first, outputs[1][::-1]])
    result = unroll(
        CELL, PARAMS, X, seq_lengths=lengths, reverse=True, keep_order=keep_order
    )
    same((carry, outputs), (result.carry, result.outputs))


@pytest.mark.parametrize("keep_order", [True, False])
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_reverse_with_lengths_and_a_mask_skips_the_same_steps(norm, keep_order):
    cell = LSTMCell(H, norm)
    params = cell.init(jax.random.key(0), D)
    lengths, length = jnp.array([5, 5]), 5
    # Both sequences have the same holes, so that batch norm sees whole steps.
    mask = jnp.array([[1, 0, 1, 1, 1, 1]] * 2, bool)
    valid = np.array([0, 2, 3, 4])
    alone = unroll(cell, params, X[:, valid[::-1]])
    result = unroll(
        cell,
        params,
        X,
        seq_lengths=lengths,
        mask=mask,
        reverse=True,
        keep_order=keep_order,
    )
    same(result.carry, alone.carry)
    # Without keep_order, step t stands at length - 1 - t.
    rows = valid[::-1] if keep_order else length - 1 - valid[::-1]
    same(result.outputs[:, rows], alone.outputs)
    assert is_zero(np.delete(result.outputs, rows, 1))


@pytest.mark.parametrize("keep_order", [True, False])
def test_reverse_without_lengths(keep_order):
    forward = unroll(CELL, PARAMS, X[:, ::-1], return_carries=True)
    outputs, carries = forward.outputs, forward.carries
    if keep_order:
        outputs, carries = jax.tree.map(lambda a: a[:, ::-1], (outputs, carries))
    result = unroll(
        CELL, PARAMS, X, reverse=True, keep_order=keep_order, return_carries=True
    )
    same((forward.carry, outputs, carries), tuple(result[:3]))


def test_outputs_stand_in_the_order_of_processing_by_default():
    lengths = jnp.array([4, 6])
    default = unroll(CELL, PARAMS, X, seq_lengths=lengths, reverse=True)
    ordered = unroll(
        CELL, PARAMS, X, seq_lengths=lengths, reverse=True, keep_order=False
    )
    same(default, ordered, 0)
    # The last output stands where the last step was taken.
    same(default.outputs[0, 3], default.carry[1][0])
    same(default.outputs[1, 5], default.carry[1][1])


# Resets


def test_resets_equal_separate_sequences():
    resets = jnp.array([[0, 0, 0, 1, 0, 0]] * 2)
    whole = unroll(CELL, PARAMS, X, resets=resets)
    parts = [unroll(CELL, PARAMS, part) for part in (X[:, :3], X[:, 3:])]
    same(whole.outputs, jnp.concatenate([part.outputs for part in parts], 1))
    same(whole.carry, parts[1].carry)


RESET_CELLS = {
    "lstm": LSTMCell(H, "layer"),
    "lstm-learned": LSTMCell(H, "layer", learned_carry=True),
    "gru-learned": GRUCell(H, "none", learned_carry=True),
    "simple": SimpleCell(H, "none"),
    "stack": stack(LSTMCell(H, "layer", learned_carry=True), GRUCell(H, "none")),
    "residual": stack(
        GRUCell(H, "none", learned_carry=True), GRUCell(H, "layer"), skip="residual"
    ),
    "zoneout": zoneout(LSTMCell(H, "none", learned_carry=True), 0.2, 0.3),
}


def reset_problem(name):
    """A cell, its parameters with learned carries away from zero, a stored carry."""
    cell = RESET_CELLS[name]
    params = shifted(cell.init(jax.random.key(0), D), 0.1)
    stored = shifted(cell.initial_carry(params, X[:, 0]), 0.5)
    return cell, params, stored


# Those that are not slow: zeros, learned carries, and stacks with both.
SOME_RESET_CELLS = [
    pytest.param(
        name,
        marks=() if name in ("lstm", "gru-learned", "stack") else pytest.mark.slow,
    )
    for name in RESET_CELLS
]


@pytest.mark.parametrize("name", SOME_RESET_CELLS)
def test_a_reset_restores_the_initial_carry_and_not_the_one_passed_in(name):
    cell, params, stored = reset_problem(name)
    # The first sequence is reset before step 2, the second before the first step.
    resets = jnp.array([[0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]], bool)

    def run(params, stored):
        return jit_unroll(cell, params, X, initial_carry=stored, resets=resets)

    result = run(params, stored)
    anew = jit_unroll(cell, params, X[0, 2:])
    same(result.outputs[0, 2:], anew.outputs)
    same(result.outputs[1], jit_unroll(cell, params, X[1]).outputs)
    same(jax.tree.map(lambda c: c[0], result.carry), anew.carry)
    before = jax.tree.map(lambda c: c[0], stored)
    before = jit_unroll(cell, params, X[0, :2], initial_carry=before)
    same(result.outputs[0, :2], before.outputs)

    # No gradient flows from after a reset to the carry that was passed in. It flows to
    # the learned initial carry instead.
    def after_the_resets(params, stored):
        outputs = run(params, stored).outputs
        return jnp.sum(outputs[0, 2:]) + jnp.sum(outputs[1])

    d_params, d_stored = jax.jit(jax.grad(after_the_resets, (0, 1)))(params, stored)
    assert is_zero(d_stored)

    def of_separate_runs(params):
        outputs = (
            jit_unroll(cell, params, X[0, 2:]),
            jit_unroll(cell, params, X[1]),
        )
        return sum(jnp.sum(output.outputs) for output in outputs)

    same(d_params, jax.jit(jax.grad(of_separate_runs))(params), 1e-5)


@pytest.mark.parametrize("name", SOME_RESET_CELLS)
def test_in_reverse_each_of_three_sequences_gets_what_it_gets_alone(name):
    cell, params, stored = reset_problem(name)
    # x holds the sequences 0..1, 2..4 and 5, and each has its first step marked.
    resets = jnp.array([[1, 0, 1, 0, 0, 1]] * 2, bool)

    def run(x, resets=None, initial_carry=None):
        return unroll(
            cell,
            params,
            x,
            initial_carry=initial_carry,
            resets=resets,
            reverse=True,
            keep_order=True,
        )

    # The last sequence is the first to be taken, and gets the carry passed in.
    whole = jax.jit(run)(X, resets, stored)
    parts = run(X[:, :2]), run(X[:, 2:5]), run(X[:, 5:], initial_carry=stored)
    same(whole.outputs, jnp.concatenate([part.outputs for part in parts], 1))
    same(whole.carry, parts[0].carry)

    def first_sequence(x, stored):
        result = run(x, resets, stored)
        return jnp.sum(result.outputs[:, :2]), result.carry

    d_x, d_stored = jax.jit(jax.grad(first_sequence, (0, 1), has_aux=True))(X, stored)[
        0
    ]
    assert is_zero((d_x[:, 2:], d_stored))
    assert not is_zero(d_x[:, :2])

    # A loop of steps restarts before the last step of a sequence.
    carry, take = stored, jax.jit(step, static_argnums=0)
    for t in reversed(range(6)):
        reset = resets[:, t + 1] if t < 5 else jnp.zeros(2, bool)
        carry, y = take(cell, params, carry, X[:, t], reset=reset)
        same(y, whole.outputs[:, t])
    same(carry, whole.carry)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("keep_order", [False, True])
def test_resets_lie_within_the_lengths(reverse, keep_order):
    lengths = jnp.array([5, 4])
    marked = jnp.array([[0, 0, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0]])
    # Those at and beyond a length may be anything.
    everywhere = marked.at[0, 5].set(1).at[1, 4:].set(1)
    stored = shifted(CELL.initial_carry(PARAMS, X[:, 0]), 0.5)
    how = {"reverse": reverse, "keep_order": keep_order, "initial_carry": stored}
    whole = unroll(CELL, PARAMS, X, seq_lengths=lengths, resets=everywhere, **how)
    for row, length in enumerate(lengths.tolist()):
        how["initial_carry"] = jax.tree.map(lambda a, row=row: a[row], stored)
        x, resets = X[row, :length], marked[row, :length]
        alone = unroll(CELL, PARAMS, x, resets=resets, **how)
        same(whole.outputs[row, :length], alone.outputs)
        same(jax.tree.map(lambda a, row=row: a[row], whole.carry), alone.carry)


def test_a_reset_at_a_padded_step_in_reverse_holds_for_the_steps_before_it():
    mask = jnp.array([[1, 1, 0, 0, 1, 1]] * 2)
    expected = unroll(CELL, PARAMS, X[:, :2], reverse=True, keep_order=True).outputs
    # Wherever in the gap the mark is, and also behind it.
    for t in (2, 3, 4):
        resets = jnp.arange(6) == jnp.full((2, 1), t)
        how = {"mask": mask, "resets": resets, "reverse": True, "keep_order": True}
        same(unroll(CELL, PARAMS, X, **how).outputs[:, :2], expected)


@pytest.mark.parametrize("name", RESET_CELLS)
def test_step_resets_as_unroll_does(name):
    cell, params, stored = reset_problem(name)
    reset = jnp.array([True, False])

    def run(params, stored):
        return step(cell, params, stored, X[:, 0], reset=reset)

    carry, y = run(params, stored)
    anew = step(cell, params, cell.initial_carry(params, X[:, 0]), X[:, 0])
    on = step(cell, params, stored, X[:, 0])
    same(y, jnp.stack([anew[1][0], on[1][1]]))
    expected = jax.tree.map(lambda a, b: jnp.stack([a[0], b[1]]), anew[0], on[0])
    same(carry, expected)
    whole = jit_unroll(
        cell, params, X[:, :1], initial_carry=stored, resets=reset[:, None]
    )
    same((carry, y), (whole.carry, whole.outputs[:, 0]))
    d_stored = jax.jit(jax.grad(lambda *a: jnp.sum(run(*a)[1][0]), 1))(params, stored)
    assert is_zero(d_stored)


def test_a_reset_at_a_padded_step_holds_for_the_steps_after_it():
    mask = jnp.array([[1, 1, 0, 1, 1, 1]] * 2)
    resets = jnp.array([[0, 0, 1, 0, 0, 0]] * 2)
    result = unroll(CELL, PARAMS, X, mask=mask, resets=resets)
    anew = unroll(CELL, PARAMS, X[:, 3:])
    same(result.outputs[:, 3:], anew.outputs)
    same(result.outputs[:, :2], unroll(CELL, PARAMS, X[:, :2]).outputs)
    carry = CELL.initial_carry(PARAMS, X[:, 0])
    for t in range(6):
        carry, _ = step(
            CELL, PARAMS, carry, X[:, t], mask=mask[:, t], reset=resets[:, t]
        )
    same(result.carry, carry)


# Batch norm


def test_batch_norm_statistics_per_step():
    cell = LSTMCell(H, "batch")
    params = cell.init(jax.random.key(0), D)
    lengths = jnp.array([4, 2])
    result = unroll(cell, params, X, seq_lengths=lengths)
    statistics = result.statistics
    assert set(statistics.values) == set(cell.sites) == {"x", "h", "c"}
    assert statistics.seen.tolist() == [True] * 4 + [False] * 2
    mean_of_x = (X[:, 0] @ params["w_x"]).mean(0)
    np.testing.assert_allclose(statistics.values["x"][0][0], mean_of_x, atol=1e-6)

    # The same statistics, given.
    again = unroll(cell, params, X, seq_lengths=lengths, statistics=statistics.values)
    same((result.carry, result.outputs), (again.carry, again.outputs), 1e-5)
    assert again.statistics is None

    running = {
        site: (jnp.zeros((3, size)), jnp.ones((3, size)))
        for site, size in cell.sites.items()
    }
    tracked = functional.track(running, statistics, 0.75)
    expected = 0.25 * statistics.values["c"][0][:3]
    np.testing.assert_allclose(tracked["c"][0], expected, atol=1e-6)

    # T = 6 is more than T_max = 3: the last row serves the steps beyond.
    beyond = unroll(cell, params, X, statistics=tracked)
    longer = jax.tree.map(lambda s: jnp.concatenate([s, s[2:], s[2:], s[2:]]), tracked)
    same(beyond, unroll(cell, params, X, statistics=longer))


def test_step_with_batch_norm_takes_the_statistics_of_one_step():
    cell = LSTMCell(H, "batch")
    params = cell.init(jax.random.key(0), D)
    result = unroll(cell, params, X)
    of_first_step = jax.tree.map(lambda s: s[0], result.statistics.values)
    carry = cell.initial_carry(params, X[:, 0])
    _, y = step(cell, params, carry, X[:, 0], statistics=of_first_step)
    same(y, result.outputs[:, 0], 1e-5)


def test_track_leaves_steps_that_were_all_padding_as_they_are():
    cell = SimpleCell(H, "batch")
    params = cell.init(jax.random.key(0), D)
    batch = unroll(cell, params, X, seq_lengths=jnp.array([2, 1])).statistics
    running = jax.tree.map(lambda s: jnp.full((6, s.shape[-1]), 7.0), batch.values)
    tracked = functional.track(running, batch, 0.5)
    assert (tracked["x"][0][2:] == 7).all()
    assert (tracked["x"][0][:2] != 7).all()
    gradient = jax.grad(
        lambda p: jax.tree.reduce(
            lambda total, leaf: total + leaf.sum(),
            functional.track(running, unroll(cell, p, X).statistics, 0.5),
            0.0,
        )
    )(params)
    assert is_zero(gradient)


@pytest.mark.parametrize("keep_order", [False, True])
def test_reversed_batch_norm_counts_steps_from_each_sequence_s_end(keep_order):
    cell = SimpleCell(H, "batch")
    params = cell.init(jax.random.key(0), D)
    lengths = jnp.array([3, 6])

    def flip(sequences):
        return functional.flip(sequences.swapaxes(0, 1), lengths).swapaxes(0, 1)

    forward = unroll(cell, params, flip(X), seq_lengths=lengths)
    result = unroll(
        cell, params, X, seq_lengths=lengths, reverse=True, keep_order=keep_order
    )
    outputs = flip(forward.outputs) if keep_order else forward.outputs
    same((forward.carry, outputs), (result.carry, result.outputs))
    same(forward.statistics, result.statistics)


def test_reversed_batch_norm_without_lengths():
    cell = SimpleCell(H, "batch")
    params = cell.init(jax.random.key(0), D)
    forward = unroll(cell, params, X[:, ::-1])
    result = unroll(cell, params, X, reverse=True)
    same(forward, result)
    tables = result.statistics.values
    given = unroll(cell, params, X, reverse=True, statistics=tables)
    same(given.outputs, result.outputs, 1e-5)


# Noise


def test_step_of_a_variational_dropout_cell_with_a_key_applies_a_mask():
    plain = GRUCell(H, "none")
    cell = variational_dropout(plain, 0.5, 0.5)
    params = cell.init(jax.random.key(0), D)
    carry = jnp.ones((2, H))
    key = jax.random.key(3)
    _, noisy = step(cell, params, carry, X[:, 0], key=key)
    _, quiet = step(cell, params, carry, X[:, 0])
    assert jnp.abs(noisy - quiet).max() > 1e-3
    same(quiet, step(plain, params, carry, X[:, 0])[1])

    # In a loop of one's own, one draw serves all steps, as in unroll.
    noise = cell.sample(key, X[:, 0])
    carry = cell.initial_carry(params, X[:, 0])
    whole = unroll(cell, params, X, noise=noise)
    for t in range(X.shape[1]):
        carry, y = step(cell, params, carry, X[:, t], noise=noise)
        same(y, whole.outputs[:, t])


def test_the_key_draws_the_noise():
    cell = zoneout(variational_dropout(LSTMCell(H, "none"), 0.3, 0.3), 0.3, 0.3)
    params = cell.init(jax.random.key(0), D)

    def outputs(seed):
        return unroll(cell, params, X, key=jax.random.key(seed)).outputs

    same(outputs(0), outputs(0), 0)
    assert jnp.abs(outputs(0) - outputs(1)).max() > 1e-3


# Derivatives


@pytest.mark.slow
@pytest.mark.parametrize(("make", "reverse"), [(LSTMCell, False), (GRUCell, True)])
def test_lean_backward_equals_autodiff_for_carries_as_well(make, reverse):
    with jax.enable_x64(True):
        cell = make(H, "layer", learned_carry=True)
        params = cell.init(jax.random.key(0), D, jnp.float64)
        x = jax.random.normal(jax.random.key(1), (3, 8, D), jnp.float64)
        carry = shifted(cell.initial_carry(params, x[:, 0]), 0.3)
        resets = jnp.arange(8) == jnp.array([[3], [5], [9]])

        def gradients(options):
            def loss(params, x, carry):
                result = unroll(
                    cell,
                    params,
                    x,
                    initial_carry=carry,
                    resets=resets,
                    return_carries=True,
                    reverse=reverse,
                    options=options,
                )
                return sum(jnp.sum(jnp.sin(a)) for a in jax.tree.leaves(result))

            return jax.grad(loss, (0, 1, 2))(params, x, carry)

        all_options = [
            AUTODIFF,
            ScanOptions(),
            ScanOptions(save="recurrent"),
            ScanOptions(save="carries", chunk=2),
            ScanOptions(chunk=2, unroll=2),
        ]
        plain, *others = jax.jit(lambda: [gradients(o) for o in all_options])()
        for other in others:
            same(other, plain, 1e-10)


@pytest.mark.slow
def test_second_derivatives_reverse_over_reverse():
    with jax.enable_x64(True):
        params = CELL.init(jax.random.key(0), D, jnp.float64)
        x = jax.random.normal(jax.random.key(1), (2, 4, D), jnp.float64)

        def curvature(x, options=None):
            def total(x):
                return jnp.sum(unroll(CELL, params, x, options=options).outputs)

            def slope(x):
                return jnp.sum(jnp.square(jax.grad(total)(x)))

            return jax.jit(jax.grad(slope))(x)

        same(curvature(x), curvature(x, AUTODIFF), 1e-9)


@pytest.mark.slow
def test_forward_mode_works_with_autodiff_and_says_so_without():
    def run(x, options=None):
        return unroll(CELL, PARAMS, x, options=options).outputs

    _, forward = jax.jvp(lambda x: run(x, AUTODIFF), (X,), (jnp.ones_like(X),))
    _, pull = jax.vjp(run, X)
    (backward,) = pull(jnp.ones_like(forward))
    np.testing.assert_allclose(jnp.sum(forward), jnp.sum(backward), rtol=1e-4)
    with pytest.raises(TypeError, match="backward='autodiff'"):
        jax.jvp(run, (X,), (jnp.ones_like(X),))

    def hessian_times_ones(x, options=None):
        gradient = jax.grad(lambda x: jnp.sum(jnp.square(run(x, options))))
        return jax.jvp(gradient, (x,), (jnp.ones_like(x),))[1]

    lean = jax.jit(hessian_times_ones)(X)
    plain = jax.jit(lambda x: hessian_times_ones(x, AUTODIFF))(X)
    np.testing.assert_allclose(lean, plain, rtol=1e-3, atol=1e-4)


# Dtypes


@pytest.mark.parametrize("make", CELLS)
def test_outputs_are_bfloat16_and_carries_float32(make):
    cell = make(H, "layer")
    params = cell.init(jax.random.key(0), D, jnp.bfloat16)
    result = unroll(cell, params, X.astype(jnp.bfloat16), return_carries=True)
    assert result.outputs.dtype == jnp.bfloat16
    carries = jax.tree.leaves((result.carry, result.carries))
    assert {leaf.dtype for leaf in carries} == {jnp.dtype(jnp.float32)}
    # A narrower carry is taken as it is.
    narrow = jax.tree.map(lambda a: a.astype(jnp.bfloat16), result.carry)
    again = unroll(cell, params, X.astype(jnp.bfloat16), initial_carry=narrow)
    assert {a.dtype for a in jax.tree.leaves(again.carry)} == {jnp.dtype(jnp.float32)}
    wide_params = jax.tree.map(lambda p: p.astype(jnp.float32), params)
    wide = unroll(cell, wide_params, X).outputs
    np.testing.assert_allclose(result.outputs.astype(jnp.float32), wide, atol=0.06)


def test_a_bfloat16_cell_keeps_what_it_remembers_for_a_thousand_steps():
    """c is off by 0.7 %; with a carry of bfloat16 it would be 10 %."""
    cell = LSTMCell(32, "none", forget_bias=6.0)
    params = cell.init(jax.random.key(0), 32, jnp.bfloat16)
    x = jax.random.normal(jax.random.key(1), (4, 1000, 32), jnp.bfloat16)
    run = jax.jit(lambda params, x: unroll(cell, params, x).carry[0])
    c = run(params, x)
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda a: a.astype(jnp.float64), (params, x))
        expected = run(*exact)
        error = float(jnp.linalg.norm(c - expected) / jnp.linalg.norm(expected))
    assert error < 0.02


@pytest.mark.parametrize("make", [LSTMCell, GRUCell])
def test_a_fresh_carry_can_be_donated(make):
    """Its parts are arrays of their own."""
    cell = make(H)
    params = cell.init(jax.random.key(0), D)
    carry = cell.initial_carry(params, X[:, 0])
    act = jax.jit(step, static_argnums=0, donate_argnums=2)
    fresh = cell.initial_carry(params, X[:, 0])
    carry, y = act(cell, params, carry, X[:, 0])
    same((carry, y), step(cell, params, fresh, X[:, 0]))


@pytest.mark.parametrize("make", CELLS)
@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_parameters_and_inputs_of_two_dtypes(make, norm):
    """The wider of the two dtypes is that of the computation."""
    cell = make(H, norm, learned_carry=True)
    params = cell.init(jax.random.key(0), D)

    def loss(params, x):
        result = unroll(cell, params, x)
        return result.outputs.sum(), result

    x = X.astype(jnp.bfloat16)
    (d_params, d_x), result = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(params, x)
    assert {a.dtype for a in jax.tree.leaves(result)} == {jnp.dtype(jnp.float32)}
    assert {a.dtype for a in jax.tree.leaves(d_params)} == {jnp.dtype(jnp.float32)}
    assert d_x.dtype == jnp.bfloat16
    narrow = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
    assert unroll(cell, narrow, X).outputs.dtype == jnp.float32


# Memory


@pytest.mark.slow
def test_memory_reaches_every_step_and_gets_gradients():
    """A cell that adds its memory to the projection, against one that sees it in x."""

    class Reader(LSTMCell):
        def step(self, dot, params, carry, x_proj, context):
            return super().step(dot, params, carry, x_proj + context.memory, context)

    cell, plain = Reader(H), LSTMCell(H, "none")
    params = plain.init(jax.random.key(0), D)
    memory = jax.random.normal(jax.random.key(5), (2, 4 * H))

    def of_memory(memory, options=None):
        return unroll(cell, params, X, memory=memory, options=options).outputs

    def of_input(memory):
        # One more input feature per sequence selects its row of the kernel.
        ones = jnp.broadcast_to(jnp.eye(2)[:, None], (2, X.shape[1], 2))
        wider = params | {"w_x": jnp.concatenate([params["w_x"], memory])}
        return unroll(plain, wider, jnp.concatenate([X, ones], -1)).outputs

    same(of_memory(memory), of_input(memory), 1e-5)
    gradient = jax.grad(lambda m: jnp.sum(jnp.sin(of_input(m))))(memory)
    for options in (None, AUTODIFF):
        mine = jax.grad(lambda m, o=options: jnp.sum(jnp.sin(of_memory(m, o))))(memory)
        same(mine, gradient, 1e-5)
    carry = cell.initial_carry(params, X[:, 0])
    _, y = step(cell, params, carry, X[:, 0], memory=memory)
    same(y, of_memory(memory)[:, 0])


# Refusals

ZEROS = jnp.zeros((2, H))


def test_a_float32_carry_serves_inputs_in_float64():
    with jax.enable_x64(True):
        x = jnp.asarray(X, jnp.float64)
        carry = CELL.initial_carry(PARAMS, X[:, 0])
        same(unroll(CELL, PARAMS, x, initial_carry=carry), unroll(CELL, PARAMS, x), 0)
        new, _ = step(CELL, PARAMS, carry, x[:, 0])
        assert {leaf.dtype for leaf in jax.tree.leaves(new)} == {jnp.dtype("float64")}


STRICT = [
    *[
        LSTMCell(H, norm, peephole=True, inner_bias=True)
        for norm in LSTMCell.norm_names
    ],
    GRUCell(H, learned_carry=True, recurrent_dropout=0.2),
    GRUCell(H, reset="before"),
    SimpleCell(H),
    DreamerBlockGRUCell(H, hidden_features=5, input_sizes=(D,), blocks=2),
    zoneout(stack(LSTMCell(D), GRUCell(D), skip="residual"), 0.1, 0.1),
    variational_dropout(stack(LSTMCell(H), GRUCell(H), skip="graves"), 0.1, 0.1),
]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_all_cells_run_under_strict_dtype_promotion(dtype):
    def loss(cell, params, x):
        result = unroll(
            cell,
            params,
            x,
            seq_lengths=jnp.array([6, 2]),
            resets=jnp.zeros((2, 6), bool),
            key=jax.random.key(1) if cell.is_noisy else None,
        )
        return result.outputs.astype(jnp.float32).sum()

    x = X.astype(dtype)
    with jax.numpy_dtype_promotion("strict"):
        for cell in STRICT:
            params = cell.init(jax.random.key(0), D, dtype)
            # Dtypes are checked while tracing.
            gradient = functools.partial(jax.grad(loss, (1, 2)), cell)
            d_params, d_x = jax.eval_shape(gradient, params, x)
            dtypes = {leaf.dtype for leaf in jax.tree.leaves((d_params, d_x))}
            assert dtypes == {jnp.dtype(dtype)}
            if not cell.sites:
                carry = cell.initial_carry(params, x[:, 0])
                jax.eval_shape(functools.partial(step, cell), params, carry, x[:, 0])


@pytest.mark.parametrize(
    ("error", "message", "x", "arguments"),
    [
        (TypeError, "floating point", X.astype(jnp.int32), {}),
        (
            ValueError,
            "4 features, but w_x of LSTMCell takes 3",
            X[..., [0, 0, 0, 0]],
            {},
        ),
        (ValueError, "time and a feature axis", X[0, 0], {}),
        (ValueError, "mask has shape", X, {"mask": jnp.ones((2, 5))}),
        (ValueError, "resets has shape", X, {"resets": jnp.ones((6, 2), bool)}),
        (ValueError, r"-1\.\.3 must lie in 0\.\.6", X, {"seq_lengths": [-1, 3]}),
        (ValueError, r"2\.\.7 must lie in 0\.\.6", X, {"seq_lengths": [2, 7]}),
        (ValueError, "seq_lengths has shape", X, {"seq_lengths": [2]}),
        (TypeError, "must hold integers", X, {"seq_lengths": [2.0, 3.0]}),
        (
            TypeError,
            "carry has dtype int32, but this computation keeps it in float32",
            X,
            {"initial_carry": (ZEROS.astype(jnp.int32), ZEROS)},
        ),
        (ValueError, "carry has shape", X, {"initial_carry": (ZEROS[:1], ZEROS)}),
        (ValueError, "this cell's is", X, {"initial_carry": ZEROS}),
        (ValueError, "norm='batch'", X, {"statistics": {"x": (ZEROS, ZEROS)}}),
        (TypeError, "unexpected keyword argument 'lengths'", X, {"lengths": [2, 3]}),
    ],
)
def test_bad_input_is_refused(error, message, x, arguments):
    if "seq_lengths" in arguments:
        arguments = {"seq_lengths": jnp.array(arguments["seq_lengths"])}
    with pytest.raises(error, match=message):
        unroll(CELL, PARAMS, x, **arguments)


@pytest.mark.parametrize("cell", [CELL, stack(CELL, GRUCell(H, "none"))])
def test_swapped_arguments_are_named(cell):
    params = cell.init(jax.random.key(0), D)
    with pytest.raises(TypeError, match=r"unroll\(cell, params, x\) in this order"):
        unroll(cell, X, params)
    order = r"step\(cell, params, carry, x\) in this order"
    with pytest.raises(TypeError, match=rf"params is .* and x is .*{order}"):
        step(cell, X[:, 0], cell.initial_carry(params, X[:, 0]), params)
    with pytest.raises(TypeError, match="not a cell"):
        unroll(params, cell, X)
    with pytest.raises(TypeError, match="not a cell"):
        unroll(LSTMCell, params, X)


def test_parameters_of_another_cell_are_named():
    with pytest.raises(ValueError, match=r"gain_h|gain_x"):
        unroll(CELL, LSTMCell(H, "none").init(jax.random.key(0), D), X)
    with pytest.raises(ValueError, match=r"no .*'w_x'"):
        unroll(CELL, {"kernel": jnp.ones((D, H))}, X)


SHAPES = {
    "lstm": LSTMCell(H, peephole=True, inner_bias=True, learned_carry=True),
    "weight": LSTMCell(H, "weight"),
    "gru": GRUCell(H, reset="before"),
    "simple": SimpleCell(H),
    "dreamer": DreamerBlockGRUCell(H, hidden_features=5, input_sizes=(D,), blocks=2),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_parameter_of_another_shape_is_named(name):
    """One of shape [1] would broadcast, and those of more units fail inside XLA."""
    cell = SHAPES[name]
    params = cell.init(jax.random.key(0), D)
    for changed, value in params.items():
        # The kernel of the input says what the number of features is.
        other = value[..., :1]
        shapes = rf"{changed} has shape \({re.escape(str(other.shape)[1:])}, but .* "
        shapes += re.escape(str(value.shape))
        with pytest.raises(ValueError, match=shapes):
            unroll(cell, params | {changed: other}, X)
        with pytest.raises(ValueError, match=shapes):
            step(cell, params | {changed: other}, None, X[:, 0])


def test_weights_of_another_number_of_units_are_named():
    larger = LSTMCell(2 * H).init(jax.random.key(0), D)
    with pytest.raises(ValueError, match=r"w_x has shape \(3, 32\), but .*\(3, 16\)"):
        unroll(CELL, larger, X)


@pytest.mark.parametrize("name", ["mask", "reset"])
def test_flags_of_a_step_of_another_shape_are_refused(name):
    carry = CELL.initial_carry(PARAMS, X[:, 0])
    with pytest.raises(ValueError, match=f"step: {name} has shape"):
        step(CELL, PARAMS, carry, X[:, 0], **{name: jnp.ones((3,), bool)})
