"""Mistakes of a first hour with cells and modules: each has one clear message."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import lnrepro.linen
import lnrepro.nnx
from lnrepro import functional
from lnrepro.functional import GRUCell

X = jnp.ones((2, 3, 4))
HALVES = jnp.full((2, 3), 0.5)


def linen(module, **arguments):
    return module.init(jax.random.key(0), X, **arguments)


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ([[GRUCell(5, "none")]], "a list"),
        ([GRUCell(5, "none"), GRUCell], "the class GRUCell"),
    ],
)
def test_stack_takes_cells_one_by_one(cells, named):
    with pytest.raises(TypeError, match=f"stack: {named} is no cell; give cells one"):
        functional.stack(*cells)


def test_a_mask_holds_no_weights():
    layer = lnrepro.nnx.GRU(4, 5, rngs=nnx.Rngs(0))
    message = "mask has the value 0.5; a step is there"
    with pytest.raises(ValueError, match=f"unroll: {message}"):
        layer(X, mask=HALVES)
    with pytest.raises(ValueError, match=f"unroll: {message}"):
        linen(lnrepro.linen.GRU(5), mask=HALVES)
    carry = layer.initialize_carry((2, 4))
    with pytest.raises(ValueError, match=f"step: {message}"):
        layer.step(carry, X[:, 0], mask=HALVES[:, 0])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32])
def test_a_mask_of_numbers_is_that_of_booleans(dtype):
    layer = lnrepro.nnx.GRU(4, 5, rngs=nnx.Rngs(0))
    mask = jnp.array([[1, 1, 0], [1, 1, 1]])
    expected = layer(X, mask=mask.astype(bool))
    assert (layer(X, mask=mask.astype(dtype)) == expected).all()


@pytest.mark.parametrize("rngs", [0, jax.random.key(0)])
@pytest.mark.parametrize(
    "module",
    [
        lambda rngs: lnrepro.nnx.GRU(4, 5, rngs=rngs),
        lambda rngs: lnrepro.nnx.LayerNorm(4, rngs=rngs),
    ],
)
def test_a_seed_in_place_of_rngs_is_named(module, rngs):
    with pytest.raises(TypeError, match=r"rngs has the type .*; give rngs=nnx\.Rngs"):
        module(rngs)
