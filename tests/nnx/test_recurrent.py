"""RNN, LSTM, GRU and SimpleRNN of nnx equal `lnrepro.functional`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lnrepro import functional, linen
from lnrepro.convert.nnx import gru_from_nnx, lstm_from_nnx, rnn_from_nnx
from lnrepro.nnx import (
    GRU,
    LSTM,
    RNN,
    LSTMCell,
    SimpleRNN,
)
from tests.nnx.common import (
    ARGUMENTS,
    LENGTHS,
    MASK,
    RESETS,
    B,
    D,
    H,
    T,
    X,
    differ,
    each_cell,
    each_kind,
    normal,
    params_of,
    same,
    shift,
    some_carry,
)

# The same numbers as lnrepro.functional and lnrepro.linen


@each_kind
@pytest.mark.parametrize("norm", ["none", "layer", "weight"])
def test_values_and_gradients_equal_functional(sequence, cell, functional_cell, norm):
    module = shift(sequence(D, H, norm=norm, rngs=nnx.Rngs(0)))
    plain = functional_cell(H, norm)

    @nnx.jit
    def ours(module, x):
        def loss(module, x):
            carry, y = module(x, seq_lengths=LENGTHS, return_carry=True)
            return sum(jnp.sum(jnp.sin(a)) for a in jax.tree.leaves((carry, y))), y

        return nnx.value_and_grad(loss, argnums=(0, 1), has_aux=True)(module, x)

    @jax.jit
    def theirs(params, x):
        def loss(params, x):
            result = functional.unroll(plain, params, x, seq_lengths=LENGTHS)
            leaves = jax.tree.leaves((result.carry, result.outputs))
            return sum(jnp.sum(jnp.sin(a)) for a in leaves), result.outputs

        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, x)

    values, (gradient, gradient_x) = ours(module, X)
    expected_values, expected_gradients = theirs(params_of(module), X)
    same(values, expected_values)
    same((nnx.to_pure_dict(gradient), gradient_x), expected_gradients)


@each_kind
@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_three_ways_to_run_a_cell(sequence, cell, functional_cell, arguments):
    """The short form, RNN of a cell module, and RNN of a functional cell."""
    short = sequence(D, H, rngs=nnx.Rngs(0))
    around_module = RNN(cell(D, H, rngs=nnx.Rngs(0)))
    plain = functional_cell(H, "layer")
    around_functional = RNN(plain, in_features=D, rngs=nnx.Rngs(0))
    params = params_of(short)
    same(params_of(around_module), {"cell": params}, 0)
    same(params_of(around_functional), {"cell": params}, 0)
    carry = some_carry(short)
    result = functional.unroll(plain, params, X, initial_carry=carry, **arguments)
    for module in (short, around_module, around_functional):
        output = module(X, initial_carry=carry, return_carry=True, **arguments)
        same(output, (result.carry, result.outputs))


def test_options_are_attributes_too():
    of_call = LSTM(D, H, rngs=nnx.Rngs(0))
    options = {"reverse": True, "keep_order": True, "return_carry": True}
    of_module = LSTM(D, H, time_major=True, **options, rngs=nnx.Rngs(0))
    carry, y = of_module(jnp.moveaxis(X, 1, 0), seq_lengths=LENGTHS)
    same((carry, jnp.moveaxis(y, 0, 1)), of_call(X, seq_lengths=LENGTHS, **options))
    same(of_module(X, time_major=False, return_carry=False, reverse=False), of_call(X))
    around = RNN(LSTMCell(D, H, rngs=nnx.Rngs(0)), time_major=True, **options)
    same(around(jnp.moveaxis(X, 1, 0), seq_lengths=LENGTHS), (carry, y))


def test_scan_options_change_no_value():
    expected = GRU(D, H, rngs=nnx.Rngs(0))(X)
    autodiff = functional.ScanOptions(backward="autodiff")
    module = GRU(D, H, options=autodiff, unroll=2, rngs=nnx.Rngs(0))
    same(module(X), expected)
    graphdef, state = nnx.split(module)

    def run(x):
        return nnx.merge(graphdef, state)(x)

    # Forward mode works with backward="autodiff" only.
    jax.jvp(run, (X,), (X,))


@each_kind
def test_equals_linen(sequence, cell, functional_cell):
    module = sequence(D, H, rngs=nnx.Rngs(0))
    other = getattr(linen, sequence.__name__)(H)
    variables = {"params": params_of(module)}
    same(other.apply(variables, X, seq_lengths=LENGTHS), module(X, seq_lengths=LENGTHS))


@pytest.mark.parametrize(
    ("sequence", "theirs", "convert"),
    [
        (LSTM, nnx.LSTMCell, lstm_from_nnx),
        (LSTM, nnx.OptimizedLSTMCell, lstm_from_nnx),
        (GRU, nnx.GRUCell, gru_from_nnx),
        (SimpleRNN, nnx.SimpleCell, rnn_from_nnx),
    ],
)
def test_equals_flax_without_a_norm(sequence, theirs, convert):
    cell = shift(theirs(D, H, rngs=nnx.Rngs(0)))
    module = sequence(D, H, norm="none", rngs=nnx.Rngs(1))
    for name, value in convert(params_of(cell)).items():
        getattr(module, name)[...] = jnp.asarray(value)
    full = {"seq_lengths": jnp.full(B, T), "return_carry": True}
    same(module(X, **full), nnx.RNN(cell)(X, **full))
    for options in ({"reverse": True}, {"reverse": True, "keep_order": True}):
        expected = nnx.RNN(cell)(X, seq_lengths=LENGTHS, **options)
        padding = jnp.arange(T)[:, None] >= LENGTHS[:, None, None]
        y = module(X, seq_lengths=LENGTHS, **options)
        same(y, jnp.where(padding, 0, expected))


@pytest.mark.parametrize(
    "options",
    [
        {"cell_norm": "carry", "peephole": True, "inner_bias": True},
        {"norm": "layer_cell", "forget_bias": 1.0, "use_bias": True},
        {"norm": "none", "use_bias": False, "gradient_clip": 0.1},
        {"gate_fn": jax.nn.hard_sigmoid, "activation_fn": jax.nn.relu, "epsilon": 1e-2},
        {"learned_carry": True, "norm": "rms"},
        {"norm_site": "joint"},
    ],
    ids=["peephole", "layer_cell", "no bias", "functions", "learned", "sites"],
)
def test_a_functional_cell_has_all_options(options):
    plain = functional.LSTMCell(H, **{"norm": "layer", **options})
    module = shift(RNN(plain, in_features=D, rngs=nnx.Rngs(0)))
    assert module.cell.functional_cell == plain
    expected = functional.unroll(plain, params_of(module)["cell"], X).outputs
    same(module(X), expected)


@each_kind
def test_options_of_the_module_reach_its_cell(sequence, cell, functional_cell):
    options = {"norm": "rms", "activation_fn": jax.nn.relu}
    if functional_cell is not functional.SimpleCell:
        options["gate_fn"] = jax.nn.hard_sigmoid
    for make in (sequence, cell):
        module = make(D, H, **options, rngs=nnx.Rngs(0))
        assert module.functional_cell == functional_cell(H, **options)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_any_number_of_batch_axes(batch):
    module = GRU(D, H, rngs=nnx.Rngs(0))
    x = jnp.ones((*batch, T, D))
    carry, y = module(x, return_carry=True)
    assert (carry.shape, y.shape) == ((*batch, H), (*batch, T, H))


# Step by step


@each_kind
def test_steps_equal_the_sequence(sequence, cell, functional_cell):
    learned = functional_cell(H, "layer", learned_carry=True)
    module = shift(RNN(learned, in_features=D, rngs=nnx.Rngs(0)))
    stored = some_carry(module)
    expected = module(X, initial_carry=stored, mask=MASK, resets=RESETS)

    @nnx.jit
    def step(module, carry, x, mask, reset):
        return module.step(carry, x, mask=mask, reset=reset)

    carry, outputs = stored, []
    for t in range(T):
        carry, y = step(module, carry, X[:, t], MASK[:, t], RESETS[:, t])
        outputs.append(y)
    same(jnp.stack(outputs, 1), expected)


@each_cell
def test_a_cell_module_takes_one_step(cell):
    module = cell(D, H, rngs=nnx.Rngs(0))
    carry = module.initialize_carry((B, D))
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(carry))
    carry, y = module(carry, X[:, 0])
    same(RNN(module)(X[:, :1], return_carry=True), (carry, y[:, None]))
    assert module.num_feature_axes == 1
    assert module.hidden_features == H


@pytest.mark.slow
@each_kind
def test_a_reset_restores_the_module_s_own_carry(sequence, cell, functional_cell):
    """Not the carry that is passed in, and no gradient flows from there into it."""
    learned = functional_cell(H, "layer", learned_carry=True)
    module = shift(RNN(learned, in_features=D, rngs=nnx.Rngs(0)))
    resets = jnp.broadcast_to(jnp.arange(T) == 3, (B, T))

    def after_the_reset(stored):
        return module(X, initial_carry=stored, resets=resets)[:, 3:]

    stored = some_carry(module)
    same(after_the_reset(stored), module(X[:, 3:]))
    gradient = jax.grad(lambda c: jnp.sum(jnp.sin(after_the_reset(c))))(stored)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))
    own = module.initialize_carry((B, D))
    reset = jnp.ones(B, bool)
    same(module.step(stored, X[:, 0], reset=reset), module.step(own, X[:, 0]))


def test_carry_init():
    """It draws the first carry, anew in every call as in Flax; resets restore zeros."""
    cell = LSTMCell(D, H, carry_init=normal, rngs=nnx.Rngs(0))
    c, h = cell.initialize_carry((B, D), nnx.Rngs(7))
    assert differ(c, h)
    same((c, h), cell.initialize_carry((B, D), nnx.Rngs(params=0, carry=7)))
    module = RNN(cell)
    same(module(X, rngs=nnx.Rngs(7)), module(X, initial_carry=(c, h)))
    assert differ(module(X), module(X))
    resets = jnp.zeros((B, T), bool).at[:, 0].set(True)
    same(module(X, resets=resets), module(X, initial_carry=(0 * c, 0 * h)))

    plain = GRU(D, H, rngs=nnx.Rngs(0))
    ones = nnx.initializers.ones
    # It is drawn in the dtype of the parameters, and the computation has a wider one.
    narrow = GRU(D, H, carry_init=ones, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    same(narrow(X), narrow(X, initial_carry=jnp.ones((B, H))))
    assert (plain.initialize_carry((B, D), nnx.Rngs(0), ones) == 1).all()
    with pytest.raises(ValueError, match="carry_init needs rngs"):
        plain.initialize_carry((B, D), carry_init=ones)
