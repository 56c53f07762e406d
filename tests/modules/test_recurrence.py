"""The recurrent modules of linen and nnx compute what `lnrepro.functional` does."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from lnrepro import functional
from tests.covering import covering
from tests.functional.programs import drawn, shapes_of
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
    each_kind,
    each_package,
    loss_of,
    refused,
    same,
    same_program,
    some_carry,
)

# Parameters of options, a tuple of parameters, and cells of a user. All are called in
# the same way.
OTHER_CELLS = {
    "lstm": functional.LSTMCell(
        H, cell_norm="carry", peephole=True, inner_bias=True, learned_carry=True
    ),
    "blocks": functional.DreamerBlockGRUCell(
        H, hidden_features=3, input_sizes=(2, 1), blocks=2, norm="rms"
    ),
    "stack": functional.stack(functional.LSTMCell(H), functional.GRUCell(5, "rms")),
    "projected": ProjectedLSTMCell(H, 6),
    "attention": AttentionCell(H, memory_features=5),
}


def functional_run(cell, **options):
    """What `functional.unroll` returns of a module's (params, x, arguments)."""

    def run(params, x, **arguments):
        return functional.unroll(cell, params, x, **arguments, **options)[:2]

    return run


def functional_step(cell):
    def run(params, carry, x, **arguments):
        return functional.step(cell, params, carry, x, **arguments)

    return run


@each_package
@pytest.mark.parametrize(("kind", "arguments"), covering(KINDS, ARGUMENTS, strength=1))
def test_three_ways_to_run_a_cell(package, kind, arguments):
    """The short form, RNN of a cell module, and RNN of a functional cell."""
    name, cell_name, cell_class = KINDS[kind]
    cell = cell_class(H)
    for layer in (
        package.named(name, return_carry=True),
        package.around(package.named(cell_name), return_carry=True),
        package.rnn(cell, return_carry=True),
    ):
        given = {"initial_carry": some_carry(layer), **ARGUMENTS[arguments]}
        x = X.swapaxes(0, 1) if "time_major" in given else X
        same_program(layer.run, functional_run(cell), layer.params, x, **given)


@each_package
@pytest.mark.parametrize("cell", OTHER_CELLS.values(), ids=OTHER_CELLS)
def test_any_functional_cell_is_a_module(package, cell):
    """Sequences and steps."""
    layer = package.rnn(cell, return_carry=True)
    given = {"mask": MASK, "resets": RESETS, "memory": MEMORY}
    same_program(layer.run, functional_run(cell), layer.params, X, **given)
    carry = layer.initialize_carry()
    same(carry, cell.initial_carry(layer.params, jnp.asarray(X[:, 0])), 0)
    given = {"mask": MASK[:, 0], "reset": RESETS[:, 0], "memory": MEMORY}
    ours = functools.partial(layer.run, method="step")
    same_program(ours, functional_step(cell), layer.params, carry, X[:, 0], **given)


@each_package
@each_kind
def test_a_cell_module_takes_one_step(package, kind):
    layer = package.named(KINDS[kind][1])
    carry = layer.initialize_carry()
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(carry))
    # Flax asks for carries before the number of features is known.
    same(layer.initialize_carry((B, None)), carry)
    assert layer.module.num_feature_axes == 1
    theirs = functional_step(layer.module.functional_cell)
    given = {"mask": MASK[:, 0], "reset": RESETS[:, 0]}
    same_program(layer.run, theirs, layer.params, carry, X[:, 0], **given)


@each_package
def test_arguments_override_attributes(package):
    options = {"time_major": True, "return_carry": True, "reverse": True}
    layer, plain = package.named("LSTM", **options), package.named("LSTM")
    no = functools.partial(layer.run, **dict.fromkeys(options, False))
    same_program(no, plain.run, layer.params, X)
    given = {"keep_order": True, "seq_lengths": LENGTHS}
    yes = functools.partial(plain.run, **options)
    same_program(layer.run, yes, layer.params, X.swapaxes(0, 1), **given)


@each_package
def test_options_of_the_scan(package):
    """The derivative shows how the backward pass runs."""
    options = functional.ScanOptions(backward="autodiff", unroll=2)
    layer = package.named("GRU", options=options, return_carry=True)
    runs = layer.run, functional_run(layer.module.functional_cell, options=options)
    of_both = [jax.grad(lambda *a, run=run: loss_of(run(*a))) for run in runs]
    same_program(*of_both, layer.params, X)


DTYPES = ("bfloat16", "float32"), ("float32", "bfloat16")


@each_package
@pytest.mark.parametrize(("dtype", "param_dtype"), DTYPES)
def test_dtypes(package, dtype, param_dtype):
    """Kernels are prepared in the wider of both dtypes, and then rounded."""
    given = {"dtype": jnp.dtype(dtype), "param_dtype": param_dtype}
    layer = package.named("LSTM", return_carry=True, **given)
    assert dtypes(layer.params) == {param_dtype}

    def theirs(params, x):
        params = jax.tree.map(lambda a: a.astype(jnp.float32), params)
        cell = layer.module.functional_cell
        return functional.unroll(cell, params, x.astype(dtype), dtype=dtype)[:2]

    same_program(layer.run, theirs, layer.params, X)
    carry, y = jax.eval_shape(layer.apply, X.astype(int))
    # A carry of bfloat16 would forget, and `lax.scan` over steps keeps its dtype.
    assert (dtypes(carry), dtypes(y)) == ({"float32"}, {dtype})
    assert dtypes(layer.initialize_carry()) == {"float32"}
    step = functools.partial(layer.apply, method="step")
    assert dtypes(jax.eval_shape(step, carry, X[:, 0])[0]) == {"float32"}


def test_a_narrow_dtype_is_that_of_products():
    """Kernels and inputs are rounded; biases and peepholes, no kernels, are not."""
    cell = functional.LSTMCell(H, "none", peephole=True)
    params, carry = map(drawn, shapes_of(cell, D, rows=B))

    def rounded(a):
        return a.astype(jnp.bfloat16).astype(jnp.float32)

    @jax.jit
    def both(params, carry, x):
        found = functional.step(cell, params, carry, x, dtype=jnp.bfloat16)[0]
        narrow = {name: rounded(params[name]) for name in ("w_x", "w_h")}
        c, h = carry
        carry = c, rounded(h)
        return found, functional.step(cell, params | narrow, carry, rounded(x))[0]

    same(*both(params, carry, X[:, 0]), 1e-6)


@each_package
def test_inputs_that_do_not_fit(package):
    with refused(TypeError, "int32"):
        package.named("GRU").apply(np.ones((B, T, D), int))
    with refused(ValueError, str(D + 1)):
        package.named("GRU").apply(np.ones((B, T, D + 1), np.float32))
    with refused(TypeError, "complex64"):
        package.named("GRU", dtype=jnp.float32).apply(X + 1j)
