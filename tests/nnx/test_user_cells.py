"""A user's own cells run in lnrepro.nnx.RNN."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from docs.examples.user_cells import ProjectedLSTMCell
from lnrepro import functional
from lnrepro.nnx import (
    RNN,
)
from tests.nnx.common import (
    LENGTHS,
    MEMORY,
    RESETS,
    USER_CELLS,
    B,
    D,
    H,
    T,
    X,
    differ,
    params_of,
    same,
    shift,
    zoneout,
)


@pytest.mark.slow
@pytest.mark.parametrize("cell", USER_CELLS, ids=lambda c: type(c).__name__)
def test_cells_of_a_user(cell):
    module = shift(RNN(cell, in_features=D, rngs=nnx.Rngs(0)))
    arguments = {"seq_lengths": LENGTHS, "resets": RESETS, "memory": MEMORY}
    params = params_of(module)["cell"]
    expected = functional.unroll(cell, params, X, **arguments)
    same(module(X, **arguments), expected.outputs)

    def loss(params):
        result = functional.unroll(cell, params, X, **arguments)
        return jnp.sum(jnp.sin(result.outputs))

    gradient = nnx.grad(lambda m: jnp.sum(jnp.sin(m(X, **arguments))))(module)
    same(nnx.to_pure_dict(gradient)["cell"], jax.grad(loss)(params))

    carry, outputs = module.initialize_carry((B, D)), []
    for t in range(T):
        carry, y = module.step(
            carry,
            X[:, t],
            mask=t < LENGTHS,
            reset=RESETS[:, t],
            memory=MEMORY,
        )
        outputs.append(y)
    same((carry, jnp.stack(outputs, 1)), (expected.carry, expected.outputs))


def test_a_wrapped_stack_of_user_cells():
    cell = functional.stack(*USER_CELLS, functional.GRUCell(H, "layer"))
    module = RNN(zoneout(cell), in_features=D, rngs=nnx.Rngs(0, dropout=1))
    assert list(params_of(module)["cell"]) == ["0", "1", "2"]
    assert differ(module(X, memory=MEMORY), module(X, memory=MEMORY))
    module.eval()
    params = tuple(params_of(module)["cell"].values())
    same(
        module(X, memory=MEMORY),
        functional.unroll(zoneout(cell), params, X, memory=MEMORY).outputs,
    )


def test_a_parameter_whose_name_is_taken_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Clash(ProjectedLSTMCell):
        def init(self, key, features_in, dtype=jnp.float32):
            return {"dtype": jnp.zeros(features_in, dtype)}

    with pytest.raises(ValueError, match="'dtype', which is the name of an attribute"):
        RNN(Clash(H, 6), in_features=D, rngs=nnx.Rngs(0))
