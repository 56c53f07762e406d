"""The unrolled cells under the JAX transformations that users put around them.

Four fake CPU devices stand in for a mesh.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.functional import (
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)

B, T, D, H = 8, 6, 4, 4
X = np.random.default_rng(0).standard_normal((B, T, D))
LENGTHS = np.array([6, 0, 3, 5, 1, 6, 2, 4])
CELLS = [LSTMCell(H, "layer"), GRUCell(H, "layer")]


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def cell_id(cell):
    return f"{type(cell).__name__}-{cell.norm}"


def loss_and_outputs_of(cell, key=None):
    def loss(params, x, lengths):
        result = unroll(cell, params, x, seq_lengths=lengths, key=key)
        carry = jax.tree.leaves(result.carry)
        of_carry = sum(jnp.sum(jnp.square(leaf)) for leaf in carry)
        return jnp.sum(jnp.sin(result.outputs)) + of_carry, result.outputs

    return loss


def loss_of(cell, key=None):
    both = loss_and_outputs_of(cell, key)
    return lambda params, x, lengths: both(params, x, lengths)[0]


def init(cell):
    return cell.init(jax.random.key(0), D, jnp.float64)


@functools.cache
def expected_with_outputs(cell):
    """Gradients with respect to params and x, and outputs, on one device."""
    gradient = jax.grad(loss_and_outputs_of(cell), (0, 1), has_aux=True)
    return jax.jit(gradient)(init(cell), X, LENGTHS)


def expected(cell):
    """Gradients with respect to params and x, on one device."""
    return expected_with_outputs(cell)[0]


def close(a, b, tolerance=1e-10):
    a, b = jax.device_get((a, b))
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance),
        a,
        b,
    )


V = np.random.default_rng(1).standard_normal((3, D))


def vector_jacobian_twice(f, x):
    return jax.vjp(lambda x: jax.vjp(f, x)[1](1.0)[0], x)[1](V)[0]


# What the lean backward pass can do: reverse mode, reverse mode over it, and forward
# mode over it.
DERIVATIVES = {
    "jacrev": lambda f, x: jax.jacrev(f)(x),
    "vjp of vjp": vector_jacobian_twice,
    "hvp, jvp of grad": lambda f, x: jax.jvp(jax.grad(f), (x,), (V,))[1],
    "linearize of grad": lambda f, x: jax.linearize(jax.grad(f), x)[1](V),
    "hessian": lambda f, x: jax.hessian(f)(x),
}
# Reverse mode and forward mode over reverse mode; the others run with the slow tests.
QUICK = ("jacrev", "hessian")
# What needs ScanOptions(backward="autodiff").
FORWARD_MODE = {
    "jvp": lambda f, x: jax.jvp(f, (x,), (V,))[1],
    "jacfwd": lambda f, x: jax.jacfwd(f)(x),
    "linearize": lambda f, x: jax.linearize(f, x)[1](V),
}


def scalar_of(backward):
    cell = SimpleCell(2, "layer")
    params = cell.init(jax.random.key(0), D, jnp.float64)
    options = ScanOptions(backward=backward)

    def scalar(x):
        # Layer norm over two units makes odd functions of them cancel.
        return jnp.sum(jnp.exp(unroll(cell, params, x, options=options).outputs))

    return scalar


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in DERIVATIVES
    ],
)
def test_a_derivative_and_its_vmap_equal_those_of_autodiff(name):
    derivative = DERIVATIVES[name]

    def of_both_sequences(backward):
        return jax.vmap(lambda x: derivative(scalar_of(backward), x))(X[:2, :3])

    lean, plain = jax.jit(
        lambda: [of_both_sequences(b) for b in ("lean", "autodiff")]
    )()
    assert np.abs(plain).max() > 1e-3
    close(lean, plain)
    one = jax.jit(lambda: derivative(scalar_of("lean"), X[1, :3]))()
    close(one, lean[1])


@pytest.mark.parametrize("name", FORWARD_MODE)
def test_forward_mode_needs_autodiff(name):
    derivative, x = FORWARD_MODE[name], X[0, :3]
    gradient = jax.jit(jax.grad(scalar_of("lean")))(x)
    expected = gradient if name == "jacfwd" else jnp.vdot(gradient, V)
    close(jax.jit(lambda: derivative(scalar_of("autodiff"), x))(), expected)
    # The function that `linearize` returns has left our code, and has JAX's own text.
    message = "forward-mode" if name == "linearize" else r"backward='autodiff'"
    for transform in (derivative, lambda f, x: jax.vmap(lambda x: derivative(f, x))(x)):
        inputs = x if transform is derivative else X[:2, :3]
        with pytest.raises(TypeError, match=message):
            transform(scalar_of("lean"), inputs)


@pytest.mark.parametrize("cell", CELLS, ids=cell_id)
def test_checkpoint(cell):
    gradient = jax.jit(jax.grad(jax.checkpoint(loss_of(cell)), (0, 1)))
    close(gradient(init(cell), X, LENGTHS), expected(cell))


@pytest.mark.slow
def test_gradient_without_jit():
    cell = CELLS[0]
    close(jax.grad(loss_of(cell), (0, 1))(init(cell), X, LENGTHS), expected(cell))


@pytest.mark.slow
def test_vmap_over_sequences_and_over_parameters():
    cell = CELLS[0]
    loss, params = loss_of(cell), init(cell)
    of_each = jax.vmap(jax.grad(loss, (0, 1)), (None, 0, 0))
    d_params, d_x = jax.jit(of_each)(params, X, LENGTHS)
    close((jax.tree.map(lambda g: g.sum(0), d_params), d_x), expected(cell))

    two = jax.tree.map(lambda p: jnp.stack([p, p]), params)
    both = jax.jit(jax.vmap(jax.grad(loss), (0, None, None)))(two, X, LENGTHS)
    close(jax.tree.map(lambda g: g[1], both), expected(cell)[0])


def test_pmap():
    cell = CELLS[0]
    loss = loss_of(cell)

    def local(params, x, lengths):
        return jax.lax.psum(jax.grad(loss)(params, x, lengths), "devices")

    x, lengths = (a.reshape(4, B // 4, *a.shape[1:]) for a in (X, LENGTHS))
    over_devices = jax.pmap(local, axis_name="devices", in_axes=(None, 0, 0))
    gradients = over_devices(init(cell), x, lengths)
    close(jax.tree.map(lambda g: g[0], gradients), expected(cell)[0])


@pytest.mark.parametrize("cell", CELLS, ids=cell_id)
def test_shard_map(cell):
    loss = loss_of(cell)
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), P("data"), P("data")),
        out_specs=P(),
    )
    def total(params, x, lengths):
        return jax.lax.psum(loss(params, x, lengths), "data")

    gradients = jax.jit(jax.grad(total, (0, 1)))(init(cell), X, LENGTHS)
    close(gradients, expected(cell))


def put(mesh, params, specs=None):
    """Inputs sharded over "data", and parameters as `specs` says, else replicated."""
    specs = {} if specs is None else specs
    x, lengths = jax.device_put((X, LENGTHS), NamedSharding(mesh, P("data")))

    def put_param(path, value):
        spec = specs.get(path[-1].key, P())
        return jax.device_put(value, NamedSharding(mesh, spec))

    return jax.tree_util.tree_map_with_path(put_param, params), x, lengths


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_mesh(kind):
    cell = CELLS[0]
    mesh = jax.make_mesh((4,), ("data",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        arguments = put(mesh, init(cell))
        gradients = jax.jit(jax.grad(loss_of(cell), (0, 1)))(*arguments)
        wanted = NamedSharding(mesh, P("data"))
        assert gradients[1].sharding.is_equivalent_to(wanted, 3)
    close(gradients, expected(cell))


KERNELS = {"w_x": P(None, "model"), "w_h": P(None, "model")}
MODEL_CELLS = [
    make(H, norm)
    for make in (LSTMCell, GRUCell, SimpleCell)
    for norm in ("none", "layer", "batch", "weight", "rms")
]
MODEL_CELLS += [
    GRUCell(H, "layer", reset="before"),
    LSTMCell(H, "layer", peephole=True, inner_bias=True, learned_carry=True),
]


def check_model_axis(kind, cell, specs):
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(kind,) * 2)
    with jax.set_mesh(mesh):
        arguments = put(mesh, init(cell), specs)
        loss = loss_and_outputs_of(cell)
        gradients, outputs = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(*arguments)
    close((gradients, outputs), expected_with_outputs(cell))
    return gradients


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        cell if number < 2 else pytest.param(cell, marks=pytest.mark.slow)
        for number, cell in enumerate([*CELLS, *MODEL_CELLS])
    ],
    ids=cell_id,
)
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_kernels_sharded_over_a_model_axis(kind, cell):
    gradients = check_model_axis(kind, cell, KERNELS)
    if kind == AxisType.Explicit:
        # A gradient is sharded as its parameter is.
        for name, spec in KERNELS.items():
            assert gradients[0][name].sharding.spec == spec


def test_all_parameters_of_the_units_sharded_over_a_model_axis():
    specs = {
        **KERNELS,
        **{n: P("model") for n in ("bias", "gain_x", "bias_x", "gain_h", "bias_h")},
        **{n: P("model") for n in ("gain_c", "bias_c")},
    }
    check_model_axis(AxisType.Explicit, CELLS[0], specs)


def test_kernels_sharded_over_their_inputs():
    specs = {"w_x": P("model", None), "w_h": P("model", None)}
    check_model_axis(AxisType.Explicit, CELLS[0], specs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        zoneout(LSTMCell(H, "layer"), 0.3, 0.3),
        zoneout(
            stack(LSTMCell(H, "none"), GRUCell(H, "none"), skip="residual"), 0.3, 0.3
        ),
        pytest.param(
            variational_dropout(GRUCell(H, "none"), 0.3, 0.3), marks=pytest.mark.slow
        ),
        pytest.param(
            LSTMCell(H, "none", recurrent_dropout=0.3), marks=pytest.mark.slow
        ),
    ],
    ids=["zoneout", "zoneout-stack", "variational", "recurrent"],
)
def test_noise_under_an_explicit_mesh(cell):
    key = jax.random.key(3)
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Explicit,))
    gradient = jax.grad(loss_of(cell, key), (0, 1))
    params = init(cell)
    with jax.set_mesh(mesh):
        sharded = jax.jit(gradient)(*put(mesh, params))
    close(sharded, jax.jit(gradient)(params, X, LENGTHS))


def test_step_under_an_explicit_mesh():
    cell = CELLS[0]
    params = init(cell)
    carry = cell.initial_carry(params, X[:, 0])
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        sharded_params, x, lengths = put(mesh, params, KERNELS)

        @jax.jit
        def first_step(params, x, mask, reset):
            x = x[:, 0]
            carry = cell.initial_carry(params, x)
            return step(cell, params, carry, x, mask=mask, reset=reset)

        sharded = first_step(sharded_params, x, lengths > 2, lengths > 4)
    plain = step(cell, params, carry, X[:, 0], mask=LENGTHS > 2, reset=LENGTHS > 4)
    close(sharded, plain)


@pytest.mark.slow
def test_export_with_symbolic_batch_and_time():
    cell = CELLS[0]
    params = init(cell)

    def run(params, x, lengths):
        def loss(params):
            outputs = unroll(cell, params, x, seq_lengths=lengths).outputs
            return jnp.sum(jnp.sin(outputs)), outputs

        return jax.grad(loss, has_aux=True)(params)

    b, t = export.symbolic_shape("b, t")
    shapes = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), params)
    x = jax.ShapeDtypeStruct((b, t, D), jnp.float64)
    lengths = jax.ShapeDtypeStruct((b,), jnp.int32)
    written = export.export(jax.jit(run))(shapes, x, lengths).serialize()
    exported = export.deserialize(written)
    for batch, steps in ((2, 5), (3, 9)):
        x = jax.random.normal(jax.random.key(2), (batch, steps, D))
        lengths = jnp.arange(batch, dtype=jnp.int32) + 2
        close(exported.call(params, x, lengths), jax.jit(run)(params, x, lengths))
