"""ScannedRNN: the recurrent block of other programs, with the same numbers."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import convert
from lnrepro.functional import GRUCell, LSTMCell, ScanOptions, SimpleCell, unroll
from lnrepro.linen import ScannedRNN
from tests.functional.programs import drawn
from tests.modules.adaptor import loss_of, refused, same, same_program

T, D, H = 6, 3, 4
# Of Flax, and ours.
CELLS = {
    "gru": (nn.GRUCell, GRUCell(H, "none", recurrent_bias=True)),
    "lstm": (nn.LSTMCell, LSTMCell(H, "none")),
    "simple": (nn.SimpleCell, SimpleCell(H, "none")),
}


class Reference(nn.Module):
    """Flax's own scan and cell; the carry is zero before a step with a reset."""

    cell_type: str

    @functools.partial(
        nn.scan, variable_broadcast="params", split_rngs={"params": False}
    )
    @nn.compact
    def __call__(self, carry, x):
        """Take one step: x is (inputs [..., D], resets [...])."""
        inputs, resets = x
        carry = jax.tree.map(lambda a: jnp.where(resets[..., None], 0.0, a), carry)
        return CELLS[self.cell_type][0](H)(carry, inputs)


def rollout(*batch):
    """Inputs [T, ..., D] and resets [T, ...], also at the first and the last step."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((T, *batch, D)).astype(np.float32)
    resets = rng.random((T, *batch)) < 0.3
    resets[0, 0] = resets[-1, -1] = True
    return x, resets


def shapes_of(module, carry, x):
    """The shapes of a module's variables."""
    return jax.eval_shape(module.init, jax.random.key(0), carry, x)


# The batch axes of purejaxrl and Stoix, and those of Mava.
@pytest.mark.parametrize(
    ("cell_type", "batch"),
    [("gru", (3, 2)), ("lstm", (5,)), ("simple", (5,))],
)
def test_numbers_and_gradients_are_those_of_a_scan_of_flax(cell_type, batch):
    x = rollout(*batch)
    carry = ScannedRNN.initialize_carry(batch, H, cell_type)
    # A rollout goes on from the one before it.
    carry = jax.tree.map(lambda a: a + 0.5, carry)
    theirs, ours = Reference(cell_type), ScannedRNN(H, cell_type, norm="none")
    variables = drawn(shapes_of(theirs, carry, x))
    expected = shapes_of(ours, carry, x)
    ((place, _),) = expected["params"].items()

    def as_ours(variables, **options):
        (weights,) = variables["params"].values()
        loaded = convert.load("flax", CELLS[cell_type][1], weights, **options)
        return {"params": {place: loaded}}

    converted = as_ours(variables)
    assert jax.tree.map(jnp.shape, converted) == jax.tree.map(jnp.shape, expected)

    @functools.partial(jax.jit, static_argnums=0)
    @functools.partial(jax.grad, argnums=(1, 2), has_aux=True)
    def run(module, variables, carry):
        outputs = module.apply(variables, carry, x)
        return loss_of(outputs), outputs

    (gradients, of_carry), outputs = run(theirs, variables, carry)
    expected = (as_ours(gradients, gradients=True), of_carry), outputs
    same(run(ours, converted, carry), expected)


def test_it_runs_a_cell_with_layer_norm_over_a_rollout():
    """Without sizes, with the default norm, with options."""
    x, carry = rollout(5), ScannedRNN.initialize_carry(5, H)
    for options in (None, ScanOptions(backward="autodiff", unroll=2)):
        module = ScannedRNN(options=options)
        variables = drawn(shapes_of(module, carry, x))

        def theirs(variables, carry, x, options=options):
            params, (inputs, resets) = variables["params"]["GRUCell_0"], x
            how = {"initial_carry": carry, "resets": resets != 0, "time_major": True}
            return unroll(GRUCell(H), params, inputs, options=options, **how)[:2]

        same_program(module.apply, theirs, variables, carry, x)


@pytest.mark.parametrize(
    ("options", "batch_and_hidden", "message"),
    [
        # purejaxql has the arguments in the other order.
        ({}, (H, 5), r"carry has shape \(4, 5\)"),
        ({"hidden_state_dim": 7}, (5, H), r"carry has shape \(5, 4\)"),
        ({"cell_type": "mgu"}, (5, H), "cell_type='mgu'; choose one of 'gru'"),
    ],
    ids=["order", "size", "cell"],
)
def test_bad_arguments_get_one_line(options, batch_and_hidden, message):
    carry = ScannedRNN.initialize_carry(*batch_and_hidden)
    with refused((TypeError, ValueError), message):
        shapes_of(ScannedRNN(**options), carry, rollout(5))


def test_resets_may_be_floats_of_zero_and_one():
    """Programs of this kind pass zeros(...) to `init`, and `done` as it comes."""
    inputs, resets = rollout(5)
    carry = ScannedRNN.initialize_carry(5, H)
    variables = drawn(shapes_of(ScannedRNN(), carry, (inputs, np.zeros((T, 5)))))
    run = jax.jit(ScannedRNN().apply)
    expected = run(variables, carry, (inputs, resets))
    floats = resets.astype(float)
    # Known while the module is traced.
    known = jax.jit(
        lambda inputs: ScannedRNN().apply(variables, carry, (inputs, floats))
    )
    same(known(inputs), expected)
    same(run(variables, carry, (inputs, 0.5 * floats)), expected)
    for numbers in (0.99 * floats, 2 * resets):
        with refused(ValueError, "resets must be 0 or 1", "not a discount"):
            ScannedRNN().apply(variables, carry, (inputs, numbers))


def test_flax_s_optimised_lstm_is_its_lstm():
    x, carry = rollout(5), ScannedRNN.initialize_carry(5, H, "lstm")
    modules = [ScannedRNN(H, name) for name in ("optimised_lstm", "lstm")]
    variables = drawn(shapes_of(modules[0], carry, x))
    same_program(*(module.apply for module in modules), variables, carry, x)


def test_inputs_alone_and_a_carry_that_is_left_out():
    x, key = rollout(5), jax.random.key(0)
    carry = ScannedRNN.initialize_carry((5,), H)
    # Two steps would be taken for the two parts of a pair.
    with refused(TypeError, "x is a pair"):
        ScannedRNN().init(key, carry, x[0][:2])
    with refused(ValueError, "give a carry, or hidden_state_dim"):
        ScannedRNN().init(key, None, x)
    variables = drawn(shapes_of(ScannedRNN(H), None, x))
    run = jax.jit(ScannedRNN(H).apply)
    same(run(variables, None, x), run(variables, carry, x), 0)
