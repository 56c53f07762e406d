"""What modules give to cells: the size of x, shared variables, whole parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lnrepro import functional, linen
from lnrepro import nnx as lnnx
from tests.functional.programs import drawn, same, shapes_of
from tests.functional.test_wrappers import Delay
from tests.refused import refused

D = H = 4
X = np.random.default_rng(0).standard_normal((2, 5, D)).astype(np.float32)


@pytest.mark.parametrize(
    "cell", [Delay(), functional.stack(functional.GRUCell(6), Delay())]
)
def test_initialize_carry_knows_the_size_of_x(cell):
    module = linen.RNN(cell)
    variables = drawn(jax.eval_shape(module.init, jax.random.key(0), X))
    carry = module.initialize_carry(None, X[:, 0].shape)
    run = jax.jit(module.apply)
    same(run(variables, X, initial_carry=carry), run(variables, X), 0)
    module = lnnx.RNN(cell, in_features=D, rngs=nnx.Rngs(0))
    run = nnx.jit(lambda module, carry=None: module(X, initial_carry=carry))
    for size in (D, None):
        carry = module.initialize_carry((2, size))
        same(run(module, carry), run(module), 0)


def test_variables_may_be_shared_within_a_module():
    stacked = lnnx.RNN(
        functional.stack(functional.GRUCell(H), functional.GRUCell(H)),
        in_features=D,
        rngs=nnx.Rngs(0),
    )
    lower, upper = stacked.cell.cells
    upper["w_h"] = lower["w_h"]
    tied = lnnx.GRU(D, H, rngs=nnx.Rngs(0))
    tied.w_h = tied.w_x

    @nnx.jit
    def gradient(module):
        return nnx.grad(lambda module: jnp.sum(module(X) ** 2))(module)

    def expected(cell, params, share):
        def loss(w):
            return jnp.sum(functional.unroll(cell, share(params, w), X).outputs ** 2)

        return jax.jit(jax.grad(loss))

    params = tied.parameters
    (found,) = [a for a in jax.tree.leaves(gradient(tied)) if a.shape == (D, 3 * H)]
    wanted = expected(
        functional.GRUCell(H), params, lambda p, w: {**p, "w_x": w, "w_h": w}
    )
    same(found, wanted(params["w_x"]), 1e-5)
    params = stacked.cell.parameters
    found = nnx.to_pure_dict(gradient(stacked))["cell"]["cells"][0]["w_h"]
    cell = stacked.cell.functional_cell
    wanted = expected(cell, params, lambda p, w: tuple({**one, "w_h": w} for one in p))
    same(found, wanted(params[0]["w_h"]), 1e-5)


def test_a_narrow_dtype_rounds_what_multiplies():
    """Peepholes are a matrix, and no kernel."""
    cell = functional.LSTMCell(H, "none", peephole=True)
    params = drawn(shapes_of(cell, D)[0])
    params["peephole"] *= 8
    module = linen.RNN(linen.FunctionalCell(cell, dtype=jnp.bfloat16))
    x = jnp.asarray(X[:, :1], jnp.bfloat16)
    first = jnp.full((2, H), 2.0), jnp.zeros((2, H))
    variables = {"params": {"cell": params}}
    run = jax.jit(functools.partial(module.apply, return_carry=True))
    found = run(variables, x, initial_carry=first)[0]

    def carry(*names):
        """The carry in float32, where these parameters are rounded."""
        narrow = {
            name: params[name].astype(jnp.bfloat16).astype(jnp.float32)
            for name in names
        }
        x_wide = x.astype(jnp.float32)
        run = jax.jit(functional.unroll, static_argnums=0)
        return run(cell, params | narrow, x_wide, initial_carry=first).carry

    same(found, carry("w_x", "w_h"), 1e-6)
    assert jnp.abs(found[0] - carry("w_x", "w_h", "peephole")[0]).max() > 1e-4


def test_a_carry_of_the_size_of_x_needs_that_size():
    with refused("depends on D", error=ValueError):
        linen.RNN(Delay()).initialize_carry(None, (2, None))
    assert linen.LSTM(H).initialize_carry(None, (2, None))[0].shape == (2, H)
