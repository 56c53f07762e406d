"""The recurrent modules of linen and nnx compute what `lnrepro.functional` does."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from lnrepro import functional
from tests.covering import covering
from tests.modules.adaptor import (
    ARGUMENTS,
    KINDS,
    LENGTHS,
    MASK,
    MEMORY,
    PACKAGES,
    RESETS,
    B,
    D,
    H,
    T,
    X,
    dtypes,
    each_kind_once,
    each_package,
    loss_of,
    refused,
    same,
    some_carry,
)

# Parameters of options, a tuple of parameters, and cells of a user. All are called in
# the same way.
OTHER_CELLS = {
    "lstm": functional.LSTMCell(H, cell_norm="carry", peephole=True, inner_bias=True),
    "blocks": functional.DreamerBlockGRUCell(
        H, hidden_features=3, input_sizes=(2, 1), blocks=2, norm="rms"
    ),
    "stack": functional.stack(functional.LSTMCell(H), functional.GRUCell(5, "rms")),
    "projected": ProjectedLSTMCell(H, 6),
    "attention": AttentionCell(H, memory_features=5),
}


def value_and_gradients(function):
    """The gradients of what a function returns, and that itself."""

    def loss(*arguments):
        outputs = function(*arguments)
        return loss_of(outputs), outputs

    numbers = tuple(range(len(inspect.signature(function).parameters)))
    return jax.grad(loss, numbers, has_aux=True)


def steps_of(layer, carry, mask, resets, **arguments):
    """The last carry, and outputs [B, T, H] of single steps of a module."""

    def step(carry, inputs):
        x, mask, reset = inputs
        return layer.step(carry, x, mask=mask, reset=reset, **arguments)

    by_time = [np.swapaxes(a, 0, 1) for a in (X, mask, resets)]
    carry, outputs = jax.lax.scan(step, carry, by_time)
    return carry, jnp.swapaxes(outputs, 0, 1)


@each_package
@pytest.mark.parametrize(("kind", "arguments"), covering(KINDS, ARGUMENTS, strength=1))
def test_three_ways_to_run_a_cell(package, kind, arguments):
    """The short form, RNN of a cell module, and RNN of a functional cell."""
    name, cell_name, cell_class = KINDS[kind]
    cell = cell_class(H)
    x = X.swapaxes(0, 1) if arguments == "time_major" else X
    layers = [
        package.named(name),
        package.around(package.named(cell_name)),
        package.rnn(cell),
    ]
    given = {"initial_carry": some_carry(layers[0]), **ARGUMENTS[arguments]}

    @jax.jit
    def of_all(params):
        result = functional.unroll(cell, params, x, **given)
        how = {"params": params, "return_carry": True, **given}
        return result[:2], [layer.apply(x, **how) for layer in layers]

    expected, outputs = of_all(layers[0].params)
    for found in outputs:
        same(found, expected)


@each_package
@pytest.mark.parametrize("cell", OTHER_CELLS.values(), ids=OTHER_CELLS)
def test_any_functional_cell_is_a_module(package, cell):
    """Sequences, gradients and steps."""
    layer = package.rnn(cell)
    given = {"seq_lengths": LENGTHS, "resets": RESETS, "memory": MEMORY}

    def theirs(params):
        return functional.unroll(cell, params, X, **given)[:2]

    def ours(params):
        return layer.apply(X, params=params, return_carry=True, **given)

    @jax.jit
    def of_all(params, carry):
        mask = np.arange(T) < LENGTHS[:, None]
        steps = steps_of(layer, carry, mask, RESETS & mask, memory=MEMORY)
        return [value_and_gradients(f)(params) for f in (ours, theirs)], steps

    (found, expected), steps = of_all(layer.params, layer.initialize_carry())
    same(found, expected)
    same(steps, expected[1])


@each_package
def test_resets_restore_the_learned_carry(package):
    """The module's own one, and not the one that is passed in."""
    layer = package.rnn(functional.LSTMCell(H, learned_carry=True))

    @jax.jit
    def of_all(stored):
        given = {"mask": MASK, "resets": RESETS}
        sequence = layer.apply(X, initial_carry=stored, return_carry=True, **given)
        at_3 = np.broadcast_to(np.arange(T) == 3, (B, T))
        behind = layer.apply(X, initial_carry=stored, resets=at_3)[:, 3:]
        return sequence, steps_of(layer, stored, *given.values()), behind

    sequence, steps, behind = of_all(some_carry(layer))
    same(steps, sequence)
    same(behind, layer.apply(X[:, 3:]))


@each_kind_once
def test_a_cell_module_takes_one_step(package, kind):
    package = PACKAGES[package]
    layer = package.named(KINDS[kind][1])
    carry = layer.initialize_carry()
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(carry))
    # Flax asks for carries before the number of features is known.
    same(layer.initialize_carry((B, None)), carry)
    assert layer.module.num_feature_axes == 1
    around = package.around(layer)
    expected = around.apply(X[:, :1], params=layer.params, return_carry=True)
    carry, y = layer.apply(carry, X[:, 0])
    same((carry, np.asarray(y)[:, None]), expected)


@each_package
def test_arguments_override_attributes(package):
    options = {"time_major": True, "return_carry": True, "reverse": True}
    layer, plain = package.named("LSTM", **options), package.named("LSTM")
    x = X.swapaxes(0, 1)
    same(layer.apply(X, **dict.fromkeys(options, False)), plain.apply(X))
    carry, y = layer.apply(x, keep_order=True, seq_lengths=LENGTHS)
    arguments = {"reverse": True, "keep_order": True, "seq_lengths": LENGTHS}
    expected = plain.apply(X, return_carry=True, **arguments)
    same((carry, np.swapaxes(y, 0, 1)), expected)


@each_package
def test_options_of_the_scan(package):
    options = functional.ScanOptions(backward="autodiff", unroll=2)
    layer = package.named("GRU", options=options)
    # Forward mode works with backward="autodiff" only.
    jax.jit(lambda x: jax.jvp(layer.apply, (x,), (x,)))(X)


@each_package
def test_dtypes(package):
    mixed = package.named("LSTM", dtype=jnp.bfloat16)
    assert dtypes(mixed.params) == {"float32"}
    carry, y = mixed.apply(X, return_carry=True)
    # A carry of bfloat16 would forget.
    assert (dtypes(carry), dtypes(y)) == ({"float32"}, {"bfloat16"})
    own = package.rnn(ProjectedLSTMCell(H, 6), dtype=jnp.bfloat16)
    assert dtypes(own.initialize_carry()) == {"float32"}
    integers = np.ones((B, T, D), int)
    assert dtypes(jax.eval_shape(mixed.apply, integers)) == {"bfloat16"}
    same(np.float32(y), package.named("LSTM").apply(X), 0.1)
    # So that `lax.scan` over steps accepts it.
    stepped, _ = jax.eval_shape(mixed.step, carry, X[:, 0])
    assert dtypes(stepped) == {"float32"}
    narrow = package.named("LSTM", param_dtype=jnp.float16)
    assert dtypes(narrow.params) == {"float16"}
    result = jax.eval_shape(narrow.apply, X.astype(np.float16))
    assert dtypes(result) == {"float16"}


@each_package
def test_a_narrow_dtype_is_that_of_products(package):
    """Kernels and inputs are rounded; biases and peepholes, no kernels, are not."""
    cell = functional.LSTMCell(H, "none", peephole=True)
    layer = package.rnn(cell, dtype=jnp.bfloat16)
    carry = some_carry(layer)

    def rounded(a):
        return a.astype(jnp.bfloat16).astype(jnp.float32)

    @jax.jit
    def both(params):
        found, _ = layer.apply(X[:, :1], initial_carry=carry, return_carry=True)
        narrow = {name: rounded(params[name]) for name in ("w_x", "w_h")}
        c, h = carry
        x = rounded(jnp.asarray(X[:, 0]))
        expected = functional.step(cell, params | narrow, (c, rounded(h)), x)
        return found, expected[0]

    same(*both(layer.params), 1e-6)


@each_package
def test_a_fresh_carry_can_be_donated(package):
    carry = package.named("LSTM").initialize_carry()
    add = jax.jit(lambda s: jax.tree.map(lambda a: a + 1, s), donate_argnums=0)
    same(add(carry), (np.ones((B, H)), np.ones((B, H))))


@each_package
def test_inputs_that_do_not_fit(package):
    with refused(TypeError, "int32"):
        package.named("GRU").apply(np.ones((B, T, D), int))
    with refused(ValueError, str(D + 1)):
        package.named("GRU").apply(np.ones((B, T, D + 1), np.float32))
    with refused(TypeError, "complex64"):
        package.named("GRU", dtype=jnp.float32).apply(X + 1j)
