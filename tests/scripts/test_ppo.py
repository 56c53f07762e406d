"""The comparison of norms in PPO, from kept curves."""

import numpy as np

from scripts.paper import ppo


def test_a_policy_has_learned_where_five_updates_have_the_return():
    steps = 10 * np.arange(1, 8)
    returns = np.array([[0.5, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9], [0.8] * 7])
    learned = ppo.learned_after(steps, returns)
    assert learned.tolist() == [60, np.inf]
