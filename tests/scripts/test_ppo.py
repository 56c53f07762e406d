"""The comparison of norms in PPO, from kept curves."""

import numpy as np

from scripts.paper import pages, ppo


def test_a_policy_has_learned_where_five_updates_have_the_return():
    steps = 10 * np.arange(1, 8)
    returns = np.array([[0.5, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9], [0.8] * 7])
    learned = ppo.learned_after(steps, returns)
    assert learned.tolist() == [[60], [np.inf]]


def test_the_kept_curves_have_five_seeds_of_each_norm_and_rate():
    rows = ppo.read(pages.PICTURES / "ppo_norms.csv")
    for rate in (3e-4, 1e-3, 3e-3, 1e-2):
        for norm in ppo.NORMS:
            assert ppo.returns(rows, rate, norm)[1].shape == (5, 150)
