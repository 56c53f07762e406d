"""A norm that a user writes, in every kind of cell and everywhere that cells run."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional, linen
from lnrepro.functional import GRUCell, LSTMCell, Norm, SimpleCell, rms_norm
from tests.functional.programs import (
    H,
    X,
    gradients_and_result,
    problem,
    run,
    same,
)
from tests.refused import refused

D = X.shape[-1]


@dataclasses.dataclass(frozen=True)
class Groupwise(Norm):
    """The RMS norm as a user writes it: group after group."""

    of_product = of_state = ("gain",)

    def apply(self, params, a, context):
        """Normalise a [..., N]."""
        ends = np.cumsum(self.groups) * self.size // sum(self.groups)
        groups = jnp.split(a, ends.tolist()[:-1], -1)
        y = [rms_norm(group, epsilon=self.epsilon) for group in groups]
        return jnp.concatenate(y, -1) * params["gain"].astype(a.dtype), None


CELLS = {"LSTM": LSTMCell, "GRU": GRUCell, "SimpleRNN": SimpleCell}


@pytest.mark.parametrize("name", CELLS)
def test_values_and_gradients_are_those_of_the_same_norm_of_the_library(name):
    cell, known = (CELLS[name](H, norm, epsilon=1e-3) for norm in (Groupwise(), "rms"))
    params, carry = problem(cell)
    found = gradients_and_result(cell, params, X, carry)
    same(found, gradients_and_result(known, params, X, carry), 1e-4)


def test_a_module_with_it_is_that_of_the_same_norm():
    layer = linen.GRU(H, norm=Groupwise())
    y, variables = jax.jit(layer.init_with_output)(jax.random.key(0), X)
    same(y, run(GRUCell(H, "rms"), variables["params"], X).outputs)


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


class Weights(Norm):
    """A norm that prepares weights and does nothing else."""

    of_product = ()

    def prepare(self, params, weight):
        """Return another weight."""
        return 3 * weight


class Prepared(Product):
    """A norm that asks for weights, and is not right without them."""

    def prepare(self, params, weight):
        """Return another weight."""
        return 3 * weight


class LengthOfState(Product):
    """A length of what is no weight."""

    of_product = None
    of_state = ("length",)


class Statistics(Product):
    """A norm with statistics of the batch."""

    has_statistics = True

    def apply(self, params, a, context):
        """Return the mean as the statistics."""
        mean = a.mean(0)
        return scaled(params, a - mean), (mean, mean)


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
    Weights: ("lstm", "lstm_joint", "gru", "gru_before", "simple", "dreamer"),
    Prepared: tuple(ALL_CELLS.keys() - {"blocks"}),
    LengthOfState: (),
    Statistics: tuple(ALL_CELLS),
    Empty: (),
    Undeclared: (),
}


@pytest.mark.parametrize("name", ALL_CELLS)
def test_a_cell_applies_a_norm_or_refuses_it_by_name(name):
    make = ALL_CELLS[name]
    can = [kind for kind, names in APPLY.items() if name in names]

    plain, _ = problem(make(H, norm="none"))

    def act(norm):
        cell = make(H, norm=norm)
        params, carry = problem(cell)
        return functional.step(cell, params | plain, carry, X[:, 0])[1]

    @jax.jit
    def act_all():
        return [act(norm) for norm in ("none", *[kind() for kind in can])]

    without, *others = act_all()
    for kind, outputs in zip(can, others, strict=True):
        assert np.abs(outputs - without).max() > 1e-3, kind
        assert bool(make(H, norm=kind()).sites) == kind.has_statistics
    for kind in APPLY.keys() - set(can):
        with refused(kind.__name__, error=ValueError):
            jax.eval_shape(functools.partial(act, kind()))


@pytest.mark.parametrize("name", ALL_CELLS)
def test_the_epsilon_of_a_norm_comes_before_that_of_the_cell(name):
    make = functools.partial(ALL_CELLS[name], H, epsilon=0.25)

    def found(norm):
        norms = make(norm=norm).site_norms.values()
        return {norm.epsilon for norm in norms if not norm.is_plain}

    assert found(Product()) == {0.25}
    assert found(Product(epsilon=0.5)) == {0.5}
    assert found(Product(epsilon=0.0)) == {0.0}
