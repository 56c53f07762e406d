"""Cells with blocks, other norm groups and of world models as nnx modules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lnrepro import functional
from lnrepro.nnx import RNN
from tests.linen.test_variants import CELLS, RESETS, B, D, H, X
from tests.nnx.common import params_of


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: type(c).__name__)
def test_any_functional_cell_is_a_module(cell):
    module = RNN(cell, in_features=D, return_carry=True, rngs=nnx.Rngs(0))
    params = params_of(module.cell)
    expected = functional.unroll(cell, params, X, resets=RESETS)
    carry, y = module(X, resets=RESETS)
    np.testing.assert_array_equal(y, expected.outputs)
    np.testing.assert_array_equal(carry, expected.carry)

    h = module.cell.initialize_carry((B, D))
    h, y = module.cell(h, X[:, 0])
    np.testing.assert_allclose(y, expected.outputs[:, 0], atol=1e-6)


def test_the_gradient_of_a_module_is_that_of_its_cell():
    cell = functional.DreamerGRUCell(H, "layer")
    module = RNN(cell, in_features=D, rngs=nnx.Rngs(0))

    def loss(module):
        return jnp.sum(jnp.sin(module(X, resets=RESETS)))

    def plain_loss(params):
        return jnp.sum(jnp.sin(functional.unroll(cell, params, X, resets=RESETS)[1]))

    gradient = nnx.grad(loss)(module)
    expected = jax.grad(plain_loss)(params_of(module.cell))
    for name, value in expected.items():
        np.testing.assert_allclose(gradient["cell"][name][...], value, atol=1e-5)
