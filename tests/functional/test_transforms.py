"""The unrolled cells under the JAX transformations that users put around them.

Four fake CPU devices stand in for a mesh.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.functional import (
    DreamerBlockGRUCell,
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
from tests.functional.programs import drawn, same, shapes_of, total

B, T, D, H = 8, 6, 4, 4
X = np.random.default_rng(0).standard_normal((B, T, D))
LENGTHS = np.array([6, 0, 3, 5, 1, 6, 2, 4])
LSTM = LSTMCell(H, "layer")
pytestmark = pytest.mark.usefixtures("x64")


def loss_of(cell):
    def loss(params, x, lengths):
        how = {"key": jax.random.key(3) if cell.is_noisy else None}
        if not cell.learns_carry:
            # It does not lie as a batch does that is sharded.
            row = drawn(shapes_of(cell, D, rows=1)[1])
            how["initial_carry"] = jax.tree.map(lambda a: np.repeat(a, len(x), 0), row)
        return total(unroll(cell, params, x, seq_lengths=lengths, **how)[:2])

    return loss


def init(cell):
    return drawn(shapes_of(cell, D, jnp.float64)[0])


@functools.cache
def expected(cell):
    """The loss and its gradients with respect to params and x, on one device."""
    gradient = jax.value_and_grad(loss_of(cell), (0, 1))
    return jax.jit(gradient)(init(cell), X, LENGTHS)


def close(a, b):
    same(*jax.device_get((a, b)), 1e-10)


# What the lean backward pass can do: both modes over reverse mode. Forward mode needs
# ScanOptions(backward="autodiff"): test_capabilities.py.
V = np.random.default_rng(1).standard_normal((3, D))
DERIVATIVES = {
    "gpu": jax.hessian,
    "cpu": lambda f: lambda x: jax.vjp(jax.grad(f), x)[1](V)[0],
}


@pytest.mark.parametrize("platform", DERIVATIVES)
def test_a_derivative_and_its_vmap_equal_those_of_autodiff(platform):
    cell = SimpleCell(2, "layer")
    params = init(cell)

    def derivative(backward):
        def scalar(x):
            options = ScanOptions(backward=backward, platform=platform)
            # Layer norm over two units makes odd functions of them cancel.
            return jnp.sum(jnp.exp(unroll(cell, params, x, options=options).outputs))

        return DERIVATIVES[platform](scalar)

    @jax.jit
    def of_all(x):
        both = [jax.vmap(derivative(backward))(x) for backward in ("lean", "autodiff")]
        return derivative("lean")(x[1]), *both

    one, lean, plain = of_all(X[:2, :3])
    assert np.abs(plain).max() > 1e-3
    close(lean, plain)
    close(one, np.asarray(lean)[1])


@pytest.mark.slow
def test_checkpoint_and_no_jit():
    cell = SimpleCell(H, "none")
    checkpointed = jax.jit(jax.grad(jax.checkpoint(loss_of(cell)), (0, 1)))
    for gradient in checkpointed, jax.grad(loss_of(cell), (0, 1)):
        close(gradient(init(cell), X, LENGTHS), expected(cell)[1])


# Devices


def test_pmap():
    def local(params, x, lengths):
        return jax.lax.psum(jax.grad(loss_of(LSTM))(params, x, lengths), "devices")

    x, lengths = (a.reshape(4, B // 4, *a.shape[1:]) for a in (X, LENGTHS))
    over_devices = jax.pmap(local, axis_name="devices", in_axes=(None, 0, 0))
    gradients = over_devices(init(LSTM), x, lengths)
    gradients = jax.device_get(gradients)
    close(jax.tree.map(lambda g: g[0], gradients), expected(LSTM)[1][0])


KERNELS = {"w_x": P(None, "model"), "w_h": P(None, "model")}
INPUTS = {"w_x": P("model", None), "w_h": P("model", None)}
VECTORS = ("bias", "gain_x", "bias_x", "gain_h", "bias_h", "gain_c", "bias_c")
UNITS = {**KERNELS, **dict.fromkeys(VECTORS, P("model"))}
STACK = stack(LSTMCell(H, "none"), GRUCell(H, "none"), skip="residual")


def put(mesh, params, specs):
    """x and lengths sharded over "data", and what `specs` names as it says."""
    lengths = jax.device_put(LENGTHS, NamedSharding(mesh, P("data")))

    def put_one(path, value):
        spec = specs.get(path[-1].key, P())
        return jax.device_put(value, NamedSharding(mesh, spec))

    specs = {"x": P("data"), **specs}
    arrays = jax.tree_util.tree_map_with_path(put_one, {"params": params, "x": X})
    return arrays["params"], arrays["x"], lengths


# A mesh may split the features of x, too, and the blocks of a weight.
BLOCKS = DreamerBlockGRUCell(H, hidden_features=2, input_sizes=(D,), blocks=2)
SPLIT = dict.fromkeys(("w_hidden", "w_gates"), P("model"))
SPLIT["x"] = P("data", None, "model")
SLOW = [
    (AxisType.Auto, LSTM, UNITS),
    (
        AxisType.Explicit,
        LSTMCell(H, "batch", peephole=True, learned_carry=True),
        KERNELS,
    ),
    (
        AxisType.Explicit,
        zoneout(variational_dropout(STACK, 0.3, 0.3), 0.3, 0.3),
        KERNELS,
    ),
]


@pytest.mark.parametrize(
    ("kind", "cell", "specs"),
    [
        (AxisType.Explicit, LSTM, UNITS),
        (AxisType.Explicit, LSTM, INPUTS),
        (AxisType.Explicit, BLOCKS, SPLIT),
        *[pytest.param(*case, marks=pytest.mark.slow) for case in SLOW],
    ],
)
def test_a_mesh_of_data_and_model(kind, cell, specs):
    """The noise as well is that of one device, and a gradient is as its parameter."""
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(kind,) * 2)
    gradient = jax.jit(jax.value_and_grad(loss_of(cell), (0, 1)))
    with jax.set_mesh(mesh):
        arguments = put(mesh, init(cell), specs)
        found = gradient(*arguments)
    close(found, expected(cell))
    if kind == AxisType.Explicit:
        for value, gradient in zip(
            jax.tree.leaves(arguments[:2]), jax.tree.leaves(found[1]), strict=True
        ):
            assert gradient.sharding.is_equivalent_to(value.sharding, value.ndim)


def test_step_under_an_explicit_mesh():
    params = init(LSTM)

    carry = jax.device_get(LSTM.initial_carry(params, X[:, 0]))

    @jax.jit
    def first_step(params, x, lengths):
        x, flags = x[:, 0], {"mask": lengths > 2, "reset": lengths > 4}
        # The carry does not lie as the batch does.
        return step(LSTM, params, carry, x, **flags)

    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        sharded_params, x, lengths = put(mesh, params, KERNELS)

        sharded = first_step(sharded_params, x, lengths)
    close(sharded, first_step(params, X, LENGTHS))
