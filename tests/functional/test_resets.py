"""Several episodes in one sequence: where resets stand, and replay of a rollout."""

import jax
import jax.numpy as jnp
import pytest

from lnrepro.functional import DreamerBlockGRUCell, LSTMCell, unroll, zoneout
from tests.functional.programs import (
    CELLS,
    MEMORY,
    B,
    H,
    T,
    X,
    at,
    is_zero,
    one_step,
    problem,
    run,
    same,
)

CELL = CELLS["lstm"]
PARAMS, STORED = problem(CELL)
RESET_CELLS = {**CELLS, "zoneout": zoneout(CELLS["lstm"], 0.2, 0.3)}
# The episodes 0..1, 2..4 and 5. All rows have the same ones, for batch norm.
EPISODES = [slice(0, 2), slice(2, 5), slice(5, 6)]
RESETS = jnp.array([[0, 0, 1, 0, 0, 1]] * B, bool)


@pytest.mark.parametrize(
    ("name", "reverse"),
    [
        pytest.param(name, way, marks=() if number % 2 == way else pytest.mark.slow)
        for number, name in enumerate(RESET_CELLS)
        for way in (False, True)
    ],
)
def test_each_episode_gets_what_it_gets_alone(name, reverse):
    """All but the first that is taken start from the initial carry of the cell."""
    cell = RESET_CELLS[name]
    params, stored = problem(cell)
    how = {"memory": MEMORY, "reverse": reverse, "keep_order": True}
    whole = run(cell, params, X, resets=RESETS, initial_carry=stored, **how)
    taken = EPISODES[::-1] if reverse else EPISODES
    first, *others = taken

    def alone(params, x):
        return [unroll(cell, params, x[:, part], **how) for part in others]

    apart = jax.jit(alone)(params, X)
    for part, result in zip(others, apart, strict=True):
        same(whole.outputs[:, part], result.outputs)
    same(whole.carry, apart[-1].carry)
    of_first = run(cell, params, X[:, first], initial_carry=stored, **how)
    same(whole.outputs[:, first], of_first.outputs)

    # No gradient crosses a reset; a learned initial carry gets that of all episodes.
    def of_others(params, x, stored):
        result = unroll(cell, params, x, resets=RESETS, initial_carry=stored, **how)
        return sum(jnp.sum(jnp.sin(result.outputs[:, part])) for part in others)

    def of_others_alone(params, x):
        return sum(jnp.sum(jnp.sin(r.outputs)) for r in alone(params, x))

    *found, d_stored = jax.jit(jax.grad(of_others, (0, 1, 2)))(params, X, stored)
    assert is_zero(d_stored)
    expected = jax.jit(jax.grad(of_others_alone, (0, 1)))(params, X)
    same(tuple(found), expected, 1e-5)


@pytest.mark.parametrize("name", ["lstm", "gru_before", "stack"])
def test_a_reset_of_one_step(name):
    """Of the marked rows, and without a gradient to the carry that was passed in."""
    cell = CELLS[name]
    params, stored = problem(cell)
    reset = jnp.array([True, False])

    def first_row(stored):
        carry, y = one_step(cell, params, stored, X[:, 0], reset=reset)
        return jnp.sum(y[0]), (carry, y)

    d_stored, found = jax.grad(first_row, has_aux=True)(stored)
    assert is_zero(at(d_stored, 0))
    anew = one_step(cell, params, cell.initial_carry(params, X[:, 0]), X[:, 0])
    on = one_step(cell, params, stored, X[:, 0])
    same(found, jax.tree.map(lambda a, b: jnp.stack([a[0], b[1]]), anew, on))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("keep_order", [False, True])
def test_resets_at_and_beyond_a_length_mean_nothing(reverse, keep_order):
    marked = jnp.arange(T) == jnp.full((B, 1), 2)
    everywhere = marked.at[0, 5].set(True).at[1, 4:].set(True)
    lengths = jnp.array([5, 4])
    how = {"reverse": reverse, "keep_order": keep_order}
    whole = run(
        CELL,
        PARAMS,
        X,
        seq_lengths=lengths,
        resets=everywhere,
        initial_carry=STORED,
        **how,
    )
    for row, length in enumerate(lengths.tolist()):
        x, resets = X[row, :length], marked[row, :length]
        carry = at(STORED, row)
        alone = run(CELL, PARAMS, x, resets=resets, initial_carry=carry, **how)
        same(whole.outputs[row, :length], alone.outputs)
        same(at(whole.carry, row), alone.carry)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("marked", [2, 3, 4])
def test_a_reset_at_a_padded_step_holds_for_the_steps_beyond_it(marked, reverse):
    mask = jnp.array([[1, 1, 0, 0, 1, 1]] * B)
    resets = jnp.arange(T) == jnp.full((B, 1), marked)
    how = {"reverse": reverse, "keep_order": True}
    found = run(CELL, PARAMS, X, mask=mask, resets=resets, **how).outputs
    for part in (slice(0, 2), slice(4, 6)):
        same(found[:, part], run(CELL, PARAMS, X[:, part], **how).outputs)


# With fewer than eight rows, a step equals its replay to rounding: test_unroll.py.
ROWS = 8
# An episode ends with the action at step 3. Odd rows go on throughout.
DONE = jnp.zeros((ROWS, T), bool).at[::2, 3].set(True)


def resets_of(done, goes_on):
    """A step begins an episode where the step before it ended one."""
    first = jnp.full((len(done), 1), not goes_on)
    return jnp.concatenate([first, done[:, :-1]], 1)


ACTORS = {
    **CELLS,
    "joint": LSTMCell(H, "layer", norm_site="joint", cell_norm="carry"),
    "dreamer": DreamerBlockGRUCell(H, hidden_features=5, input_sizes=(3, 1), blocks=2),
}
del ACTORS["lstm_batch"]


@pytest.mark.parametrize("name", ACTORS)
def test_replay_of_a_rollout_equals_acting_to_the_bit(name):
    """Two rollouts, of which the second goes on with the carry of the first."""
    cell = ACTORS[name]
    params, _ = problem(cell)
    x, memory = jnp.concatenate([X] * 4), jnp.concatenate([MEMORY] * 4)
    carry = cell.initial_carry(params, x[:, 0])
    resets, outputs, carries = resets_of(DONE, goes_on=True), [], [carry]
    for t in range(T):
        carry, y = one_step(
            cell, params, carry, x[:, t], reset=resets[:, t], memory=memory
        )
        outputs.append(y)
        carries.append(carry)
    half = T // 2
    for start in (0, half):
        part = slice(start, start + half)
        result = run(
            cell,
            params,
            x[:, part],
            initial_carry=carries[start],
            resets=resets[:, part],
            memory=memory,
        )
        same(result.outputs, jnp.stack(outputs[part], 1), 0)
        same(result.carry, carries[start + half], 0)


def test_done_at_the_step_itself_is_the_recurring_error():
    """resets[t] is done[t - 1]: only so are episodes independent of each other."""

    def second_episode(x, resets):
        return run(CELL, PARAMS, x, resets=resets).outputs[0, 4:]

    other = X.copy()
    other[0, :4] = 7
    done = DONE[:B]
    right = resets_of(done, goes_on=False)
    same(second_episode(X, right), second_episode(other, right), 0)
    assert not jnp.allclose(second_episode(X, done), second_episode(other, done))
    # Integers are flags, too.
    same(second_episode(X, right.astype(jnp.int32)), second_episode(X, right), 0)


def test_a_loop_of_steps_in_reverse_restarts_before_the_last_step_of_an_episode():
    how = {"resets": RESETS, "reverse": True, "keep_order": True}
    whole = run(CELL, PARAMS, X, initial_carry=STORED, **how)
    carry = STORED
    for t in reversed(range(T)):
        reset = RESETS[:, t + 1] if t < T - 1 else jnp.zeros(B, bool)
        carry, y = one_step(CELL, PARAMS, carry, X[:, t], reset=reset)
        same(y, whole.outputs[:, t])
    same(carry, whole.carry)
