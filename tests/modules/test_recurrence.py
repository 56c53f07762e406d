"""The recurrent modules of linen and nnx compute what `lnrepro.functional` does."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from lnrepro import functional
from tests.modules.adaptor import (
    ARGUMENTS,
    KINDS,
    LENGTHS,
    MASK,
    MEMORY,
    RESETS,
    B,
    D,
    H,
    T,
    X,
    dtypes,
    each_arguments,
    each_kind,
    each_package,
    loss_of,
    moved,
    refused,
    same,
    some_carry,
)

USER_CELLS = [ProjectedLSTMCell(H, 6), AttentionCell(H, memory_features=5)]
STACK = functional.stack(functional.LSTMCell(H), functional.GRUCell(5, "rms"))
OTHER_CELLS = [
    functional.LSTMCell(H, cell_norm="carry", peephole=True, inner_bias=True),
    functional.LSTMCell(H, "layer_cell", forget_bias=1.0, epsilon=1e-2),
    functional.GRUCell(H, reset="before"),
    functional.DreamerGRUCell(H),
    functional.DreamerBlockGRUCell(
        H, hidden_features=3, input_sizes=(2, 1), blocks=2, norm="rms"
    ),
    STACK,
    *USER_CELLS,
]


@each_package
@each_kind
@pytest.mark.parametrize("norm", ["none", "layer", "weight"])
def test_values_and_gradients_equal_functional(package, kind, norm):
    name, _, cell_class = KINDS[kind]
    layer, cell = moved(package.named(name, norm=norm)), cell_class(H, norm)

    def ours(params, x):
        outputs = layer.apply(x, params=params, seq_lengths=LENGTHS, return_carry=True)
        return loss_of(outputs), outputs

    def theirs(params, x):
        result = functional.unroll(cell, params, x, seq_lengths=LENGTHS)
        outputs = (result.carry, result.outputs)
        return loss_of(outputs), outputs

    grad = functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    same(*(jax.jit(grad(f))(layer.params, X) for f in (ours, theirs)))


@each_package
@each_kind
@each_arguments
def test_three_ways_to_run_a_cell(package, kind, arguments):
    """The short form, RNN of a cell module, and RNN of a functional cell."""
    name, cell_name, cell_class = KINDS[kind]
    cell = cell_class(H)
    x = X.swapaxes(0, 1) if arguments is ARGUMENTS["time_major"] else X
    layers = [
        package.named(name),
        package.around(package.named(cell_name)),
        package.rnn(cell),
    ]
    params = moved(layers[0]).params
    carry = some_carry(layers[0])
    result = functional.unroll(cell, params, x, initial_carry=carry, **arguments)
    for layer in layers:
        output = layer.apply(
            x, params=params, initial_carry=carry, return_carry=True, **arguments
        )
        same(output, (result.carry, result.outputs))


@each_package
@pytest.mark.parametrize("cell", OTHER_CELLS, ids=lambda c: type(c).__name__)
def test_any_functional_cell_is_a_module(package, cell):
    """Options of cells, stacks, cells of a user: sequences, gradients, steps."""
    layer = moved(package.rnn(cell))
    arguments = {"resets": RESETS, "memory": MEMORY}

    def theirs(params):
        result = functional.unroll(cell, params, X, seq_lengths=LENGTHS, **arguments)
        return loss_of(result[:2]), result[:2]

    def ours(params):
        outputs = layer.apply(
            X, params=params, seq_lengths=LENGTHS, return_carry=True, **arguments
        )
        return loss_of(outputs), outputs

    grad = functools.partial(jax.value_and_grad, has_aux=True)
    (_, expected), gradient = jax.jit(grad(theirs))(layer.params)
    same(jax.jit(grad(ours))(layer.params), ((_, expected), gradient))

    @jax.jit
    def step(carry, x, t):
        mask = t < LENGTHS
        reset = RESETS[:, t] & mask
        return layer.step(carry, x, mask=mask, reset=reset, memory=MEMORY)

    carry, outputs = layer.initialize_carry(), []
    for t in range(T):
        carry, y = step(carry, X[:, t], t)
        outputs.append(y)
    same((carry, jnp.stack(outputs, 1)), expected)


@each_package
@each_kind
def test_steps_and_resets_with_a_learned_carry(package, kind):
    layer = moved(package.rnn(KINDS[kind][2](H, learned_carry=True)))
    stored = some_carry(layer)
    expected = layer.apply(
        X, initial_carry=stored, mask=MASK, resets=RESETS, return_carry=True
    )
    step, carry, outputs = jax.jit(layer.step), stored, []
    for t in range(T):
        carry, y = step(carry, X[:, t], mask=MASK[:, t], reset=RESETS[:, t])
        outputs.append(y)
    same((carry, jnp.stack(outputs, 1)), expected)

    # A reset restores the module's own carry, not the one that is passed in, and no
    # gradient flows from there into that.
    resets = jnp.broadcast_to(jnp.arange(T) == 3, (B, T))

    def after_the_reset(stored):
        return layer.apply(X, initial_carry=stored, resets=resets)[:, 3:]

    same(after_the_reset(stored), layer.apply(X[:, 3:]))
    gradient = jax.grad(lambda c: loss_of(after_the_reset(c)))(stored)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))


@each_package
@each_kind
def test_a_cell_module_takes_one_step(package, kind):
    layer = package.named(KINDS[kind][1])
    carry = layer.initialize_carry()
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(carry))
    # Flax asks for carries before the number of features is known.
    same(layer.initialize_carry((B, None)), carry)
    assert layer.module.num_feature_axes == 1
    expected = package.around(layer).apply(
        X[:, :1], params=layer.params, return_carry=True
    )
    carry, y = layer.apply(carry, X[:, 0])
    same((carry, y[:, None]), expected)


@each_package
def test_arguments_override_attributes(package):
    options = {"time_major": True, "return_carry": True, "reverse": True}
    layer, plain = package.named("LSTM", **options), package.named("LSTM")
    x = X.swapaxes(0, 1)
    same(layer.apply(X, **dict.fromkeys(options, False)), plain.apply(X))
    carry, y = layer.apply(x, keep_order=True, seq_lengths=LENGTHS)
    arguments = {"reverse": True, "keep_order": True, "seq_lengths": LENGTHS}
    expected = plain.apply(X, return_carry=True, **arguments)
    same((carry, y.swapaxes(0, 1)), expected)


@each_package
def test_options_of_the_scan(package):
    options = functional.ScanOptions(backward="autodiff", unroll=2)
    layer = package.named("GRU", options=options)
    same(layer.apply(X), package.named("GRU").apply(X))
    # Forward mode works with backward="autodiff" only.
    jax.jvp(layer.apply, (X,), (X,))


@each_package
def test_rows_of_a_reversed_stack_do_not_read_their_padding(package):
    """Rows of 3 steps padded to 6, and concatenated sequences, as each alone."""
    layer = moved(package.rnn(STACK))
    run = functools.partial(layer.apply, reverse=True, keep_order=True)
    mask = jnp.broadcast_to(jnp.arange(T) >= 3, (B, T))
    same(run(X, mask=mask)[:, 3:], run(X[:, 3:]))
    resets = jnp.broadcast_to(jnp.arange(T) == 2, (B, T))
    alone = [run(x) for x in (X[:, :2], X[:, 2:])]
    same(run(X, resets=resets), jnp.concatenate(alone, 1))


@each_package
@each_kind
def test_dtypes(package, kind):
    name = KINDS[kind][0]
    mixed = package.named(name, dtype=jnp.bfloat16)
    assert dtypes(mixed.params) == {"float32"}
    carry, y = mixed.apply(X, return_carry=True)
    # A carry of bfloat16 would forget.
    assert (dtypes(carry), dtypes(y)) == ({"float32"}, {"bfloat16"})
    assert dtypes(mixed.initialize_carry()) == {"float32"}
    assert dtypes(mixed.apply(jnp.ones((B, T, D), int))) == {"bfloat16"}
    same(np.float32(y), package.named(name).apply(X), 0.1)
    # So that `lax.scan` over steps accepts it.
    stepped, _ = mixed.step(carry, X[:, 0])
    assert dtypes(stepped) == {"float32"}
    narrow = package.named(name, param_dtype=jnp.float16)
    assert dtypes(narrow.params) == {"float16"}
    assert dtypes(narrow.apply(X.astype(jnp.float16))) == {"float16"}


@each_package
def test_float64(package):
    layer, cell = package.rnn(functional.LSTMCell(H)), functional.LSTMCell(H)
    with jax.enable_x64(True):
        params, x = jax.tree.map(lambda a: np.asarray(a, np.float64), (layer.params, X))
        carry = layer.initialize_carry()
        y = layer.apply(x, params=params, initial_carry=carry)
        assert dtypes(y) == {"float64"}
        same(y, functional.unroll(cell, params, x).outputs, 1e-12)


@each_package
def test_a_fresh_carry_can_be_donated(package):
    carry = package.named("LSTM").initialize_carry()
    add = jax.jit(lambda s: jax.tree.map(lambda a: a + 1, s), donate_argnums=0)
    same(add(carry), (jnp.ones((B, H)), jnp.ones((B, H))))


@each_package
def test_inputs_that_do_not_fit(package):
    layer = package.named("GRU")
    with refused(TypeError, "int32"):
        layer.apply(jnp.ones((B, T, D), int))
    with refused(ValueError, str(D + 1)):
        layer.apply(jnp.ones((B, T, D + 1)))
    with refused(TypeError, "complex64"):
        package.named("GRU", dtype=jnp.float32).apply(X + 1j)
    for shape in ((B, H + 1), (B + 1, H)):
        with refused(ValueError, "carry has shape"):
            layer.apply(X, initial_carry=jnp.zeros(shape))
