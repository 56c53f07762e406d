"""The batch norm of MNIST and the ConvNets against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from experiments.classification.batch_norm import BatchNorm

X = np.random.default_rng(0).standard_normal((4, 3, 5)).astype("f4") * 2 + 1


@pytest.mark.parametrize("unbiased", [False, True])
def test_in_training_and_at_test(unbiased):
    layer = BatchNorm(ConfigDict({"momentum": 0.75, "eps": 1e-3, "unbiased": unbiased}))
    # The batch that `init` sees does not count: mean 0 and variance 1 come first.
    start = layer.init(jax.random.key(0), X, train=True)["batch_stats"]
    gain, bias = params = jnp.arange(1.0, 6.0), jnp.arange(5.0)
    vars = {"params": dict(zip(("scale", "bias"), params, strict=True))}
    y, new = layer.apply(
        vars | {"batch_stats": start}, X, train=True, mutable="batch_stats"
    )
    at_test = layer.apply(vars | new, X, train=False)
    x = X.astype(float)
    mean, var = x.mean((0, 1)), x.var((0, 1), ddof=int(unbiased))
    for found, m, v in ((y, mean, var), (at_test, mean / 4, 0.75 + var / 4)):
        wanted = (x - m) / np.sqrt(v + 1e-3) * gain + bias
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
