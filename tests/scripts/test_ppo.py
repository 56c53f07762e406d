"""The comparison of norms in PPO, from kept curves."""

import numpy as np

from scripts.paper import pages, ppo


def test_a_policy_has_learned_where_five_updates_have_the_return():
    returns = [0.5, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
    curve = np.stack([10 * np.arange(1, 8), returns], 1)
    assert ppo.learned_after(curve) == 60
    curve[:, 1] = 0.8
    assert ppo.learned_after(curve) == np.inf


def test_the_kept_curves_have_five_seeds_of_each_norm_and_rate():
    curves = ppo.read(pages.PICTURES / "ppo_norms.csv")
    assert list(curves) == [3e-4, 1e-3, 3e-3, 1e-2]
    for norms in curves.values():
        assert norms.keys() == set(ppo.NORMS)
        assert all(list(seeds) == [0, 1, 2, 3, 4] for seeds in norms.values())
