"""Several episodes in one sequence: where resets stand, and replay of a rollout."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import DreamerBlockGRUCell, LSTMCell, step, unroll, zoneout
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
    total,
)

CELL = CELLS["lstm"]
PARAMS, STORED = problem(CELL)
RESET_CELLS = {**CELLS, "zoneout": zoneout(CELLS["lstm"], 0.2, 0.3)}
# The episodes 0..1, 2..4 and 5. All rows have the same ones, for batch norm.
EPISODES = [slice(0, 2), slice(2, 5), slice(5, 6)]
RESETS = np.array([[0, 0, 1, 0, 0, 1]] * B, bool)
# A step does not see how its carry was reset. So few cells run by default: those with a
# learned carry, memory, noise, batch norm and several layers.
QUICK = {
    ("lstm", False),
    ("attention", True),
    ("zoneout", False),
    ("lstm_batch", True),
    ("stack", True),
}


@pytest.mark.parametrize(
    ("name", "reverse"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in itertools.product(RESET_CELLS, (False, True))
    ],
)
def test_each_episode_gets_what_it_gets_alone(name, reverse):
    """All but the first that is taken start from the initial carry of the cell.

    No gradient crosses a reset; a learned initial carry gets that of all episodes.
    """
    cell = RESET_CELLS[name]
    params, stored = problem(cell)
    how = {"memory": MEMORY, "reverse": reverse, "keep_order": True}
    first, *others = EPISODES[::-1] if reverse else EPISODES

    @functools.partial(jax.grad, argnums=(0, 1, 2), has_aux=True)
    def together(params, x, stored):
        result = unroll(cell, params, x, resets=RESETS, initial_carry=stored, **how)
        parts = [result.outputs[:, part] for part in others]
        of_first = result.outputs[:, first]
        return total(parts), ((parts, result.carry), of_first)

    @functools.partial(jax.grad, argnums=(0, 1), has_aux=True)
    def apart(params, x):
        results = [unroll(cell, params, x[:, part], **how) for part in others]
        parts = [result.outputs for result in results]
        return total(parts), (parts, results[-1].carry)

    @jax.jit
    def both(params, x, stored):
        of_first = unroll(cell, params, x[:, first], initial_carry=stored, **how)
        return together(params, x, stored), apart(params, x), of_first.outputs

    found, alone, of_first = both(params, X, stored)
    (*gradients, of_stored), (values, beginning) = found
    assert is_zero(of_stored)
    same(beginning, of_first)
    expected_gradients, expected = alone
    same(values, expected)
    same(tuple(gradients), expected_gradients, 1e-5)


@pytest.mark.parametrize("name", ["lstm", "gru_before", "stack"])
def test_a_reset_of_one_step(name):
    """Of the marked rows, and without a gradient to the carry that was passed in."""
    cell = CELLS[name]
    params, stored = problem(cell)
    reset = np.array([True, False])

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def first_row(stored):
        carry, y = step(cell, params, stored, X[:, 0], reset=reset)
        return jnp.sum(y[0]), (carry, y)

    d_stored, found = jax.device_get(first_row(stored))
    assert is_zero(at(d_stored, 0))
    start = jax.device_get(jax.jit(cell.initial_carry)(params, X[:, 0]))
    anew = one_step(cell, params, start, X[:, 0])
    on = one_step(cell, params, stored, X[:, 0])
    same(found, jax.tree.map(lambda a, b: np.stack([a[0], b[1]]), anew, on))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("keep_order", [False, True])
def test_resets_at_and_beyond_a_length_mean_nothing(reverse, keep_order):
    marked = np.arange(T) == np.full((B, 1), 2)
    everywhere = marked.copy()
    everywhere[0, 5] = everywhere[1, 4:] = True
    lengths = np.array([5, 4])
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
    mask = np.array([[1, 1, 0, 0, 1, 1]] * B)
    resets = np.arange(T) == np.full((B, 1), marked)
    how = {"reverse": reverse, "keep_order": True}
    found = run(CELL, PARAMS, X, mask=mask, resets=resets, **how).outputs
    for part in (slice(0, 2), slice(4, 6)):
        same(found[:, part], run(CELL, PARAMS, X[:, part], **how).outputs)


# With fewer than eight rows, a step equals its replay to rounding: test_unroll.py.
ROWS = 8
# An episode ends with the action at step 3. Odd rows go on throughout.
DONE = np.zeros((ROWS, T), bool)
DONE[::2, 3] = True


def resets_of(done, goes_on):
    """A step begins an episode where the step before it ended one."""
    first = np.full((len(done), 1), not goes_on)
    return np.concatenate([first, done[:, :-1]], 1)


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
    x, memory = np.concatenate([X] * 4), np.concatenate([MEMORY] * 4)
    params, carry = problem(cell)
    carry = jax.tree.map(lambda a: np.concatenate([a] * 4), carry)
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
        same(result.outputs, np.stack(outputs[part], 1), 0)
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
    assert not np.allclose(second_episode(X, done), second_episode(other, done))
    # Integers are flags, too.
    same(second_episode(X, right.astype(np.int32)), second_episode(X, right), 0)


def test_a_loop_of_steps_in_reverse_restarts_before_the_last_step_of_an_episode():
    how = {"resets": RESETS, "reverse": True, "keep_order": True}
    whole = run(CELL, PARAMS, X, initial_carry=STORED, **how)
    carry = STORED
    for t in reversed(range(T)):
        reset = RESETS[:, t + 1] if t < T - 1 else np.zeros(B, bool)
        carry, y = one_step(CELL, PARAMS, carry, X[:, t], reset=reset)
        same(y, whole.outputs[:, t])
    same(carry, whole.carry)
