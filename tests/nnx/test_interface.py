"""Signatures, docstrings and messages of the recurrent nnx modules."""

import dataclasses
import inspect

import jax.numpy as jnp
import pytest
from flax import nnx

from lnrepro import functional, linen
from lnrepro.nnx import (
    GRU,
    LSTM,
    RNN,
    Bidirectional,
    FunctionalCell,
    GRUCell,
    LSTMCell,
    Stack,
)
from tests.nnx.common import (
    CELLS,
    SEQUENCES,
    B,
    D,
    H,
    T,
    X,
    each_kind,
    params_of,
    same,
)


def parameters(function):
    """The named parameters of a function, or of a class's construction."""
    function = function.__init__ if isinstance(function, type) else function
    named = inspect.signature(function).parameters
    return {name: p for name, p in named.items() if name != "self"}


@each_kind
def test_signatures_are_explicit_and_shared(sequence, cell, functional_cell):
    options = parameters(cell)
    fields = {f.name for f in dataclasses.fields(functional_cell)} - {"features"}
    assert fields <= set(options)
    assert set(options) <= set(parameters(sequence))
    for name, option in options.items():
        assert parameters(sequence)[name] == option
    assert list(parameters(sequence.__call__)) == list(parameters(RNN.__call__))
    theirs = {f.name for f in dataclasses.fields(getattr(linen, sequence.__name__))}
    assert theirs - {"features", "parent", "name"} <= set(parameters(sequence))


@pytest.mark.parametrize(
    "module",
    [*CELLS, *SEQUENCES, FunctionalCell, RNN, Stack, Bidirectional],
    ids=lambda m: m.__name__,
)
def test_every_argument_is_documented(module):
    for function, text in (
        (module, module.__doc__),
        (module.__call__, module.__call__.__doc__),
    ):
        for name, option in parameters(function).items():
            assert option.kind is not option.VAR_KEYWORD
            assert f"\n  {name}: " in inspect.cleandoc(text)


def test_flax_s_vocabulary():
    # The cells' `dtype` says all there is to say; `keep_rngs` is deprecated.
    theirs = set(parameters(nnx.LSTMCell)) - {"promote_dtype", "keep_rngs"}
    assert theirs <= set(parameters(LSTMCell))
    flax_rnn = set(parameters(nnx.RNN)) - {"state_axes", "broadcast_rngs"}
    assert flax_rnn <= set(parameters(RNN))
    assert set(parameters(nnx.RNN.__call__)) <= set(parameters(RNN.__call__))
    flax_call = set(parameters(nnx.Bidirectional.__call__)) - {"reverse", "keep_order"}
    assert flax_call <= set(parameters(Bidirectional.__call__))
    for make in (*CELLS, *SEQUENCES):
        with pytest.raises(TypeError, match="unexpected keyword argument 'eps'"):
            make(D, H, eps=1e-3, rngs=nnx.Rngs(0))
    assert LSTM(D, H, epsilon=1e-3, rngs=nnx.Rngs(0)).functional_cell.epsilon == 1e-3


def test_rnn_refuses_other_cells():
    class Overridden(GRUCell):
        def __call__(self, carry, inputs):
            return carry, inputs

    for cell in (
        nnx.GRUCell(D, H, rngs=nnx.Rngs(0)),
        Overridden(D, H, rngs=nnx.Rngs(0)),
        GRU(D, H, rngs=nnx.Rngs(0)),
    ):
        with pytest.raises(TypeError, match=r"For other cells use flax\.nnx\.RNN"):
            RNN(cell)
    for given in ({}, {"in_features": D}, {"rngs": nnx.Rngs(0)}):
        with pytest.raises(ValueError, match="needs in_features"):
            RNN(functional.GRUCell(H), **given)


@pytest.mark.parametrize("make", [GRU, GRUCell])
def test_messages_about_arguments(make):
    rngs = nnx.Rngs(0)
    with pytest.raises(TypeError, match="wrap returned a int, not a Cell"):
        make(D, H, wrap=lambda cell: 3, rngs=rngs)
    with pytest.raises(ValueError, match="norm='layers'; choose one of"):
        make(D, H, norm="layers", rngs=rngs)
    with pytest.raises(ValueError, match="features=0; it must be a positive integer"):
        make(D, 0, rngs=rngs)
    with pytest.raises(TypeError):
        make(D, H)


def test_messages_about_inputs():
    module = GRU(D, H, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match="int"):
        module(jnp.ones((B, T, D), int))
    with pytest.raises(TypeError, match="complex64; they must be real"):
        GRU(D, H, dtype=jnp.float32, rngs=nnx.Rngs(0))(X + 1j)
    with pytest.raises(ValueError, match=str(D + 1)):
        module(jnp.ones((B, T, D + 1)))
    with pytest.raises(ValueError, match="carry"):
        module(X, initial_carry=jnp.zeros((B, H + 1)))


def test_a_wrap_may_return_a_stack():
    def twice(cell):
        return functional.stack(cell, functional.GRUCell(H, "layer"))

    module = GRU(D, H, wrap=twice, rngs=nnx.Rngs(0))
    params = tuple(params_of(module).values())
    expected = functional.unroll(module.functional_cell, params, X)
    same(module(X, return_carry=True), (expected.carry, expected.outputs))
    stepped = module.step(module.initialize_carry((B, D)), X[:, 0])
    same(stepped[1], expected.outputs[:, 0])
