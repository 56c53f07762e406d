"""A norm that a user writes, in every kind of cell and everywhere that cells run."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx as flax_nnx

from lnrepro import functional, linen, nnx
from lnrepro.functional import (
    GRUCell,
    LSTMCell,
    Norm,
    ScanOptions,
    SimpleCell,
    rms_norm,
    unroll,
)
from tests.functional.programs import AUTODIFF, H, T, X, problem, run, same, shapes_of
from tests.refused import refused

D = X.shape[-1]


@dataclasses.dataclass(frozen=True)
class RMSPerHead(Norm):
    """RMS norm of every head of `units` units by itself."""

    units: int = 2

    of_product: ClassVar[tuple[str, ...] | None] = ("gain",)
    of_state: ClassVar[tuple[str, ...] | None] = ("gain",)

    def apply(self, params, a, context):
        """Normalise a [..., N] in N / units heads."""
        heads = a.reshape(*a.shape[:-1], -1, self.units)
        y = rms_norm(heads, epsilon=self.epsilon).reshape(a.shape)
        return y * params["gain"].astype(a.dtype), None


HEADS = RMSPerHead(units=2)
CELLS = {
    "lstm": LSTMCell(H, HEADS, epsilon=1e-3),
    "gru": GRUCell(H, HEADS, epsilon=1e-3),
    "simple": SimpleCell(H, HEADS, epsilon=1e-3),
}
MODULES = {"lstm": "LSTM", "gru": "GRU", "simple": "SimpleRNN"}
each_cell = pytest.mark.parametrize("name", CELLS)


def per_head(a, gain):
    """The norm as one would write it."""
    parts = jnp.split(a, a.shape[-1] // 2, -1)
    parts = [p / jnp.sqrt(jnp.mean(p**2, -1, keepdims=True) + 1e-3) for p in parts]
    return jnp.concatenate(parts, -1) * gain


def step(name, params, carry, x):
    """The equations of one step."""
    h = carry[1] if name == "lstm" else carry
    of_x, of_h = x @ params["w_x"], h @ params["w_h"]
    if name == "simple":
        a = per_head(of_x + of_h, params["gain_joint"]) + params["bias"]
        return (jnp.tanh(a),) * 2
    if name == "gru":
        of_x = of_x + params["bias"]
    of_x = per_head(of_x, params["gain_x"])
    of_h = per_head(of_h, params["gain_h"])
    if name == "gru":
        gates = jax.nn.sigmoid((of_x + of_h)[..., : 2 * H])
        z, r = jnp.split(gates, 2, -1)
        n = jnp.tanh(of_x[..., 2 * H :] + r * of_h[..., 2 * H :])
        return ((1 - z) * h + z * n,) * 2
    f, i, o, g = jnp.split(of_x + of_h + params["bias"], 4, -1)
    c = jax.nn.sigmoid(f) * carry[0] + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(per_head(c, params["gain_c"]))
    return (c, h), h


def loop(name, params, carry, x):
    """The outputs of all steps."""

    def body(carry, x):
        return step(name, params, carry, x)

    return jnp.moveaxis(jax.lax.scan(body, carry, jnp.moveaxis(x, 1, 0))[1], 0, 1)


@each_cell
def test_values_and_gradients(name):
    params, carry = problem(CELLS[name])

    @functools.partial(jax.grad, argnums=(0, 1), has_aux=True)
    def ours(params, x, options):
        result = unroll(CELLS[name], params, x, initial_carry=carry, options=options)
        return jnp.sum(jnp.sin(result.outputs)), result.outputs

    @functools.partial(jax.grad, argnums=(0, 1), has_aux=True)
    def expected(params, x):
        outputs = loop(name, params, carry, x)
        return jnp.sum(jnp.sin(outputs)), outputs

    @jax.jit
    def of_all(params, x):
        options = [ScanOptions(platform=platform) for platform in ("cpu", "gpu")]
        return [ours(params, x, o) for o in options], expected(params, x)

    found, wanted = of_all(params, X)
    for of_platform in found:
        same(of_platform, wanted, 1e-4)


@each_cell
@pytest.mark.parametrize("package", ["linen", "nnx"])
def test_modules(name, package):
    if package == "linen":
        layer = getattr(linen, MODULES[name])(H, norm=HEADS)
        y, variables = jax.jit(layer.init_with_output)(jax.random.key(0), X)
        params = variables["params"]
    else:
        rngs = flax_nnx.Rngs(0)
        layer = getattr(nnx, MODULES[name])(D, H, norm=HEADS, rngs=rngs)
        y, params = flax_nnx.jit(lambda layer: layer(X))(layer), layer.parameters
    cell = dataclasses.replace(CELLS[name], epsilon=1e-5)
    same(y, run(cell, params, X).outputs)


def test_wrapped_and_stacked():
    cell = functional.stack(*CELLS.values(), skip="residual")
    params, carry = problem(cell)
    resets = np.arange(T) == np.array([[2], [4]])
    given = {"initial_carry": carry, "resets": resets}
    result = run(cell, params, X, **given)
    same(result.outputs, run(cell, params, X, options=AUTODIFF, **given).outputs)


@dataclasses.dataclass(frozen=True)
class OfStates(RMSPerHead):
    """A norm of the LSTM's cell alone."""

    of_product: ClassVar[tuple[str, ...] | None] = None


def test_a_norm_that_has_no_place_is_refused():
    assert "gain_c" in shapes_of(LSTMCell(H, OfStates()))[0]
    for make in (
        lambda: GRUCell(H, OfStates()),
        lambda: SimpleCell(H, OfStates()),
        lambda: LSTMCell(H, OfStates(), norm_site="joint"),
        lambda: GRUCell(H, HEADS, recurrent_bias=True),
    ):
        with refused("norm", error=ValueError):
            make()
