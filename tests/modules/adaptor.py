"""The modules of linen and nnx behind one interface, and inputs of their tests.

Parameters are drawn by NumPy, and modules are applied under `jax.jit`: an operation by
itself is a program to compile. The examples in the docstrings do without. What a module
passes on to `lnrepro.functional` is compared as a program, which is not compiled.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx, serialization

from lnrepro import functional, linen
from lnrepro import nnx as lnnx
from lnrepro.flax_modules import as_drawn
from tests.covering import covering
from tests.functional.programs import drawn

B, T, D, H = 4, 6, 3, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((B, T, D)).astype(np.float32)
LENGTHS = np.array([6, 0, 3, 5])
MASK = np.arange(T) < np.array([[6], [2], [4], [5]])
RESETS = np.arange(T) == np.array([[2], [0], [3], [6]])
MEMORY = RNG.standard_normal((B, 2, 5)).astype(np.float32)
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


def jitted(function, *inputs, **arguments):
    """Call a function under `jax.jit`, which sees its named arguments as constants."""
    return jax.jit(functools.partial(function, **arguments))(*inputs)


class Linen:
    """A linen module with its variables."""

    package = linen

    def __init__(self, module, inputs=(X,), fresh=False, **arguments):
        self.module = module

        def init(key):
            return module.init(key, *inputs, **arguments)

        if fresh:
            self.variables = jax.jit(init)(jax.random.key(0))
        else:
            self.variables = drawn(jax.eval_shape(init, jax.random.key(0)))
        self.is_around = isinstance(module, linen.RNN)
        kept = nn.unbox(self.variables["params"])
        self.params = as_drawn(kept["cell"] if self.is_around else kept)

    @classmethod
    def named(cls, name, fresh=False, **options):
        """A module that is named after a kind of cell."""
        module = getattr(linen, name)(H, **options)
        carry = module.initialize_carry(None, (B, D))
        is_cell = isinstance(module, nn.RNNCellBase)
        return cls(module, (carry, X[:, 0]) if is_cell else (X,), fresh)

    @classmethod
    def rnn(cls, cell, dtype=None, param_dtype=jnp.float32, **options):
        """RNN of a functional cell."""
        cell = linen.FunctionalCell(cell, dtype=dtype, param_dtype=param_dtype)
        return cls(linen.RNN(cell, **options), memory=MEMORY, deterministic=True)

    @classmethod
    def around(cls, layer, **options):
        """RNN of a cell module."""
        return cls(linen.RNN(layer.module, **options))

    def apply(self, *inputs, params=None, **arguments):
        params = self.params if params is None else params
        return jitted(self.run, params, *inputs, **arguments)

    def run(self, params, *inputs, key=None, **arguments):
        """Apply without `jax.jit`."""
        params = serialization.to_state_dict(params)
        variables = {"params": {"cell": params} if self.is_around else params}
        rngs = None if key is None else {"dropout": key}
        return self.module.apply(variables, *inputs, rngs=rngs, **arguments)

    def initialize_carry(self, shape=(B, D)):
        variables = {"params": serialization.to_state_dict(self.params)}
        module = self.module.cell if self.is_around else self.module
        return module.clone(parent=None).bind(variables).initialize_carry(None, shape)


class Nnx:
    """An nnx module."""

    package = lnnx

    def __init__(self, make, fresh=False):
        """`make` takes a seed, and returns the module."""
        if fresh:
            module = make(nnx.Rngs(0))
        else:
            module = nnx.eval_shape(lambda: make(nnx.Rngs(params=0)))
            nnx.update(module, drawn(nnx.state(module, nnx.Param)))
        self.module = module
        is_around = isinstance(module, lnnx.RNN)
        self.owner = module.cell if is_around else module
        self.params = self.owner.parameters

    @classmethod
    def named(cls, name, fresh=False, **options):
        kind = getattr(lnnx, name)
        return cls(lambda rngs: kind(D, H, rngs=rngs, **options), fresh)

    @classmethod
    def rnn(cls, cell, dtype=None, param_dtype=jnp.float32, **options):
        def make(rngs):
            dtypes = {"dtype": dtype, "param_dtype": param_dtype}
            return lnnx.RNN(
                lnnx.FunctionalCell(cell, D, rngs=rngs, **dtypes), **options
            )

        return cls(make)

    @classmethod
    def around(cls, layer, **options):
        return cls(lambda rngs: lnnx.RNN(layer.module, **options), fresh=True)

    def apply(self, *inputs, params=None, **arguments):
        params = self.params if params is None else params
        return jitted(self.run, params, *inputs, **arguments)

    def run(self, params, *inputs, key=None, method="__call__", **arguments):
        """Apply without `jax.jit`."""
        graph, state, rest = nnx.split(self.module, nnx.Param, ...)
        # Both are sorted by names.
        leaves, structure = jax.tree.leaves(params), jax.tree.structure(state)
        module = nnx.merge(graph, jax.tree.unflatten(structure, leaves), rest)
        if key is not None:
            arguments["rngs"] = nnx.Rngs(dropout=key)
        return getattr(module, method)(*inputs, **arguments)

    def initialize_carry(self, shape=(B, D)):
        return self.module.initialize_carry(shape)


PACKAGES = {"linen": Linen, "nnx": Nnx}
# By default every kind of cell runs in one of both packages. The modules pass all they
# get to `lnrepro.functional`, whatever the cell is.
each_kind_once = pytest.mark.parametrize(
    ("package", "kind"), covering(PACKAGES, KINDS, strength=1)
)
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


def some_carry(layer):
    """A carry that is not the layer's own."""
    return jax.tree.map(lambda c: np.asarray(c) + 0.3, layer.initialize_carry())


def same_program(ours, theirs, *inputs, **arguments):
    """Assert that two functions take the same operations in the same order.

    They then have the same values, to the bit. Arguments that are booleans are options,
    and all others are arrays.
    """
    options = [name for name, value in arguments.items() if isinstance(value, bool)]

    def text_of(function):
        # The text has the name of the function in it.
        def program(*inputs, **arguments):
            return function(*inputs, **arguments)

        lowered = jax.jit(program, static_argnames=options).lower(*inputs, **arguments)
        return lowered.as_text()

    assert text_of(ours) == text_of(theirs)


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
