"""ScannedRNN: the recurrent block of other programs, with the same numbers."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import convert, linen
from lnrepro.functional import GRUCell, LSTMCell, SimpleCell
from lnrepro.linen import ScannedRNN
from tests.functional.programs import drawn
from tests.modules.adaptor import refused, same

T, D, H = 6, 3, 4
CELLS = {
    "gru": nn.GRUCell,
    "lstm": nn.LSTMCell,
    "optimised_lstm": nn.OptimizedLSTMCell,
    "simple": nn.SimpleCell,
}
OURS = {
    "gru": GRUCell(H, "none", recurrent_bias=True),
    "lstm": LSTMCell(H, "none"),
    "optimised_lstm": LSTMCell(H, "none"),
    "simple": SimpleCell(H, "none"),
}
# The batch axes of purejaxrl and Stoix, and those of Mava.
each_batch = pytest.mark.parametrize(
    "batch", [(5,), pytest.param((3, 2), marks=pytest.mark.slow)], ids=str
)


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
        return CELLS[self.cell_type](H)(carry, inputs)


def rollout(batch, seed=0):
    """Inputs [T, ..., D] and resets [T, ...], also at the first and the last step."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((T, *batch, D)).astype(np.float32)
    resets = rng.random((T, *batch)) < 0.3
    resets[0, 0] = resets[-1, -1] = True
    return x, resets


def shapes_of(module, carry, x):
    """The shapes of a module's variables."""
    return jax.eval_shape(module.init, jax.random.key(0), carry, x)


@each_batch
@pytest.mark.parametrize("cell_type", CELLS)
def test_numbers_and_gradients_are_those_of_a_scan_of_flax(batch, cell_type):
    x = rollout(batch)
    carry = ScannedRNN.initialize_carry(batch, H, cell_type)
    # A rollout goes on from the one before it.
    carry = jax.tree.map(lambda a: a + 0.5, carry)
    theirs, ours = Reference(cell_type), ScannedRNN(H, cell_type, norm="none")
    variables = drawn(shapes_of(theirs, carry, x))
    (weights,) = variables["params"].values()
    expected = shapes_of(ours, carry, x)
    ((place, _),) = expected["params"].items()
    loaded = convert.load("flax", OURS[cell_type], weights)
    converted = {"params": {place: loaded}}
    assert jax.tree.map(jnp.shape, converted) == jax.tree.map(jnp.shape, expected)

    def loss(module, variables, carry):
        last, y = module.apply(variables, carry, x)
        total = sum(jnp.sum(a**2) for a in jax.tree.leaves(last))
        return total + jnp.sum(jnp.sin(y)), (last, y)

    run = jax.value_and_grad(loss, argnums=(1, 2), has_aux=True)
    run = jax.jit(run, static_argnums=0)
    (_, results), gradients = run(theirs, variables, carry)
    (_, our_results), our_gradients = run(ours, converted, carry)
    same(our_results, results)
    same(our_gradients[1], gradients[1])
    (weights,) = gradients[0]["params"].values()
    as_ours = convert.load("flax", OURS[cell_type], weights, gradients=True)
    same(our_gradients[0]["params"][place], as_ours)


@each_batch
def test_acting_step_by_step_sees_what_learning_sees(batch):
    inputs, resets = rollout(batch)
    first = ScannedRNN.initialize_carry(batch, H)
    module = ScannedRNN()
    variables = drawn(shapes_of(module, first, (inputs, resets)))
    run = jax.jit(module.apply)
    last, y = run(variables, first, (inputs, resets))
    carry, steps = first, []
    for t in range(T):
        now = slice(t, t + 1)
        carry, one = run(variables, carry, (inputs[now], resets[now]))
        steps.append(one)
    same((carry, np.concatenate(steps)), (last, y))


def test_the_default_norm_and_fresh_carries():
    x = rollout((2,))
    carry = ScannedRNN.initialize_carry(2, H)
    variables = shapes_of(ScannedRNN(H), carry, x)
    assert "gain_h" in variables["params"]["GRUCell_0"]
    zeros = np.zeros((5, H))
    same(ScannedRNN.initialize_carry(5, H), zeros)
    same(ScannedRNN.initialize_carry((2, 5), H), np.zeros((2, 5, H)))
    lstm = ScannedRNN.initialize_carry(5, H, "lstm")
    add = jax.jit(lambda s: jax.tree.map(lambda a: a + 1, s), donate_argnums=0)
    same(add(lstm), (zeros + 1, zeros + 1))


@pytest.mark.parametrize(
    ("options", "batch_and_hidden", "dtype", "message"),
    [
        # purejaxql has the arguments in the other order.
        ({}, (H, 5), bool, r"carry has shape \(4, 5\)"),
        ({"hidden_state_dim": 7}, (5, H), bool, r"carry has shape \(5, 4\)"),
        ({"cell_type": "mgu"}, (5, H), bool, "cell_type='mgu'; choose one of 'gru'"),
    ],
    ids=["order", "size", "cell"],
)
def test_bad_arguments_get_one_line(options, batch_and_hidden, dtype, message):
    inputs, resets = rollout((5,))
    carry = ScannedRNN.initialize_carry(*batch_and_hidden)
    with refused((TypeError, ValueError), message):
        shapes_of(ScannedRNN(**options), carry, (inputs, resets.astype(dtype)))


def test_resets_may_be_floats_of_zero_and_one():
    """Programs of this kind pass zeros(...) to `init`, and `done` as it comes."""
    inputs, resets = rollout((5,))
    carry = ScannedRNN.initialize_carry(5, H)
    variables = drawn(shapes_of(ScannedRNN(), carry, (inputs, np.zeros((T, 5)))))
    expected = ScannedRNN().apply(variables, carry, (inputs, resets))
    floats = resets.astype(float)
    same(ScannedRNN().apply(variables, carry, (inputs, floats)), expected, 0)
    run = jax.jit(ScannedRNN().apply)
    same(run(variables, carry, (inputs, 0.5 * floats)), expected)
    for numbers in (0.99 * floats, 2 * resets):
        with refused(ValueError, "resets must be 0 or 1", "not a discount"):
            ScannedRNN().apply(variables, carry, (inputs, numbers))


def test_inputs_alone_and_a_carry_that_is_left_out():
    x, key = rollout((5,)), jax.random.key(0)
    carry = ScannedRNN.initialize_carry(5, H)
    # Two steps would be taken for the two parts of a pair.
    with refused(TypeError, "x is a pair"):
        ScannedRNN().init(key, carry, x[0][:2])
    with refused(ValueError, "give a carry, or hidden_state_dim"):
        ScannedRNN().init(key, None, x)

    @jax.jit
    def both():
        run = ScannedRNN(H).init_with_output
        return run(key, None, x)[0], run(key, carry, x)[0]

    same(*both())


class RecurrentNetwork(nn.Module):
    """The networks of these programs: an embedding, ScannedRNN, and a head."""

    rnn: nn.Module
    width: int = 128

    @nn.compact
    def __call__(self, hidden, x):
        observations, dones = x
        embedding = nn.relu(nn.Dense(self.width)(observations))
        hidden, y = self.rnn(hidden, (embedding, dones))
        return hidden, nn.Dense(5)(y)


# Of each program, what its own `network.init` gets: the batch axes, the features of an
# observation, the dtype of the zeros that are its dones, the cell.
INITS = {
    "purejaxrl": ((4,), 4, float, "gru"),  # CartPole
    "Mava": ((16, 3), 64, bool, "gru"),  # environments, agents
    "Stoix": ((64,), 4, bool, "lstm"),
    "purejaxql": ((1,), 8268, float, "optimised_lstm"),  # Craftax
}


@pytest.mark.nightly
@pytest.mark.parametrize("program", INITS)
def test_named_programs_make_their_networks_as_they_do(program):
    batch, features, dtype, cell_type = INITS[program]
    x = jnp.zeros((1, *batch, features)), jnp.zeros((1, *batch), dtype)
    size = batch[0] if len(batch) == 1 else batch
    hidden = ScannedRNN.initialize_carry(size, 128, cell_type)
    # purejaxrl and purejaxql give no size.
    sized = program in ("Mava", "Stoix")
    network = RecurrentNetwork(ScannedRNN(128 if sized else None, cell_type))
    params = network.init(jax.random.key(0), hidden, x)
    after, y = network.apply(params, hidden, x)
    assert y.shape == (1, *batch, 5)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, hidden)


class ScanOfACell(nn.Module):
    """As memorax runs a cell: by nn.scan, with a first carry where the mask is True."""

    cell: nn.Module

    @nn.compact
    def __call__(self, x, mask):
        size = (x.shape[0], x.shape[-1])
        first = self.cell.initialize_carry(jax.random.key(0), size)

        def step(cell, carry, x, mask):
            start = cell.initialize_carry(jax.random.key(0), size)
            at_start = mask[:, None]
            carry = jax.tree.map(lambda a, b: jnp.where(at_start, a, b), start, carry)
            return cell(carry, x)

        scan = nn.scan(
            step,
            in_axes=1,
            out_axes=1,
            variable_broadcast="params",
            split_rngs={"params": False},
        )
        return scan(self.cell, first, x, mask)


@pytest.mark.nightly
@pytest.mark.parametrize("cell", [linen.GRUCell, linen.LSTMCell])
def test_memorax_makes_its_network_of_our_cell(cell):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(16, 8, 4)), jnp.float32)
    mask = jnp.zeros((16, 8), bool).at[:, 3].set(True)
    network = ScanOfACell(cell(128, norm="layer"))
    variables = network.init(jax.random.key(0), x, mask)
    _, y = network.apply(variables, x, mask)
    # The steps behind the mask are a sequence of their own.
    _, alone = network.apply(variables, x[:, 3:], mask[:, 3:])
    np.testing.assert_allclose(y[:, 3:], alone, rtol=1e-6, atol=1e-6)
