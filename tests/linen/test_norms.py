"""The linen norm modules against NumPy formulas in float64, and Flax's conventions."""

import inspect

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from lnrepro.linen.norms import BatchNorm, LayerNorm, RMSNorm

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.standard_normal((4, 3, 5)) * 2 + 1, jnp.float32)
MASK = np.array(RNG.integers(0, 2, X.shape), bool)
MASK[..., :2] = True
MODULES = [LayerNorm, RMSNorm, BatchNorm]
uniform = nn.initializers.uniform(1.0)


def close(a, b, tolerance=1e-5):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def formula(
    x,
    axes,
    scale=1.0,
    bias=0.0,
    *,
    mask=None,
    subtract_mean=True,
    ddof=0,
    epsilon=1e-5,
):
    """Normalise in float64; scale and bias broadcast against x."""
    x = np.asarray(x, np.float64)
    keep = np.broadcast_to(True if mask is None else mask, x.shape)
    count = keep.sum(axes, keepdims=True)
    values = np.where(keep, x, 0)
    mean = values.sum(axes, keepdims=True) / count if subtract_mean else 0.0
    squares = np.where(keep, (x - mean) ** 2, 0).sum(axes, keepdims=True)
    return (x - mean) / np.sqrt(squares / (count - ddof) + epsilon) * scale + bias


def spread(value, feature_axes):
    shape = [X.shape[a] if a in feature_axes else 1 for a in range(X.ndim)]
    return np.asarray(value, np.float64).reshape(shape)


@pytest.mark.parametrize("module", MODULES)
def test_all_of_flax_s_arguments_are_accepted(module):
    theirs = inspect.signature(getattr(nn, module.__name__)).parameters
    ours = inspect.signature(module).parameters
    names = [name for name in theirs if name not in ("parent", "name")]
    # In Flax's order, so that positional arguments mean the same.
    assert list(ours)[: len(names)] == names
    call = inspect.signature(getattr(nn, module.__name__).__call__).parameters
    assert list(inspect.signature(module.__call__).parameters) == list(call)


@pytest.mark.parametrize("module", [LayerNorm, RMSNorm])
@pytest.mark.parametrize(
    ("reduction_axes", "feature_axes"),
    [(-1, -1), (1, -1), ((1, 2), -1), ((-1, 1), (1, 2)), (-1, 0), (2, (0, 1)), (0, ())],
)
def test_any_combination_of_axes(module, reduction_axes, feature_axes):
    options = {"reduction_axes": reduction_axes, "feature_axes": feature_axes}
    layer = module(scale_init=uniform, **options)
    if module is LayerNorm:
        layer = module(scale_init=uniform, bias_init=uniform, **options)
    variables = layer.init(jax.random.key(0), X)
    params = variables["params"]
    features = {a % 3 for a in np.atleast_1d(np.array(feature_axes, int))}
    shape = tuple(X.shape[a] for a in sorted(features))
    assert params["scale"].shape == shape
    reduced = tuple(int(a) % 3 for a in np.atleast_1d(reduction_axes))
    want = formula(
        X,
        reduced,
        spread(params["scale"], features),
        spread(params["bias"], features) if "bias" in params else 0.0,
        subtract_mean=module is LayerNorm,
    )
    close(layer.apply(variables, X), want)
    # Flax computes the same values.
    theirs = getattr(nn, module.__name__)(epsilon=1e-5, **options)
    close(theirs.apply(variables, X), want, 1e-4)


@pytest.mark.parametrize("module", [LayerNorm, RMSNorm])
@pytest.mark.parametrize("mask", [MASK, MASK[:1], MASK[0, 0]])
def test_masked_elements_do_not_count(module, mask):
    padded = jnp.where(mask, X, jnp.nan)
    layer = module()
    y = layer.apply(layer.init(jax.random.key(0), X), padded, mask=mask)
    keep = np.broadcast_to(mask, X.shape)
    want = formula(X, -1, mask=mask, subtract_mean=module is LayerNorm)
    close(np.asarray(y)[keep], want[keep])


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("axis", [-1, 0, (0, 2)])
def test_batch_norm_in_training_and_at_test(axis, unbiased):
    layer = BatchNorm(
        axis=axis,
        momentum=0.5,
        unbiased=unbiased,
        scale_init=uniform,
        bias_init=uniform,
    )
    variables = layer.init(jax.random.key(0), X, use_running_average=False)
    params, stats = variables["params"], variables["batch_stats"]
    features = {int(a) % 3 for a in np.atleast_1d(axis)}
    axes = tuple(a for a in range(3) if a not in features)
    scale, bias = (spread(params[name], features) for name in ("scale", "bias"))
    assert (stats["mean"] == 0).all()
    assert (stats["var"] == 1).all()

    y, updates = layer.apply(
        variables, X, use_running_average=False, mutable="batch_stats"
    )
    ddof = int(unbiased)
    close(y, formula(X, axes, scale, bias, ddof=ddof))
    stats = updates["batch_stats"]
    exact = np.asarray(X, np.float64)
    close(stats["mean"], exact.mean(axes) / 2)
    close(stats["var"], 0.5 + exact.var(axes, ddof=ddof) / 2)

    y = layer.apply({**variables, **updates}, X, use_running_average=True)
    mean, var = (spread(stats[name], features) for name in ("mean", "var"))
    close(y, (exact - mean) / np.sqrt(var + 1e-5) * scale + bias)


@pytest.mark.parametrize("mask", [MASK, MASK[..., :1], np.arange(5) < 3])
def test_batch_norm_of_the_elements_that_count(mask):
    layer = BatchNorm(use_running_average=False, momentum=0.0)
    variables = layer.init(jax.random.key(0), X)
    padded = jnp.where(mask, X, jnp.nan)
    y, updates = jax.jit(lambda x: layer.apply(variables, x, mask=mask, mutable=True))(
        padded
    )
    keep = np.broadcast_to(mask, X.shape)
    for feature in range(5):
        column = np.asarray(X, np.float64)[..., feature][keep[..., feature]]
        stats = {k: v[feature] for k, v in updates["batch_stats"].items()}
        if not column.size:
            # Nothing counts, so that the running averages stay.
            assert (stats["mean"], stats["var"]) == (0, 1)
            continue
        close(stats["mean"], column.mean())
        close(stats["var"], column.var())
        want = (column - column.mean()) / np.sqrt(column.var() + 1e-5)
        close(y[..., feature][keep[..., feature]], want)


def test_invariances():
    """Table 1: layer norm ignores shift and scale of a case, RMS norm its scale."""
    layer = LayerNorm(epsilon=0.0, use_scale=False, use_bias=False)
    close(layer.apply({}, 7 * X + 3), layer.apply({}, X), 1e-4)
    rms = RMSNorm(epsilon=0.0, use_scale=False)
    close(rms.apply({}, 7 * X), rms.apply({}, X), 1e-4)
    batch = BatchNorm(epsilon=0.0, use_running_average=False)
    variables = batch.init(jax.random.key(0), X)
    shifted = X * jnp.arange(1.0, 6.0) + jnp.arange(5.0)
    y, z = (batch.apply(variables, x, mutable=True)[0] for x in (X, shifted))
    close(y, z, 1e-4)


def test_modules_are_the_functions():
    x = X + 100
    pairs = [
        (LayerNorm(), functional.layer_norm(x)),
        (RMSNorm(), functional.rms_norm(x)),
        (BatchNorm(use_running_average=False), functional.batch_norm(x)[0]),
    ]
    for layer, want in pairs:
        y, _ = layer.apply(layer.init(jax.random.key(0), x), x, mutable=True)
        # The last bit of x is 8e-6, and the two programs may round differently.
        close(y, want, 1e-5)


def test_large_means_do_not_lose_the_variance():
    x = X + 1e4
    for options in ({}, {"use_fast_variance": True}):
        y = LayerNorm(use_bias=False, use_scale=False, **options).apply({}, x)
        close(y, formula(x, -1), 5e-3)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("x_dtype", "options", "result"),
    [
        (jnp.bfloat16, {}, jnp.bfloat16),
        (jnp.float16, {"param_dtype": jnp.float16}, jnp.float16),
        (jnp.float32, {"dtype": jnp.bfloat16}, jnp.bfloat16),
        (jnp.bfloat16, {"dtype": jnp.float32}, jnp.float32),
        (jnp.int32, {"dtype": jnp.float32}, jnp.float32),
        (jnp.bfloat16, {"force_float32_reductions": False}, jnp.bfloat16),
    ],
)
def test_dtypes(module, x_dtype, options, result):
    if module is BatchNorm:
        options = {"use_running_average": False, **options}
    layer = module(**options)
    x = (4 * X).astype(x_dtype)
    y, variables = layer.init_with_output(jax.random.key(0), x)
    assert y.dtype == result
    param_dtype = options.get("param_dtype", jnp.float32)
    assert variables["params"]["scale"].dtype == param_dtype
    axes = (0, 1) if module is BatchNorm else -1
    want = formula(x, axes, subtract_mean=module is not RMSNorm)
    close(np.asarray(y, np.float64), want, 4e-2)
    if module is BatchNorm:
        assert variables["batch_stats"]["mean"].dtype == jnp.float32


def test_sums_of_low_precision_reductions_do_not_overflow():
    x = jnp.asarray(RNG.standard_normal((1, 3000)) + 100, jnp.float16)
    layer = LayerNorm(use_bias=False, use_scale=False, force_float32_reductions=False)
    close(np.asarray(layer.apply({}, x), np.float64), formula(x, -1), 0.1)


def test_complex_values():
    z = jax.random.normal(jax.random.key(0), (6, 4), jnp.complex64)
    layer = BatchNorm(use_running_average=False, momentum=0.0)
    variables = layer.init(jax.random.key(0), z)
    y, updates = layer.apply(variables, z, mutable="batch_stats")
    close(y.mean(0), 0)
    close(y.var(0), 1, 1e-3)
    close(updates["batch_stats"]["mean"], z.mean(0))


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_parts_on_several_devices_share_statistics(module):
    """Also with a mask that leaves more elements on one device than on another."""
    options = {"use_running_average": False} if module is BatchNorm else {}
    axis = 0 if module is BatchNorm else -1
    x = jnp.asarray(RNG.standard_normal((8, 8)), jnp.float32)
    mask = jnp.arange(8) < 5
    mask = mask[:, None] if module is BatchNorm else mask[None]
    mask = jnp.broadcast_to(mask, x.shape)

    def run(layer, x, mask):
        return layer.apply(variables, x, mask=mask, mutable=True)[0]

    variables = module(axis_name="d", **options).init(jax.random.key(0), x[:2, :2])
    variables = jax.tree.map(lambda a: jnp.resize(a, (8,)), variables)
    whole = run(module(**options), x, mask)
    if module is not BatchNorm:
        variables = jax.tree.map(lambda a: a[:2], variables)
    parts, mask_parts = (jnp.stack(jnp.split(a, 4, axis)) for a in (x, mask))
    layer = module(axis_name="d", **options)
    y = jax.pmap(lambda x, m: run(layer, x, m), axis_name="d")(parts, mask_parts)
    close(jnp.concatenate(y, axis), whole)

    # Two groups of two devices.
    groups = module(axis_name="d", axis_index_groups=[[0, 1], [2, 3]], **options)
    y = jax.pmap(lambda x: run(groups, x, None), axis_name="d")(parts)
    first, second = jnp.split(x, 2, axis)
    axes = 0 if module is BatchNorm else 1
    subtract_mean = module is not RMSNorm
    want = [
        formula(half, axes, subtract_mean=subtract_mean) for half in (first, second)
    ]
    close(jnp.concatenate(y, axis), np.concatenate(want, axis))


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("wrap", "box"),
    [
        (nn.with_partitioning, nn.Partitioned),
        (nn.with_logical_partitioning, nn.LogicallyPartitioned),
    ],
)
def test_partitioned_initialisers(module, wrap, box):
    options = {"scale_init": wrap(nn.initializers.ones, ("model",))}
    if module is not RMSNorm:
        options["bias_init"] = wrap(nn.initializers.zeros, ("model",))
    if module is BatchNorm:
        options["use_running_average"] = False
    layer = module(**options)
    variables = layer.init(jax.random.key(0), X)
    params = variables["params"]
    assert {type(p) for p in params.values()} == {box}
    assert {p.names for p in params.values()} == {("model",)}

    def total(params):
        y, _ = layer.apply({**variables, "params": params}, X, mutable=True)
        return jnp.sum(y**3)

    grads = jax.grad(total)(params)
    assert isinstance(grads["scale"], box)
    plain = jax.grad(total)(nn.unbox(params))
    np.testing.assert_array_equal(grads["scale"].unbox(), plain["scale"])


def test_initialisation_leaves_the_running_averages_and_needs_no_mapped_axis():
    for module in (LayerNorm, RMSNorm):
        module(axis_name="missing").init(jax.random.key(0), X)
    layer = BatchNorm(use_running_average=False, axis_name="missing")
    stats = layer.init(jax.random.key(0), X)["batch_stats"]
    assert (stats["mean"] == 0).all()
    assert (stats["var"] == 1).all()


@pytest.mark.parametrize("module", MODULES)
def test_no_implicit_rank_promotion(module):
    options = {"use_running_average": False} if module is BatchNorm else {}
    layer = module(**options)
    with jax.numpy_rank_promotion("raise"):
        variables = layer.init(jax.random.key(0), X)
        layer.apply(variables, X, mask=jnp.ones(5), mutable=True)
        if module is BatchNorm:
            BatchNorm(use_running_average=True).apply(variables, X)


def test_no_parameters_where_none_are_wanted():
    assert LayerNorm(use_bias=False, use_scale=False).init(jax.random.key(0), X) == {}
    assert RMSNorm(use_scale=False).init(jax.random.key(0), X) == {}
    assert set(LayerNorm(use_bias=False).init(jax.random.key(0), X)["params"]) == {
        "scale"
    }


@pytest.mark.parametrize(
    ("error", "message", "layer", "x", "mask"),
    [
        (TypeError, "LayerNorm.*int32", LayerNorm(), X.astype(int), None),
        (TypeError, "BatchNorm.*int32", BatchNorm(True), X.astype(int), None),
        (ValueError, "reduction_axes=3", LayerNorm(reduction_axes=3), X, None),
        (ValueError, "feature_axes=-4", RMSNorm(feature_axes=-4), X, None),
        (ValueError, "axis=5", BatchNorm(True, axis=5), X, None),
        (ValueError, "no elements", LayerNorm(), X[..., :0], None),
        (ValueError, "no elements", BatchNorm(False), X[:0], None),
        (ValueError, r"mask\[..., None\]", BatchNorm(False), X, jnp.ones((4, 3))),
        (ValueError, "mask has shape", LayerNorm(), X, jnp.ones((2, 4, 3, 5))),
    ],
)
def test_wrong_arguments_are_named(error, message, layer, x, mask):
    with pytest.raises(error, match=message):
        layer.init(jax.random.key(0), x, mask=mask)


def test_batch_norm_asks_which_statistics_to_use_and_unknown_names_are_refused():
    with pytest.raises(ValueError, match="use_running_average"):
        BatchNorm().init(jax.random.key(0), X)
    for module in MODULES:
        with pytest.raises(TypeError, match="eps"):
            module(eps=1e-3)
