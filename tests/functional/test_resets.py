"""Several episodes in one sequence: where resets stand, and replay of a rollout."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import DreamerBlockGRUCell, step, unroll
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
# The episodes 0..1, 2..4 and 5. All rows have the same ones, for batch norm.
EPISODES = [slice(0, 2), slice(2, 5), slice(5, 6)]
RESETS = np.array([[0, 0, 1, 0, 0, 1]] * B, bool)


# A step does not see how its carry was reset. So few cells run: those with a learned
# carry, memory, batch norm and several layers.
@pytest.mark.parametrize(
    ("name", "reverse"),
    [("lstm", False), ("attention", True), ("lstm_batch", True), ("stack", False)],
)
def test_each_episode_gets_what_it_gets_alone(name, reverse):
    """All but the first that is taken start from the initial carry of the cell.

    No gradient crosses a reset; a learned initial carry gets that of all episodes.
    """
    cell = CELLS[name]
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


def test_no_gradient_crosses_a_reset_of_one_step():
    @jax.jit
    @jax.grad
    def gradient(stored):
        reset = np.array([True, False])
        return jnp.sum(step(CELL, PARAMS, stored, X[:, 0], reset=reset)[1])

    crossed = gradient(STORED)
    assert is_zero(at(crossed, 0))
    assert not is_zero(at(crossed, 1))


@pytest.mark.parametrize(
    ("reverse", "keep_order"), [(False, False), (True, False), (True, True)]
)
def test_resets_at_and_beyond_a_length_mean_nothing(reverse, keep_order):
    # Integers are flags, too.
    marked = (np.arange(T) == np.full((B, 1), 2)).astype(np.int32)
    everywhere = marked.copy()
    everywhere[0, 5] = everywhere[1, 4:] = 1
    lengths = {"seq_lengths": np.array([5, 4])}
    how = {"reverse": reverse, "keep_order": keep_order, "initial_carry": STORED}
    found = run(CELL, PARAMS, X, resets=everywhere, **lengths, **how)
    same(found, run(CELL, PARAMS, X, resets=marked, **lengths, **how), 0)
    alone = run(CELL, PARAMS, X[:, :4], resets=marked[:, :4], **how)
    same(at(found.outputs, 1)[:4], at(alone.outputs, 1))
    same(at(found.carry, 1), at(alone.carry, 1))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_reset_at_a_padded_step_holds_for_the_steps_beyond_it(reverse):
    mask = np.array([[1, 1, 0, 0, 1, 1]] * B)
    how = {"reverse": reverse, "keep_order": True}
    parts = [slice(0, 2), slice(4, 6)]
    alone = [run(CELL, PARAMS, X[:, part], **how).outputs for part in parts]
    for marked in (2, 3, 4):
        resets = np.arange(T) == np.full((B, 1), marked)
        found = run(CELL, PARAMS, X, mask=mask, resets=resets, **how).outputs
        same([found[:, part] for part in parts], alone)


# With fewer than eight rows, a step equals its replay to rounding.
ROWS = 8
# An episode ends with the action at step 3. Odd rows go on throughout.
DONE = np.zeros((ROWS, T), bool)
DONE[::2, 3] = True


ACTORS = {name: CELLS[name] for name in ("lstm", "gru_before", "stack", "attention")}
ACTORS["dreamer"] = DreamerBlockGRUCell(
    H, hidden_features=5, input_sizes=(3, 1), blocks=2
)


@pytest.mark.parametrize("name", ACTORS)
def test_replay_of_a_rollout_equals_acting_to_the_bit(name):
    """Two rollouts, of which the second goes on with the carry of the first."""
    cell = ACTORS[name]
    x, memory = np.concatenate([X] * 4), np.concatenate([MEMORY] * 4)
    params, carry = problem(cell)
    carry = jax.tree.map(lambda a: np.concatenate([a] * 4), carry)
    # A step begins an episode where the step before it ended one.
    resets = np.concatenate([np.zeros((ROWS, 1), bool), DONE[:, :-1]], 1)
    outputs, carries = [], [carry]
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


def test_a_loop_of_steps_in_reverse_restarts_before_the_last_step_of_an_episode():
    how = {"resets": RESETS, "reverse": True, "keep_order": True}
    whole = run(CELL, PARAMS, X, initial_carry=STORED, **how)
    carry = STORED
    for t in reversed(range(T)):
        reset = RESETS[:, t + 1] if t < T - 1 else np.zeros(B, bool)
        carry, y = one_step(CELL, PARAMS, carry, X[:, t], reset=reset)
        same(y, whole.outputs[:, t])
    same(carry, whole.carry)
