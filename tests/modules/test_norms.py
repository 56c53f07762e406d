"""LayerNorm of linen and nnx: eq. 3, 15 and 16, and Flax's conventions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from lnrepro import linen
from lnrepro import nnx as lnnx
from tests.modules.adaptor import refused, same
from tests.oracle import layer_norm

X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 3, 5)) * 2 + 1, "f4")
uniform = nn.initializers.uniform(1.0)


def linen_norm(x, **options):
    y, variables = linen.LayerNorm(**options).init_with_output(jax.random.key(0), x)
    return y, nn.unbox(variables).get("params", {})


def nnx_norm(x, **options):
    module = lnnx.LayerNorm(x.shape[-1], rngs=nnx.Rngs(0), **options)
    return module(x), nnx.to_pure_dict(nnx.state(module, nnx.Param))


each_norm = pytest.mark.parametrize("norm", [linen_norm, nnx_norm])


@each_norm
@pytest.mark.parametrize("use_scale", [True, False])
@pytest.mark.parametrize("use_bias", [True, False])
def test_values(norm, use_scale, use_bias):
    options = {"use_scale": use_scale, "use_bias": use_bias}
    y, params = norm(X, scale_init=uniform, bias_init=uniform, epsilon=1e-3, **options)
    assert ("scale" in params, "bias" in params) == (use_scale, use_bias)
    gain, bias = params.get("scale", 1.0), params.get("bias", 0.0)
    same(y, layer_norm(np.float64(X), gain, bias, epsilon=1e-3))
    theirs = nn.LayerNorm(1e-3, use_fast_variance=False, **options)
    same(y, theirs.apply({"params": params}, X))


@each_norm
@pytest.mark.parametrize(
    ("x_dtype", "options", "result"),
    [
        (jnp.bfloat16, {}, jnp.bfloat16),
        (jnp.float16, {"param_dtype": jnp.float16}, jnp.float16),
        (jnp.float32, {"dtype": jnp.bfloat16}, jnp.bfloat16),
        (jnp.bfloat16, {"dtype": jnp.float32}, jnp.float32),
        (jnp.int32, {"dtype": jnp.float32}, jnp.float32),
    ],
)
def test_dtypes(norm, x_dtype, options, result):
    x = (4 * X).astype(x_dtype)
    y, params = norm(x, **options)
    assert y.dtype == result
    assert params["scale"].dtype == options.get("param_dtype", jnp.float32)
    same(np.asarray(y, np.float64), layer_norm(np.float64(x)), 4e-2)


@each_norm
def test_bad_input(norm):
    with refused(TypeError, "int32"):
        norm(X.astype(int))


def test_nnx_checks_its_number_of_features():
    with refused(ValueError, "num_features is 1", r"\(4, 3, 5\)"):
        lnnx.LayerNorm(1, rngs=nnx.Rngs(0))(X)


def test_partitioned_initialisers():
    box = nn.with_partitioning(nn.initializers.ones, ("model",))
    layer = linen.LayerNorm(scale_init=box)
    variables = layer.init(jax.random.key(0), X)
    assert variables["params"]["scale"].names == ("model",)
    same(layer.apply(variables, X), layer.apply(nn.unbox(variables), X), 0)
