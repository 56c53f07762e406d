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
    layer = BatchNorm(False, **options)
    variables = layer.init(jax.random.key(0), X)
    params = {"scale": jnp.arange(1.0, 6.0), "bias": jnp.arange(5.0)}
    stats = variables["batch_stats"]
    # The batch that `init` sees does not count.
    assert not stats["mean"].any()
    assert (stats["var"] == 1).all()

    y, updates = layer.apply(variables | {"params": params}, X, mutable="batch_stats")
    exact, ddof = X.astype(np.float64), int(unbiased)
    mean, var = exact.mean((0, 1)), exact.var((0, 1), ddof=ddof)
    close = {"rtol": 1e-5, "atol": 1e-5}
    expected = (exact - mean) / np.sqrt(var + 1e-3) * params["scale"] + params["bias"]
    np.testing.assert_allclose(y, expected, **close)
    stats = updates["batch_stats"]
    np.testing.assert_allclose(stats["mean"], mean / 2, **close)
    np.testing.assert_allclose(stats["var"], 0.5 + var / 2, **close)

    y = BatchNorm(True, **options).apply({"params": params, "batch_stats": stats}, X)
    centred = (exact - mean / 2) / np.sqrt(0.5 + var / 2 + 1e-3)
    np.testing.assert_allclose(y, centred * params["scale"] + params["bias"], **close)
