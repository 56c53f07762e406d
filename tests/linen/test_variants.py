"""Cells with blocks, other norm groups and of world models as linen modules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from lnrepro.linen import RNN, FunctionalCell

B, T, D, H = 2, 5, 3, 4
X = jax.random.normal(jax.random.key(0), (B, T, D))
RESETS = jnp.arange(T) == jnp.array([[2], [3]])
CELLS = [
    functional.GRUCell(H, "rms", reset="before"),
    functional.DreamerGRUCell(H, "layer"),
    functional.DreamerBlockGRUCell(
        H, hidden_features=3, input_sizes=(2, 1), blocks=2, norm="rms"
    ),
]


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: type(c).__name__)
def test_any_functional_cell_is_a_module(cell):
    module = RNN(cell, return_carry=True)
    variables = module.init(jax.random.key(1), X)
    params = variables["params"]["cell"]
    expected = functional.unroll(cell, params, X, resets=RESETS)
    carry, y = module.apply(variables, X, resets=RESETS)
    np.testing.assert_array_equal(y, expected.outputs)
    np.testing.assert_array_equal(carry, expected.carry)

    one = FunctionalCell(cell)
    h = one.initialize_carry(jax.random.key(0), X[:, 0].shape)
    h, y = one.apply({"params": params}, h, X[:, 0])
    np.testing.assert_allclose(y, expected.outputs[:, 0], atol=1e-6)
