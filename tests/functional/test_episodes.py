"""Several episodes in one sequence: where resets stand, and replay of a rollout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import (
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    stack,
    step,
    unroll,
)

B, T, D, H = 3, 12, 4, 8
X = jax.random.normal(jax.random.key(0), (B, T, D))
# An episode ends with the action at step 3, and so on. Row 2 goes on throughout.
DONE = jnp.zeros((B, T), bool).at[0, 3].set(True).at[1, jnp.array([0, 6, 7])].set(True)
CELLS = {
    "lstm": LSTMCell(H, "layer"),
    "lstm-joint": LSTMCell(H, "layer", norm_site="joint", cell_norm="carry"),
    "lstm-rms": LSTMCell(H, "rms"),
    "gru": GRUCell(H, "layer", learned_carry=True),
    "gru-before": GRUCell(H, "layer", reset="before"),
    "dreamer": DreamerGRUCell(H, "layer"),
    "dreamer-block": DreamerBlockGRUCell(
        H, hidden_features=5, input_sizes=(3, 1), blocks=4
    ),
    "stack": stack(GRUCell(H, "layer"), LSTMCell(H, "rms")),
}


def resets_of(done, goes_on):
    """A step begins an episode where the step before it ended one."""
    first = jnp.full((B, 1), not goes_on)
    return jnp.concatenate([first, done[:, :-1]], 1)


def params_of(cell):
    params = cell.init(jax.random.key(1), D)
    # The learned carry differs from zeros.
    return jax.tree.map(lambda a: a + 0.1, params)


@pytest.mark.parametrize("name", CELLS)
def test_replay_of_a_rollout_equals_acting_to_the_bit(name):
    cell = CELLS[name]
    params = params_of(cell)

    @jax.jit
    def act(params, carry, x, reset):
        return step(cell, params, carry, x, reset=reset)

    # Two rollouts, of which the second goes on with the carry of the first.
    carry = cell.initial_carry(params, X[:, 0])
    resets, outputs, carries = resets_of(DONE, goes_on=True), [], [carry]
    for t in range(T):
        carry, y = act(params, carry, X[:, t], resets[:, t])
        outputs.append(y)
        carries.append(carry)

    @jax.jit
    def replay(params, carry, x, resets):
        return unroll(cell, params, x, initial_carry=carry, resets=resets)

    half = T // 2
    for start in (0, half):
        part = slice(start, start + half)
        result = replay(params, carries[start], X[:, part], resets[:, part])
        acted = jnp.stack(outputs[part], 1)
        np.testing.assert_array_equal(result.outputs, acted)
        jax.tree.map(np.testing.assert_array_equal, result.carry, carries[start + half])


def test_done_at_the_step_itself_is_the_recurring_error():
    """resets[t] is done[t - 1]: only so are episodes independent of each other."""
    cell = CELLS["gru"]
    params = params_of(cell)

    def second_episode(x, resets):
        return unroll(cell, params, x, resets=resets).outputs[0, 4:]

    other = X.at[0, :4].set(7.0)
    right = resets_of(DONE, goes_on=False)
    np.testing.assert_array_equal(
        second_episode(X, right), second_episode(other, right)
    )
    assert not jnp.allclose(second_episode(X, DONE), second_episode(other, DONE))
    alone = unroll(cell, params, X[0, 4:]).outputs
    np.testing.assert_allclose(second_episode(X, right), alone, atol=1e-6)


def test_integers_are_flags():
    cell = CELLS["gru"]
    params = params_of(cell)
    resets = resets_of(DONE, goes_on=False)
    np.testing.assert_array_equal(
        unroll(cell, params, X, resets=resets).outputs,
        unroll(cell, params, X, resets=resets.astype(jnp.int32)).outputs,
    )


def test_resets_of_another_dtype_or_shape_are_refused_in_one_line():
    cell = CELLS["gru"]
    params = params_of(cell)
    carry = cell.initial_carry(params, X[:, 0])

    def message(error, call, **arguments):
        with pytest.raises(error) as raised:
            call(**arguments)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    def over_time(resets):
        unroll(cell, params, X, resets=resets)

    def one_step(reset):
        step(cell, params, carry, X[:, 0], reset=reset)

    discounts = jnp.ones((B, T))
    text = message(TypeError, over_time, resets=discounts)
    assert "unroll: resets has dtype float32; it must hold booleans or integers" in text
    assert "done.astype(bool)" in text
    text = message(TypeError, one_step, reset=discounts[:, 0])
    assert "step: reset has dtype float32" in text
    # The dtype alone decides, also of zeros and ones: they may be a discount.
    message(TypeError, over_time, resets=1.0 - DONE)
    message(TypeError, jax.jit(over_time), resets=DONE.astype(jnp.float32))
    assert "resets has shape (3, 12, 1); these inputs ask for (3, 12)" in message(
        ValueError, over_time, resets=DONE[..., None]
    )
    assert "resets has shape (12, 3)" in message(ValueError, over_time, resets=DONE.T)
