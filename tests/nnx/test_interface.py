"""Messages of the recurrent nnx modules."""

import jax.numpy as jnp
import pytest
from flax import nnx

from lnrepro import functional
from lnrepro.nnx import GRU, RNN, Bidirectional, GRUCell
from tests.nnx.common import B, D, H, T, X


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
    with pytest.raises(TypeError, match="unexpected keyword argument 'eps'"):
        make(D, H, eps=1e-3, rngs=rngs)
    with pytest.raises(ValueError, match="norm='layers'; choose one of"):
        make(D, H, norm="layers", rngs=rngs)
    with pytest.raises(ValueError, match="features=0; it must be a positive integer"):
        make(D, 0, rngs=rngs)
    with pytest.raises(TypeError):
        make(D, H)


@pytest.mark.parametrize("rngs", [0, "carry", None, {"carry": 1}])
def test_streams_for_carries_are_named(rngs):
    cell, layer = GRUCell(D, H, rngs=nnx.Rngs(0)), GRU(D, H, rngs=nnx.Rngs(0))
    message = f"rngs has the type {type(rngs).__name__}; give rngs=nnx.Rngs"
    with pytest.raises(TypeError, match=message):
        RNN(cell, rngs=rngs)
    with pytest.raises(TypeError, match=message):
        Bidirectional(layer, layer, rngs=rngs)


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


@pytest.mark.parametrize("make", [GRU, GRUCell])
def test_carries_need_no_number_of_features(make):
    # As with Flax's cells, whose carries do not depend on it.
    carry = make(D, H, rngs=nnx.Rngs(0)).initialize_carry((B, None))
    assert carry.shape == (B, H)
    assert not carry.any()
