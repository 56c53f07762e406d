"""Several episodes in one sequence: where resets stand, and replay of a rollout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import unroll
from tests.functional.programs import (
    CELLS,
    MEMORY,
    B,
    T,
    X,
    at,
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
    [("attention", True), ("lstm_batch", True), ("stack", False)],
)
def test_each_episode_gets_what_it_gets_alone(name, reverse):
    """All but the first that is taken start from the initial carry of the cell.

    No gradient crosses a reset; a learned initial carry gets that of all episodes.
    """
    cell = CELLS[name]
    params, stored = problem(cell)
    how = {"memory": MEMORY, "reverse": reverse, "keep_order": True}

    def together(params, x, stored):
        result = unroll(cell, params, x, resets=RESETS, initial_carry=stored, **how)
        return total(result[:2]), result[:2]

    def apart(params, x, stored):
        outputs, carry = [], stored
        for part in EPISODES[::-1] if reverse else EPISODES:
            result = unroll(cell, params, x[:, part], initial_carry=carry, **how)
            outputs.append(result.outputs)
            carry = None
        outputs = jnp.concatenate(outputs[::-1] if reverse else outputs, 1)
        return total((result.carry, outputs)), (result.carry, outputs)

    @jax.jit
    def of_both(*arguments):
        gradients = [jax.grad(f, (0, 1, 2), has_aux=True) for f in (together, apart)]
        return [gradient(*arguments) for gradient in gradients]

    same(*of_both(params, X, stored), 1e-5)


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
