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


# Every cell with every form of a norm


def scaled(params, a):
    """A value that depends on the gain, if there is one."""
    return jnp.tanh(3 * a) * params.get("gain", 1.0)


@dataclasses.dataclass(frozen=True)
class Product(Norm):
    """A norm of products."""

    of_product = ("gain",)

    def apply(self, params, a, context):
        """Return some function of a [..., N]."""
        return scaled(params, a), None


class Everywhere(Product):
    """A norm of all sites, with a bias."""

    of_product = of_state = ("gain", "bias")


class State(Product):
    """A norm of the LSTM's cell."""

    of_product = None
    of_state = ("gain",)


class Apart(Product):
    """A norm of each product by itself."""

    splits_sums = True


class Length(Apart):
    """A norm with a length."""

    of_product = ("length",)

    def apply(self, params, a, context):
        """Multiply by the length."""
        return 2 * a * params["length"], None


class LengthOfSums(Length):
    """A norm with a length of sums, which have none."""

    splits_sums = False


class Weights(Norm):
    """A norm that prepares weights and does nothing else."""

    of_product = ()

    def prepare(self, params, weight):
        """Return another weight."""
        return 3 * weight


class Statistics(Product):
    """A norm with statistics of the batch."""

    has_statistics = True

    def apply(self, params, a, context):
        """Return the mean as the statistics."""
        mean = a.mean(0)
        return scaled(params, a - mean), (mean, mean)


class OtherNames(Product):
    """A norm with a parameter that no cell draws."""

    of_product = ("scale",)


class Nowhere(Product):
    """A norm that says of no site that it stands there."""

    of_product = None


class Empty(Norm):
    """A norm that defines nothing."""

    of_product = of_state = ("gain",)


class Undeclared(Statistics):
    """A norm that returns statistics and does not say so."""

    has_statistics = False


ALL_CELLS = {
    "lstm": LSTMCell,
    "lstm_joint": functools.partial(LSTMCell, norm_site="joint"),
    "gru": GRUCell,
    "gru_before": functools.partial(GRUCell, reset="before"),
    "simple": SimpleCell,
    "dreamer": functional.DreamerGRUCell,
    "blocks": functools.partial(
        functional.DreamerBlockGRUCell, hidden_features=3, input_sizes=(D,), blocks=2
    ),
}
SUMS = ("lstm_joint", "simple", "dreamer", "blocks")
APPLY = {
    Product: tuple(ALL_CELLS),
    Everywhere: tuple(ALL_CELLS),
    State: ("lstm",),
    Apart: ("lstm", "lstm_joint", "gru", "gru_before", "simple"),
    Length: ("lstm", "gru", "simple", "gru_before"),
    LengthOfSums: ("lstm", "gru", "gru_before"),
    Weights: ("lstm", "lstm_joint", "gru", "gru_before", "simple", "dreamer"),
    Statistics: tuple(ALL_CELLS),
    OtherNames: (),
    Nowhere: (),
    Empty: (),
    Undeclared: (),
}


@pytest.mark.parametrize("name", ALL_CELLS)
@pytest.mark.parametrize("kind", APPLY, ids=lambda kind: kind.__name__)
def test_a_cell_applies_a_norm_or_refuses_it_by_name(name, kind):
    make = ALL_CELLS[name]

    def act(norm):
        cell = make(H, norm=norm)
        params = cell.init(jax.random.key(0), D)
        params = {n: a + (0.1 if "bias" in n else 0) for n, a in params.items()}
        carry = jax.tree.map(lambda a: a + 0.5, cell.initial_carry(params, X[:, 0]))
        return cell, params, functional.step(cell, params, carry, X[:, 0])[1]

    if name not in APPLY[kind]:
        with refused(kind.__name__, error=ValueError):
            act(kind())
        return
    cell, params, found = act(kind())
    _, plain, without = act("none")
    assert params.keys() >= plain.keys()
    assert jnp.abs(found - without).max() > 1e-3
    assert bool(cell.sites) == kind.has_statistics
    if kind is Statistics:
        statistics = unroll(cell, params, X).statistics.values
        assert statistics.keys() == cell.sites.keys()


@pytest.mark.parametrize("name", ALL_CELLS)
def test_the_epsilon_of_a_norm_comes_before_that_of_the_cell(name):
    make = functools.partial(ALL_CELLS[name], H, epsilon=0.25)

    def found(norm):
        norms = make(norm=norm).site_norms.values()
        return {norm.epsilon for norm in norms if not norm.is_plain}

    assert found(Product()) == {0.25}
    assert found(Product(epsilon=0.5)) == {0.5}
    assert found(Product(epsilon=1e-5)) == {1e-5}
