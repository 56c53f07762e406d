"""Stack and Bidirectional of nnx, and our modules inside Flax's."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from lnrepro import functional
from lnrepro.nnx import (
    GRU,
    LSTM,
    RNN,
    Bidirectional,
    GRUCell,
    Stack,
)
from tests.nnx.common import (
    ARGUMENTS,
    LENGTHS,
    MASK,
    MEMORY,
    RESETS,
    USER_CELLS,
    B,
    D,
    H,
    T,
    X,
    differ,
    each_cell,
    noisy_gru,
    normal,
    params_of,
    same,
    some_carry,
    two_layers,
)

# Stack and Bidirectional


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_stack_equals_its_layers(arguments):
    first, second = two_layers()
    module = Stack([first, second])
    carries = (some_carry(first), some_carry(second))
    between = dict(arguments)
    if "reverse" in arguments:
        between["keep_order"] = True
    carry_0, y = first(X, initial_carry=carries[0], return_carry=True, **between)
    carry_1, y = second(y, initial_carry=carries[1], return_carry=True, **arguments)
    output = module(X, initial_carry=carries, return_carry=True, **arguments)
    same(output, ((carry_0, carry_1), y))


def test_stack_in_one_scan_has_the_same_numbers():
    layers = two_layers()
    params = tuple(params_of(m) for m in layers)
    cells = functional.LSTMCell(H, "layer"), functional.GRUCell(5, "layer")
    one = RNN(functional.stack(*cells), in_features=D, rngs=nnx.Rngs(1))
    lower, upper = params[0], params[1]["cell"]
    state = nnx.state(one)
    nnx.replace_by_pure_dict(state, {"cell": {"0": lower, "1": upper}})
    nnx.update(one, state)
    same(one(X, seq_lengths=LENGTHS), Stack(layers)(X, seq_lengths=LENGTHS))


def test_stack_step_by_step():
    rngs = nnx.Rngs(0)
    learned = (
        functional.LSTMCell(H, "layer", learned_carry=True),
        functional.GRUCell(5, "layer", learned_carry=True),
    )
    module = Stack(
        [
            RNN(cell, in_features=size, rngs=rngs)
            for cell, size in zip(learned, (D, H), strict=True)
        ]
    )
    assert module.hidden_features == 5
    expected = module(X, mask=MASK, resets=RESETS, return_carry=True)
    carry, outputs = module.initialize_carry((B, D)), []
    for t in range(T):
        carry, y = module.step(carry, X[:, t], mask=MASK[:, t], reset=RESETS[:, t])
        outputs.append(y)
    same((carry, jnp.stack(outputs, 1)), expected)


def test_bidirectional_equals_functional():
    left, right = LSTM(D, H, rngs=nnx.Rngs(0)), GRU(D, H, rngs=nnx.Rngs(1))
    cells = left.functional_cell, right.functional_cell
    params = params_of(left), params_of(right)
    carries = some_carry(left), some_carry(right)
    arguments = {"seq_lengths": LENGTHS, "mask": MASK, "resets": RESETS}
    for merge in ("concat", "sum"):
        module = Bidirectional(left, right, merge_fn=merge)
        expected = functional.bidirectional(
            *cells, params, X, merge=merge, initial_carry=carries, **arguments
        )
        output = module(X, initial_carry=carries, return_carry=True, **arguments)
        same(output, (expected.carry, expected.outputs))
        assert output[1].shape[-1] == module.hidden_features
    time_major = Bidirectional(left, right, merge_fn=jnp.maximum, time_major=True)
    y = time_major(jnp.moveaxis(X, 1, 0), seq_lengths=LENGTHS)
    reverse = {"reverse": True, "keep_order": True, "seq_lengths": LENGTHS}
    expected = jnp.maximum(left(X, seq_lengths=LENGTHS), right(X, **reverse))
    same(jnp.moveaxis(y, 0, 1), expected)


def test_both_directions_run_concatenated_sequences_as_each_alone():
    rngs = nnx.Rngs(0)
    learned = functional.LSTMCell(H, "layer", learned_carry=True)
    pair = RNN(learned, in_features=D, rngs=rngs), GRU(D, H, rngs=rngs)
    last = GRU(2 * H, H, reverse=True, keep_order=True, rngs=rngs)
    module = Stack([Bidirectional(*pair), last])
    nnx.update(module, jax.tree.map(lambda a: a + 0.1, nnx.state(module, nnx.Param)))
    whole = module(X, resets=jnp.broadcast_to(jnp.arange(T) == 2, (B, T)))
    same(whole, jnp.concatenate([module(X[:, :2]), module(X[:, 2:])], 1))


def test_stack_of_bidirectional_layers_reads_memory():
    cell, rngs = USER_CELLS[1], nnx.Rngs(0)
    pair = [RNN(cell, in_features=D, rngs=rngs) for _ in range(2)]
    module = Stack([Bidirectional(*pair), RNN(cell, in_features=2 * H, rngs=rngs)])
    y = module(X, seq_lengths=LENGTHS, memory=MEMORY)
    assert y.shape == (B, T, H)
    assert differ(y, module(X, seq_lengths=LENGTHS, memory=2 * MEMORY))


def test_combined_modules_refuse_what_does_not_fit():
    layers = two_layers()
    with pytest.raises(ValueError, match="1 carries for 2 layers"):
        Stack(layers)(X, initial_carry=[None])
    with pytest.raises(ValueError, match="merge_fn='mean'; choose 'concat', 'sum'"):
        Bidirectional(*layers, merge_fn="mean")
    rngs = nnx.Rngs(0)
    pair = GRU(D, H, rngs=rngs), LSTM(D, H, rngs=rngs)
    module = Stack([Bidirectional(*pair), GRU(2 * H, 5, rngs=rngs)])
    carry = module.initialize_carry((B, D))
    same(module(X, initial_carry=carry), module(X))
    with pytest.raises(TypeError, match="a Bidirectional layer has no single step"):
        module.step(carry, X[:, 0])


# Inside Flax's own modules


@each_cell
def test_flax_s_rnn_runs_our_cells(cell):
    module = cell(D, H, rngs=nnx.Rngs(0))
    for options in ({}, {"reverse": True}, {"reverse": True, "keep_order": True}):
        same(nnx.RNN(module)(X, **options), RNN(module)(X, **options))


@pytest.mark.parametrize("rngs", [True, nnx.Rngs(0), nnx.RngStream(0, tag="carry")])
def test_flax_s_bidirectional_runs_our_modules(rngs):
    """Flax passes a stream of keys for carries."""
    left, right = LSTM(D, H, rngs=nnx.Rngs(0)), RNN(GRUCell(D, H, rngs=nnx.Rngs(1)))
    theirs = nnx.Bidirectional(left, right, rngs=rngs)
    ours = Bidirectional(left, right)
    same(theirs(X, seq_lengths=LENGTHS), ours(X, seq_lengths=LENGTHS))
    noisy = [noisy_gru(rngs=nnx.Rngs(0, dropout=1)) for _ in range(2)]
    module = nnx.Bidirectional(*noisy, rngs=rngs)
    assert differ(module(X), module(X))


def test_noise_does_not_take_flax_s_stream_of_carries():
    def noisy_pair():
        return [noisy_gru(rngs=nnx.Rngs(seed)) for seed in range(2)]

    same(nnx.Bidirectional(*noisy_pair())(X), Bidirectional(*noisy_pair())(X))


def test_stacks_hold_flax_s_modules_too():
    theirs = nnx.RNN(nnx.GRUCell(D, H, rngs=nnx.Rngs(0)))
    ours = GRU(H, H, rngs=nnx.Rngs(1))
    same(Stack([theirs, ours])(X), ours(theirs(X)))


@pytest.mark.parametrize("make", [lambda m, r: Bidirectional(*m, rngs=r), None])
def test_rngs_of_the_constructor_draw_carries(make):
    """As in flax.nnx: rngs draw the carries of both modules, and no noise."""

    def layers():
        return [GRU(D, H, carry_init=normal, rngs=nnx.Rngs(seed)) for seed in range(2)]

    if make is None:
        cell = GRUCell(D, H, carry_init=normal, rngs=nnx.Rngs(0))
        module, own = RNN(cell, rngs=nnx.Rngs(5)), RNN(cell)
        other = RNN(cell, rngs=nnx.Rngs(6))
    else:
        module, own = make(layers(), nnx.Rngs(5)), Bidirectional(*layers())
        other = make(layers(), nnx.Rngs(6))
    first = module(X)
    assert differ(first, own(X))
    assert differ(first, other(X))
    assert differ(first, module(X))
    noisy = [noisy_gru(rngs=nnx.Rngs(0, dropout=1)) for _ in range(2)]
    expected = Bidirectional(*nnx.clone(noisy))(X)
    same(Bidirectional(*noisy, rngs=nnx.Rngs(7))(X), expected)


def test_directions_of_a_bidirectional_module_are_its_own():
    module = Bidirectional(*[GRU(D, H, rngs=nnx.Rngs(seed)) for seed in range(2)])
    same(module(X, reverse=True, keep_order=False), module(X))
