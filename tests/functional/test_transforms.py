"""The unrolled cells under every JAX transformation that users put around them, on four fake devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.functional import gru, init, lstm, unroll

B, T, D, H = 8, 6, 3, 4


def problem(make, norm="layer"):
    cell = make(H, norm=norm)
    params = init(cell, jax.random.key(0), D)
    x = jax.random.normal(jax.random.key(1), (B, T, D))
    lengths = jnp.array([6, 0, 3, 5, 1, 6, 2, 4])

    def loss(params, x, lengths):
        (carry, y) = unroll(cell, params, x, lengths=lengths)
        return jnp.sum(jnp.sin(y)) + sum(jnp.sum(jnp.square(a)) for a in jax.tree.leaves(carry))

    return loss, params, x, lengths


def close(a, b, tolerance=2e-5):
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance), a, b)


@pytest.fixture(scope="module")
def expected():
    return {make.__name__: jax.jit(jax.grad(problem(make)[0], (0, 1)))(*problem(make)[1:]) for make in (lstm, gru)}


@pytest.mark.parametrize("make", [lstm, gru])
def test_grad_without_jit_and_under_remat(make, expected):
    loss, *args = problem(make)
    close(jax.jit(jax.grad(jax.checkpoint(loss), (0, 1)))(*args), expected[make.__name__])


def test_vmap_over_sequences_and_over_parameters(expected):
    loss, params, x, lengths = problem(lstm)
    each = jax.jit(jax.vmap(jax.grad(loss, (0, 1)), (None, 0, 0)))(params, x, lengths)
    close((jax.tree.map(lambda g: g.sum(0), each[0]), each[1]), expected["lstm"])
    two = jax.tree.map(lambda p: jnp.stack([p, p]), params)
    both = jax.jit(jax.vmap(jax.grad(loss), (0, None, None)))(two, x, lengths)
    close(jax.tree.map(lambda g: g[1], both), expected["lstm"][0])


def test_pmap(expected):
    loss, params, x, lengths = problem(lstm)

    def local(params, x, lengths):
        return jax.lax.psum(jax.grad(loss)(params, x, lengths), "devices")

    split = [a.reshape(4, B // 4, *a.shape[1:]) for a in (x, lengths)]
    grads = jax.pmap(local, axis_name="devices", in_axes=(None, 0, 0))(params, *split)
    close(jax.tree.map(lambda g: g[0], grads), expected["lstm"][0])


@pytest.mark.parametrize("make", [lstm, gru])
def test_shard_map(make, expected):
    loss, params, x, lengths = problem(make)
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P())
    def total(params, x, lengths):
        return jax.lax.psum(loss(params, x, lengths), "data")

    close(jax.jit(jax.grad(total, (0, 1)))(params, x, lengths), expected[make.__name__])


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_mesh(kind, expected):
    loss, params, x, lengths = problem(lstm)
    mesh = jax.make_mesh((4,), ("data",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        params = jax.device_put(params, NamedSharding(mesh, P()))
        x, lengths = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (x, lengths))
        grads = jax.jit(jax.grad(loss, (0, 1)))(params, x, lengths)
        assert grads[1].sharding.is_equivalent_to(NamedSharding(mesh, P("data")), 3)
    close(grads, expected["lstm"])


def test_export_with_symbolic_batch_and_time():
    cell = lstm(H, norm="layer")
    params = init(cell, jax.random.key(0), D)

    def run(params, x, lengths):
        def loss(params):
            y = unroll(cell, params, x, lengths=lengths)[1]
            return jnp.sum(jnp.sin(y)), y

        return jax.grad(loss, has_aux=True)(params)

    b, t = export.symbolic_shape("b, t")
    shapes = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), params)
    x = jax.ShapeDtypeStruct((b, t, D), jnp.float32)
    written = export.export(jax.jit(run))(shapes, x, jax.ShapeDtypeStruct((b,), jnp.int32)).serialize()
    exported = export.deserialize(written)
    for batch, steps in ((2, 5), (3, 9)):
        x = jax.random.normal(jax.random.key(2), (batch, steps, D))
        lengths = jnp.arange(batch, dtype=jnp.int32) + 2
        jax.tree.map(close, exported.call(params, x, lengths), run(params, x, lengths))
