"""The batch norm of MNIST and the ConvNets against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.classification.batch_norm import BatchNorm

X = np.random.default_rng(0).standard_normal((4, 3, 5)).astype("f4") * 2 + 1


@pytest.mark.parametrize("unbiased", [False, True])
def test_in_training_and_at_test(unbiased):
    options = {"momentum": 0.5, "epsilon": 1e-3, "unbiased": unbiased}
    x, params = (
        X.astype(float),
        {"scale": jnp.arange(1.0, 6.0), "bias": jnp.arange(5.0)},
    )
    layer = BatchNorm(False, **options)
    start = layer.init(jax.random.key(0), X)["batch_stats"]
    y, new = layer.apply(
        {"params": params, "batch_stats": start}, X, mutable="batch_stats"
    )
    stats = new["batch_stats"]
    mean, var = x.mean((0, 1)), x.var((0, 1), ddof=int(unbiased))
    # The batch that `init` sees does not count: mean 0 and variance 1 come first.
    np.testing.assert_allclose(stats["mean"], mean / 2, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(stats["var"], 0.5 + var / 2, rtol=1e-5)
    at_test = BatchNorm(True, **options).apply({"params": params, **new}, X)
    for found, m, v in ((y, mean, var), (at_test, mean / 2, 0.5 + var / 2)):
        wanted = (x - m) / np.sqrt(v + 1e-3) * params["scale"] + params["bias"]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
