"""Parameters, dtypes and sharding of the recurrent nnx modules."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.sharding import AxisType, PartitionSpec

from lnrepro import functional
from lnrepro.nnx import GRU, RNN
from tests.nnx.common import (
    B,
    D,
    H,
    T,
    X,
    differ,
    each_cell,
    each_kind,
    each_sequence,
    params_of,
    partitioned,
    same,
    zoneout,
)


@each_kind
def test_parameters_have_their_functional_names(sequence, cell, functional_cell):
    params = params_of(cell(D, H, rngs=nnx.Rngs(0)))
    plain = functional_cell(H, "layer")
    shapes = jax.eval_shape(lambda: plain.init(jax.random.key(0), D))
    assert {n: p.shape for n, p in params.items()} == {
        n: s.shape for n, s in shapes.items()
    }


@each_cell
def test_initialisers_draw_their_parameters(cell):
    module = cell(
        D,
        H,
        kernel_init=nnx.initializers.constant(1.0),
        recurrent_kernel_init=nnx.initializers.constant(2.0),
        bias_init=nnx.initializers.constant(3.0),
        scale_init=nnx.initializers.constant(4.0),
        rngs=nnx.Rngs(0),
    )
    expected = {"w_x": 1, "w_h": 2, "bias": 3, "gain": 4}
    for name, parameter in params_of(module).items():
        kind = "gain" if name.startswith("gain_") else name
        if kind in expected:
            assert (parameter == expected[kind]).all()


@pytest.mark.slow
@each_sequence
def test_dtypes(sequence):
    mixed = sequence(D, H, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    carry, y = mixed(X, return_carry=True)
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves((carry, y)))
    assert all(p.dtype == jnp.float32 for p in params_of(mixed).values())
    assert mixed(jnp.ones((B, T, D), int)).dtype == jnp.bfloat16
    narrow = sequence(D, H, param_dtype=jnp.float16, rngs=nnx.Rngs(0))
    assert narrow(X.astype(jnp.float16)).dtype == jnp.float16
    carry = narrow.initialize_carry((B, D))
    assert all(leaf.dtype == jnp.float16 for leaf in jax.tree.leaves(carry))


SHARDED = {
    "initialisers": {
        "kernel_init": partitioned(nnx.initializers.lecun_normal(), None, "model"),
        "recurrent_kernel_init": partitioned(
            nnx.initializers.orthogonal(), None, "model"
        ),
        "bias_init": partitioned(nnx.initializers.zeros, "model"),
        "scale_init": partitioned(nnx.initializers.ones, "model"),
    },
    "metadata": {
        "kernel_metadata": {"out_sharding": (None, "model")},
        "recurrent_kernel_metadata": {"out_sharding": (None, "model")},
        "bias_metadata": {"out_sharding": ("model",)},
        "scale_metadata": {"out_sharding": ("model",)},
    },
}


@pytest.mark.parametrize("options", SHARDED.values(), ids=list(SHARDED))
def test_partitioned_parameters_without_a_mesh(options):
    with nnx.use_eager_sharding(False):
        module = GRU(D, H, **options, rngs=nnx.Rngs(0))
    for name in ("w_x", "w_h", "bias", "gain_x", "gain_h"):
        axes = (None, "model") if name.startswith("w_") else ("model",)
        assert getattr(module, name).get_metadata("out_sharding") == axes
    # The kernels of all gates are drawn as without metadata, gate by gate.
    plain = {name: Unpartitioned(f) for name, f in options.items() if "init" in name}
    same(params_of(module), params_of(GRU(D, H, **plain, rngs=nnx.Rngs(0))), 0)


@dataclasses.dataclass(frozen=True)
class Unpartitioned:
    """An initialiser without its metadata."""

    initializer: nnx.initializers.Initializer

    def __call__(self, key, shape, dtype):
        return self.initializer(key, shape, dtype).raw_value


@pytest.mark.slow
@each_sequence
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto])
@pytest.mark.parametrize("options", SHARDED.values(), ids=list(SHARDED))
def test_model_sharded_parameters(sequence, axis_type, options):

    @nnx.jit
    def run(module, x):
        def loss(module):
            return jnp.mean(jnp.square(module(x)))

        value, gradient = nnx.value_and_grad(loss)(module)
        return value, nnx.to_pure_dict(gradient)

    with nnx.use_eager_sharding(False):
        one_device = sequence(D, H, **options, rngs=nnx.Rngs(0))
    value, gradient = run(one_device, X)
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(axis_type,) * 2)
    with jax.set_mesh(mesh):
        module = sequence(D, H, **options, rngs=nnx.Rngs(0))
        for name in ("w_x", "w_h"):
            kernel = getattr(module, name)[...]
            assert kernel.sharding.spec == PartitionSpec(None, "model")
        sharded = jax.NamedSharding(mesh, PartitionSpec("data"))
        same(params_of(module), params_of(one_device))
        same(run(module, jax.device_put(X, sharded)), (value, gradient))


@pytest.mark.slow
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto])
def test_noisy_module_that_is_made_under_jit_on_a_mesh(axis_type):
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(axis_type,) * 2)

    @nnx.jit
    def make(rngs):
        # The initialisers of a functional cell may be partitioned as well.
        cell = functional.GRUCell(H, "layer", **SHARDED["initialisers"])
        return RNN(zoneout(cell), in_features=D, rngs=rngs).cell

    with jax.set_mesh(mesh):
        module = make(nnx.Rngs(0))
        assert module.w_x[...].sharding.spec == PartitionSpec(None, "model")
        x = jax.device_put(X, jax.NamedSharding(mesh, PartitionSpec("data")))
        run = nnx.jit(nnx.grad(lambda module, x: jnp.sum(RNN(module)(x))))
        assert differ(run(module, x)["w_x"][...], run(module, x)["w_x"][...])
