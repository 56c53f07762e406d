"""docs/examples/recurrent_ppo.py: the maze, the replay check, and a short training."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest

from docs.examples import recurrent_ppo as ppo

SHORT = ppo.Settings(features=8, environments=8, steps=40, updates=3, minibatches=2)


@jax.jit
def run(maze, actions):
    def move(maze, action):
        maze, *outcome = ppo.move(maze, action, jax.random.key(0))
        return maze, outcome

    return jax.lax.scan(move, maze, actions)[1]


def walk(sign, actions):
    """Return the rewards and ends of a walk from the entrance."""
    maze = ppo.Maze(np.int32(sign), np.int32(0), np.int32(0))
    rewards, ends = run(maze, np.array(actions, np.int32))
    return rewards.tolist(), ends.tolist()


def test_only_the_turn_of_the_sign_is_rewarded():
    right = {(-1, ppo.LEFT), (1, ppo.RIGHT)}
    for sign, turn in itertools.product((-1, 1), (ppo.LEFT, ppo.RIGHT)):
        rewards, ends = walk(sign, [ppo.FORWARD] * ppo.CORRIDOR + [turn])
        assert rewards == [0.0] * ppo.CORRIDOR + [float((sign, turn) in right)]
        assert ends == [False] * ppo.CORRIDOR + [True]


def test_walls_cost_and_time_runs_out():
    rewards, ends = walk(1, [ppo.LEFT] * ppo.LONGEST)
    assert rewards == pytest.approx([-0.1] * ppo.LONGEST)
    assert ends == [False] * (ppo.LONGEST - 1) + [True]


def test_the_sign_is_seen_at_the_entrance_alone():
    places = np.array([0, 3, ppo.CORRIDOR])
    mazes = ppo.Maze(np.full(3, -1), places, places)
    found = jax.vmap(ppo.observe)(mazes)
    assert found.tolist() == [[-1, 0, 1], [0, 0, 1], [0, 1, 1]]


@functools.cache
def rollout(settings=SHORT, rollouts=2):
    """Return the policy, its parameters, and the second rollout, in mid-episode."""
    policy = ppo.make_policy(settings)

    @jax.jit
    def run():
        key = jax.random.key(0)
        learned, acting = ppo.start(policy, settings, key, key)
        params = learned.params

        def act(acting, key):
            acting, seen, last = ppo.act(policy, params, acting, settings.steps, key)
            return acting, (seen, last)

        keys = jax.random.split(key, rollouts)
        _, found = jax.lax.scan(act, acting, keys)
        return params, *jax.tree.map(lambda a: a[-1], found)

    return policy, *jax.device_get(run())


def test_a_stored_rollout_is_replayed_and_an_early_reset_is_noticed():
    policy, params, seen, _ = rollout()
    inside = seen.resets[:, 1:]
    assert inside.any()
    assert not seen.resets[:, 0].all()
    assert np.array_equal(inside, seen.done[:, :-1])
    error = jax.jit(ppo.replay_error, static_argnums=1)
    assert error(params, policy, seen) <= ppo.REPLAY_TOLERANCE
    # The common mistake: the carry starts anew one step too early or too late.
    for shift in (-1, 1):
        wrong = seen._replace(resets=np.roll(seen.resets, shift, axis=1))
        assert error(params, policy, wrong) > 1e-4
    forgotten = seen._replace(carry=np.zeros_like(seen.carry))
    assert error(params, policy, forgotten) > 1e-4


def test_advantages_are_the_sum_of_discounted_errors():
    _, _, seen, last = rollout()
    found = jax.jit(ppo.advantages, static_argnums=2)(seen, last, SHORT)
    values = np.float64(np.concatenate([seen.values, last[:, None]], 1))
    continues = SHORT.discount * (1.0 - seen.done)
    errors = seen.rewards + continues * values[:, 1:] - values[:, :-1]
    beyond = np.zeros(len(errors))
    for t in reversed(range(SHORT.steps)):
        beyond = errors[:, t] + SHORT.trace * continues[:, t] * beyond
        np.testing.assert_allclose(found[:, t], beyond, atol=1e-5)


each_memory = pytest.mark.parametrize("memory", [True, False])


@each_memory
def test_a_training_is_one_program(memory):
    settings = dataclasses.replace(SHORT, memory=memory)
    progress = jax.eval_shape(functools.partial(ppo.train, settings), jax.random.key(1))
    assert progress.score.shape == (SHORT.updates,)


@pytest.mark.slow
@each_memory
def test_a_short_training(memory):
    progress = ppo.train(dataclasses.replace(SHORT, memory=memory), jax.random.key(1))
    assert np.isfinite(progress.score).all()
    assert progress.replay_error.max() <= ppo.REPLAY_TOLERANCE
