"""The nnx norm modules agree with linen's, and follow nnx's conventions."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lnrepro import functional
from lnrepro.linen import norms as linen
from lnrepro.nnx.norms import BatchNorm, LayerNorm, RMSNorm

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.standard_normal((4, 3, 5)) * 2 + 1, jnp.float32)
MODULES = [LayerNorm, RMSNorm, BatchNorm]
uniform = nnx.initializers.uniform(1.0)
cast_all = nnx.nn.dtypes.promote_dtype


def close(a, b, tolerance=1e-5):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def params_of(module):
    names = ("scale", "bias")
    values = {name: getattr(module, name, None) for name in names}
    return {name: value[...] for name, value in values.items() if value is not None}


@pytest.mark.parametrize("module", MODULES)
def test_all_of_flax_s_arguments_are_accepted(module):
    theirs = inspect.signature(getattr(nnx, module.__name__).__init__).parameters
    ours = inspect.signature(module.__init__).parameters
    assert set(theirs) <= set(ours)
    assert all(p.kind is not p.VAR_KEYWORD for p in ours.values())
    call = inspect.signature(getattr(nnx, module.__name__).__call__).parameters
    assert list(inspect.signature(module.__call__).parameters) == list(call)


@pytest.mark.parametrize("module", [LayerNorm, RMSNorm])
@pytest.mark.parametrize(
    ("num_features", "reduction_axes", "feature_axes"),
    [
        (5, -1, -1),
        (5, (1, 2), -1),
        ((3, 5), (1, 2), (1, 2)),
        (15, (1, 2), (1, 2)),
        (4, -1, 0),
        ((4, 3), 2, (0, 1)),
    ],
)
def test_any_combination_of_axes(module, num_features, reduction_axes, feature_axes):
    axes = {"reduction_axes": reduction_axes, "feature_axes": feature_axes}
    layer = module(num_features, scale_init=uniform, rngs=nnx.Rngs(0), **axes)
    features = sorted(a % 3 for a in np.atleast_1d(feature_axes))
    shape = tuple(X.shape[a] for a in features)
    params = {name: p.reshape(shape) for name, p in params_of(layer).items()}
    mask = jnp.arange(4)[:, None, None] >= jnp.arange(5)
    same = getattr(linen, module.__name__)(**axes)
    want = same.apply({"params": params}, X, mask=mask)
    np.testing.assert_array_equal(layer(X, mask=mask), want)


@pytest.mark.parametrize("unbiased", [False, True])
def test_batch_norm_in_training_and_at_test(unbiased):
    x = X * 3 + 1
    options = {"momentum": 0.5, "unbiased": unbiased}
    batch = BatchNorm(5, **options, rngs=nnx.Rngs(0))
    mask = jnp.arange(3) < jnp.array([3, 0, 1, 2])[:, None]
    padded = jnp.where(mask[..., None], x, jnp.nan)
    y = nnx.jit(lambda m, x: m(x, mask=mask[..., None]))(batch, padded)
    want, (mean, var) = functional.batch_norm(x, mask=mask, unbiased=unbiased)
    close(y[mask], want[mask])
    close(batch.mean[...], mean / 2)
    close(batch.var[...], 0.5 + var / 2)
    batch.eval()
    close(batch(x), (x - mean / 2) / jnp.sqrt(0.5 + var / 2 + 1e-5))


def test_batch_norm_over_another_axis():
    batch = BatchNorm((4, 5), axis=(0, 2), momentum=0.0, rngs=nnx.Rngs(0))
    y = batch(X)
    close(batch.mean[...], X.mean(1))
    close(batch.var[...], X.var(1))
    close(y.mean(1), 0)
    close(
        y, linen.BatchNorm(False, axis=(0, 2)).init_with_output(jax.random.key(0), X)[0]
    )


def test_running_averages_stay_where_nothing_counts():
    batch = BatchNorm(5, rngs=nnx.Rngs(0))
    assert jnp.isfinite(batch(X, mask=jnp.arange(5) < 2)).all()
    assert (batch.mean[2:] == 0).all()
    assert (batch.mean[:2] != 0).all()
    assert (batch.var[2:] == 1).all()


def test_running_averages_get_no_gradient():
    batch = BatchNorm(5, rngs=nnx.Rngs(0))
    grads = nnx.grad(lambda m: jnp.sum(m(X) ** 3))(batch)
    assert set(grads) == {"scale", "bias"}
    assert jnp.isfinite(grads["scale"][...]).all()
    # The step inside grad has updated the averages.
    assert (batch.mean[...] != 0).any()


def test_the_choice_of_statistics():
    batch = BatchNorm(5, rngs=nnx.Rngs(0))
    at_test = nnx.view(batch, use_running_average=True)
    assert (batch.use_running_average, at_test.use_running_average) == (False, True)
    close(at_test(X), X / jnp.sqrt(1 + 1e-5))
    batch.eval()
    close(batch(X), X / jnp.sqrt(1 + 1e-5))
    # The call's argument comes first.
    close(batch(X, use_running_average=False), functional.batch_norm(X)[0])
    batch.train()
    assert batch.use_running_average is False
    unset = BatchNorm(5, use_running_average=None, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="use_running_average is not set"):
        unset(X)
    assert "use_running_average: bool | None = None" in nnx.view_info(batch)


@pytest.mark.parametrize("module", MODULES)
def test_dtypes(module):
    low = X.astype(jnp.bfloat16)

    def make(**options):
        return module(5, rngs=nnx.Rngs(0), **options)

    assert make()(low).dtype == jnp.bfloat16
    assert make(dtype=jnp.float32)(low).dtype == jnp.float32
    assert make(dtype=jnp.bfloat16)(X).dtype == jnp.bfloat16
    assert make(param_dtype=jnp.bfloat16).scale.dtype == jnp.bfloat16
    # The statistics of float32 inputs are not of rounded ones.
    far = X + 1000
    y = make(dtype=jnp.bfloat16, epsilon=0.0)(far)
    close(y.astype(jnp.float32), make(epsilon=0.0)(far), 2e-2)
    # Flax's own promotion can be asked for.
    assert make(promote_dtype=cast_all)(low).dtype == jnp.float32
    theirs = getattr(nnx, module.__name__)(
        5, epsilon=1e-5, dtype=jnp.bfloat16, use_fast_variance=False, rngs=nnx.Rngs(0)
    )
    ours = make(dtype=jnp.bfloat16, promote_dtype=cast_all)
    close(ours(X).astype(jnp.float32), theirs(X).astype(jnp.float32), 2e-2)


@pytest.mark.parametrize("module", MODULES)
def test_metadata_and_partitioned_initialisers(module):
    sharded = nnx.with_partitioning(nnx.initializers.ones, ("model",))
    auto = jax.sharding.AxisType.Auto
    with jax.set_mesh(jax.make_mesh((1,), ("model",), axis_types=(auto,))):
        layer = module(5, scale_init=sharded, rngs=nnx.Rngs(0))
        same = module(5, scale_metadata={"out_sharding": ("model",)}, rngs=nnx.Rngs(0))
        y = layer(X)
    spec = jax.sharding.PartitionSpec("model")
    assert layer.scale[...].sharding.spec == spec
    assert same.scale[...].sharding.spec == spec
    close(y, module(5, rngs=nnx.Rngs(0))(X))
    layer = module(5, scale_metadata={"note": "gain"}, rngs=nnx.Rngs(0))
    assert layer.scale.get_metadata()["note"] == "gain"
    if module is not RMSNorm:
        layer = module(5, bias_metadata={"note": "shift"}, rngs=nnx.Rngs(0))
        assert layer.bias.get_metadata()["note"] == "shift"


def test_no_parameters_where_none_are_wanted():
    rngs = nnx.Rngs(0)
    layer = LayerNorm(5, use_bias=False, use_scale=False, rngs=rngs)
    assert not jax.tree.leaves(nnx.state(layer))
    assert layer.scale is None
    close(layer(X), functional.layer_norm(X))
    close(RMSNorm(5, use_scale=False, rngs=rngs)(X), functional.rms_norm(X))


def test_devices_share_statistics():
    x = jnp.asarray(RNG.standard_normal((8, 5)), jnp.float32)
    whole = BatchNorm(5, rngs=nnx.Rngs(0))(x)

    def run(x, groups=None):
        batch = BatchNorm(5, axis_name="d", axis_index_groups=groups, rngs=nnx.Rngs(0))
        return batch(x)

    parts = x.reshape(4, 2, 5)
    y = jax.pmap(run, axis_name="d")(parts)
    close(y.reshape(8, 5), whole)
    y = jax.pmap(lambda x: run(x, [[0, 1], [2, 3]]), axis_name="d")(parts)
    close(y[:2].reshape(4, 5), functional.batch_norm(x[:4])[0])


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("num_features", [1, 3, (5, 1), 10])
def test_num_features_must_fit(module, num_features):
    layer = module(num_features, rngs=nnx.Rngs(0))
    name = module.__name__
    with pytest.raises(ValueError, match=rf"{name}: num_features is .*\(4, 3, 5\)"):
        layer(X)


@pytest.mark.parametrize("module", MODULES)
def test_wrong_arguments(module):
    with pytest.raises(TypeError, match="unexpected keyword argument 'eps'"):
        module(5, eps=1e-3, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match="rngs"):
        module(5)
    layer = module(5, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match="int32"):
        layer(X.astype(int))
    with pytest.raises(ValueError, match="mask has shape"):
        layer(X, mask=jnp.ones((4, 3)))
    with jax.numpy_rank_promotion("raise"):
        layer(X, mask=jnp.ones(5))
