"""The modules of linen and nnx behind one interface, and inputs of their tests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx, serialization

from lnrepro import functional, linen
from lnrepro import nnx as lnnx
from lnrepro.flax_modules import as_drawn

B, T, D, H = 4, 6, 3, 4
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.standard_normal((B, T, D)), jnp.float32)
LENGTHS = jnp.array([6, 0, 3, 5])
MASK = jnp.arange(T) < jnp.array([[6], [2], [4], [5]])
RESETS = jnp.arange(T) == jnp.array([[2], [0], [3], [6]])
MEMORY = jnp.asarray(RNG.standard_normal((B, 2, 5)), jnp.float32)
ARGUMENTS = {
    "lengths": {"seq_lengths": LENGTHS},
    "mask": {"mask": MASK},
    "resets": {"resets": RESETS, "seq_lengths": LENGTHS},
    "keep_order": {"reverse": True, "keep_order": True, "seq_lengths": LENGTHS},
    "time_major": {"time_major": True},
}
# Name of the sequence module, of the cell module, and the functional cell.
KINDS = {
    "lstm": ("LSTM", "LSTMCell", functional.LSTMCell),
    "gru": ("GRU", "GRUCell", functional.GRUCell),
    "simple": ("SimpleRNN", "SimpleCell", functional.SimpleCell),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_arguments = pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)


class Linen:
    """A linen module with its variables."""

    package = linen

    def __init__(self, module, inputs=(X,), params=None, **arguments):
        self.module = module
        self.variables = module.init(jax.random.key(0), *inputs, **arguments)
        self.is_around = isinstance(module, linen.RNN)
        kept = nn.unbox(self.variables["params"])
        self.params = as_drawn(kept["cell"] if self.is_around else kept)

    @classmethod
    def named(cls, name, **options):
        """A module that is named after a kind of cell."""
        module = getattr(linen, name)(H, **options)
        carry = module.initialize_carry(None, (B, D))
        is_cell = isinstance(module, nn.RNNCellBase)
        return cls(module, (carry, X[:, 0]) if is_cell else (X,))

    @classmethod
    def rnn(cls, cell, dtype=None, param_dtype=jnp.float32, **options):
        """RNN of a functional cell."""
        cell = linen.FunctionalCell(cell, dtype=dtype, param_dtype=param_dtype)
        return cls(linen.RNN(cell, **options), memory=MEMORY, deterministic=True)

    @classmethod
    def around(cls, layer, **options):
        """RNN of a cell module."""
        return cls(linen.RNN(layer.module, **options))

    def apply(self, *inputs, params=None, key=None, **arguments):
        params = serialization.to_state_dict(self.params if params is None else params)
        variables = {"params": {"cell": params} if self.is_around else params}
        rngs = None if key is None else {"dropout": key}
        return self.module.apply(variables, *inputs, rngs=rngs, **arguments)

    def step(self, *inputs, **arguments):
        return self.apply(*inputs, method="step", **arguments)

    def initialize_carry(self, shape=(B, D)):
        variables = {"params": serialization.to_state_dict(self.params)}
        module = self.module.cell if self.is_around else self.module
        return module.clone(parent=None).bind(variables).initialize_carry(None, shape)


class Nnx:
    """An nnx module."""

    package = lnnx

    def __init__(self, module):
        self.module = module
        is_around = isinstance(module, lnnx.RNN)
        self.owner = module.cell if is_around else module
        self.params = self.owner.parameters

    @classmethod
    def named(cls, name, **options):
        return cls(getattr(lnnx, name)(D, H, rngs=nnx.Rngs(0), **options))

    @classmethod
    def rnn(cls, cell, dtype=None, param_dtype=jnp.float32, **options):
        cell = lnnx.FunctionalCell(
            cell, D, dtype=dtype, param_dtype=param_dtype, rngs=nnx.Rngs(params=0)
        )
        return cls(lnnx.RNN(cell, **options))

    @classmethod
    def around(cls, layer, **options):
        return cls(lnnx.RNN(layer.module, **options))

    def apply(self, *inputs, params=None, key=None, method="__call__", **arguments):
        params = self.params if params is None else params
        graph, state, rest = nnx.split(self.module, nnx.Param, ...)
        # Both are sorted by names.
        leaves, structure = jax.tree.leaves(params), jax.tree.structure(state)
        module = nnx.merge(graph, jax.tree.unflatten(structure, leaves), rest)
        if key is not None:
            arguments["rngs"] = nnx.Rngs(dropout=key)
        return getattr(module, method)(*inputs, **arguments)

    def step(self, *inputs, **arguments):
        return self.apply(*inputs, method="step", **arguments)

    def initialize_carry(self, shape=(B, D)):
        return self.module.initialize_carry(shape)


PACKAGES = {"linen": Linen, "nnx": Nnx}
each_package = pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)


def same(a, b, tolerance=1e-5):
    """Assert that two trees of arrays are equal up to rounding."""
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance),
        a,
        b,
    )


def differ(a, b):
    """Whether two arrays differ by more than rounding."""
    return np.abs(np.asarray(a) - np.asarray(b)).max() > 1e-3


def moved(layer):
    """The layer with parameters away from their starting values."""
    rng = np.random.default_rng(1)

    def move(a):
        return a + jnp.asarray(0.2 * rng.standard_normal(a.shape), a.dtype)

    layer.params = jax.tree.map(move, layer.params)
    return layer


def some_carry(layer):
    """A carry that is not the layer's own."""
    return jax.tree.map(lambda c: c + 0.3, layer.initialize_carry())


def loss_of(outputs):
    """A number that every output has a part in."""
    return sum(jnp.sum(jnp.sin(a)) for a in jax.tree.leaves(outputs))


def refused(error, *words):
    """Assert that a block raises an error of one line that has these words."""
    # JAX adds a note of two lines behind errors in its functions.
    note = r"(\n-+\nFor simplicity, JAX .*)?"
    line = r"[^\n]*" + ".*".join(words) + r"[^\n]*"
    return pytest.raises(error, match=rf"\A{line}{note}\Z")


def shapes(tree):
    return jax.tree.map(jnp.shape, tree)


def dtypes(tree):
    return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}
