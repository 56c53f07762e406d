"""Cells that a user writes, here those of the documentation, have what ours have.

The memory-lean backward pass, masks, resets, direction, streaming, zoneout and stacks.
"""

import ast
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.examples import user_cells
from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from lnrepro import functional
from lnrepro.functional import (
    LSTMCell,
    ScanOptions,
    bidirectional,
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)
from tests import oracle

B, T, D, S, E = 3, 6, 3, 4, 5
AUTODIFF = ScanOptions(backward="autodiff")
CELLS = [ProjectedLSTMCell(features=4, hidden=6), AttentionCell(4, memory_features=E)]
RNG = np.random.default_rng(0)
X, MEMORY = RNG.standard_normal((B, T, D)), RNG.standard_normal((B, S, E))
each_cell = pytest.mark.parametrize("cell", CELLS, ids=lambda c: type(c).__name__)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def same(a, b, tolerance=1e-10):
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance),
        a,
        b,
    )


def init(cell):
    """Parameters that are all away from their starting values."""
    rng = np.random.default_rng(1)
    params = cell.init(jax.random.key(0), D, jnp.float64)
    return jax.tree.map(lambda a: a + 0.2 * rng.standard_normal(a.shape), params)


run = jax.jit(unroll, static_argnums=0)


# The equations


def projected_lstm_oracle(p, x):
    """The equations of ProjectedLSTMCell in NumPy, for one sequence [T, D]."""
    c, h = np.zeros(p["w_p"].shape[0]), np.zeros(p["w_p"].shape[1])
    outputs = []
    for x_t in x:
        a = oracle.layer_norm(h @ p["w_h"], p["gain_h"]) + p["bias"]
        a = a + oracle.layer_norm(x_t @ p["w_x"], p["gain_x"])
        f, i, o, g = np.split(a, 4)
        c = oracle.sigmoid(f) * c + oracle.sigmoid(i) * np.tanh(g)
        m = oracle.sigmoid(o) * np.tanh(oracle.layer_norm(c, p["gain_c"]))
        h = m @ p["w_p"]
        outputs.append(h)
    return np.stack(outputs)


def attention_oracle(p, x, memory):
    """The equations of AttentionCell in NumPy, for one sequence [T, D]."""
    h, outputs = np.zeros(p["w_h"].shape[0]), []
    for x_t in x:
        a = oracle.layer_norm(h @ p["w_h"] + x_t @ p["w_x"], p["gain"])
        s = np.tanh(a + p["bias"])
        weights = np.exp(memory @ (s @ p["w_q"]))
        read = weights / weights.sum() @ memory
        h = np.tanh(s + read @ p["w_r"])
        outputs.append(h)
    return np.stack(outputs)


def test_outputs_equal_the_equations():
    projected, attention = CELLS
    params = jax.tree.map(np.asarray, init(projected))
    expected = np.stack([projected_lstm_oracle(params, x) for x in X])
    same(run(projected, params, X).outputs, expected)
    params = jax.tree.map(np.asarray, init(attention))
    expected = [attention_oracle(params, x, m) for x, m in zip(X, MEMORY, strict=True)]
    same(run(attention, params, X, memory=MEMORY).outputs, np.stack(expected))


# What the library adds


def check_gradients(cell, params, **arguments):
    """The lean gradients equal JAX's own; return them."""

    def gradients(options):
        def loss(params, x, memory, carry):
            result = unroll(
                cell,
                params,
                x,
                memory=memory,
                initial_carry=carry,
                options=options,
                **arguments,
            )
            return sum(jnp.sum(jnp.sin(a)) for a in jax.tree.leaves(result))

        carry = cell.initial_carry(params, X[:, 0])
        carry = jax.tree.map(lambda c: c + 0.3, carry)
        gradient = jax.jit(jax.grad(loss, (0, 1, 2, 3)))
        return gradient(params, X, MEMORY, carry)

    lean = gradients(ScanOptions())
    same(lean, gradients(AUTODIFF))
    return lean


@each_cell
def test_lean_backward_equals_autodiff(cell):
    lean = check_gradients(cell, init(cell))
    reads_memory = isinstance(cell, AttentionCell)
    assert np.any(lean[2]) == reads_memory


@pytest.mark.slow
@each_cell
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_with_lengths_and_resets(cell, reverse):
    check_gradients(
        cell,
        init(cell),
        seq_lengths=jnp.array([6, 0, 4]),
        resets=jnp.arange(T) == jnp.array([[2], [0], [1]]),
        reverse=reverse,
        return_carries=True,
    )


@each_cell
@pytest.mark.parametrize(
    "options",
    [
        ScanOptions(save="recurrent", platform="gpu"),
        ScanOptions(save="carries", chunk=2),
        pytest.param(ScanOptions(platform="gpu", chunk=3), marks=pytest.mark.slow),
        pytest.param(ScanOptions(unroll=2), marks=pytest.mark.slow),
    ],
)
def test_options_change_no_gradient(cell, options):
    params = init(cell)

    def gradients(options):
        def loss(params, memory):
            result = unroll(cell, params, X, memory=memory, options=options)
            return jnp.sum(jnp.sin(result.outputs))

        return jax.jit(jax.grad(loss, (0, 1)))(params, MEMORY)

    same(gradients(options), gradients(AUTODIFF))


@each_cell
def test_padding_changes_nothing(cell):
    params = init(cell)
    bad = np.where(np.arange(T)[:, None] < 4, X, np.nan)
    lengths = jnp.full(B, 4)
    result = run(cell, params, bad, seq_lengths=lengths, memory=MEMORY)
    short = run(cell, params, X[:, :4], memory=MEMORY)
    same(result.carry, short.carry)
    same(result.outputs[:, :4], short.outputs)
    assert (result.outputs[:, 4:] == 0).all()
    mask = jnp.arange(T) < 4
    masked = run(cell, params, bad, mask=jnp.broadcast_to(mask, (B, T)), memory=MEMORY)
    same(result, masked)


@each_cell
def test_resets_equal_separate_sequences(cell):
    params = init(cell)
    resets = jnp.broadcast_to(jnp.arange(T) == 3, (B, T))
    stored = cell.initial_carry(params, X[:, 0])
    stored = jax.tree.map(lambda c: c + 0.5, stored)
    whole = run(
        cell, params, X, initial_carry=stored, resets=resets, memory=MEMORY
    ).outputs
    first = run(cell, params, X[:, :3], initial_carry=stored, memory=MEMORY).outputs
    second = run(cell, params, X[:, 3:], memory=MEMORY).outputs
    same(whole, jnp.concatenate([first, second], 1))


@each_cell
def test_reverse_equals_the_reversed_sequence(cell):
    params = init(cell)
    forward = run(cell, params, X[:, ::-1], memory=MEMORY)
    same(forward, unroll(cell, params, X, reverse=True, memory=MEMORY))
    both = bidirectional(cell, cell, (params, params), X, memory=MEMORY)
    same(both.outputs[..., cell.features :], forward.outputs[:, ::-1])


@each_cell
def test_streaming_equals_the_scan(cell):
    params = init(cell)
    whole = run(cell, params, X, memory=MEMORY)
    one_step = jax.jit(step, static_argnums=0)
    carry = cell.initial_carry(params, X[:, 0])
    for t in range(T):
        carry, y = one_step(cell, params, carry, X[:, t], memory=MEMORY)
        same(y, whole.outputs[:, t])
    same(carry, whole.carry)
    start = cell.initial_carry(params, X[:, 0])
    again, _ = step(
        cell, params, carry, X[:, 0], reset=jnp.ones(B, bool), memory=MEMORY
    )
    same(again, step(cell, params, start, X[:, 0], memory=MEMORY)[0])


@each_cell
def test_any_number_of_batch_axes(cell):
    params = init(cell)
    batch = run(cell, params, X, memory=MEMORY).outputs
    same(run(cell, params, X[0], memory=MEMORY[0]).outputs, batch[0])
    same(run(cell, params, X[:, None], memory=MEMORY[:, None]).outputs[:, 0], batch)


@pytest.mark.slow
@each_cell
def test_zoneout(cell):
    plain_params = init(cell)
    noisy = zoneout(cell, 0.4, 0.3)
    carry = jax.tree.map(lambda c: c + 0.5, cell.initial_carry(plain_params, X[:, 0]))
    new, _ = step(cell, plain_params, carry, X[:, 0], memory=MEMORY)
    mixed, _ = step(noisy, plain_params, carry, X[:, 0], memory=MEMORY)
    # The last part of a carry is h, those before it are memory cells.
    old_parts, new_parts = jax.tree.leaves(carry), jax.tree.leaves(new)
    rates = [0.4, 0.3][-len(old_parts) :]
    expected = [
        rate * old + (1 - rate) * fresh
        for rate, old, fresh in zip(rates, old_parts, new_parts, strict=True)
    ]
    same(jax.tree.leaves(mixed), expected)
    check_gradients(noisy, plain_params, key=jax.random.key(3))


@pytest.mark.slow
@each_cell
def test_variational_dropout(cell):
    noisy = variational_dropout(cell, 0.3, 0.3)
    params = init(cell)
    check_gradients(noisy, params, key=jax.random.key(3))
    quiet = run(noisy, params, X, memory=MEMORY)
    same(quiet, run(cell, params, X, memory=MEMORY))
    loud = run(noisy, params, X, memory=MEMORY, key=jax.random.key(3))
    assert np.abs(loud.outputs - quiet.outputs).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("skip", ["none", "graves", "residual"])
def test_stack(skip):
    cell = stack(*CELLS, LSTMCell(4, "layer"), skip=skip)
    params = init(cell)
    check_gradients(cell, params, seq_lengths=jnp.array([6, 0, 4]))
    if skip == "none":
        below = X
        for one, one_params in zip(cell.cells, params, strict=True):
            below = run(one, one_params, below, memory=MEMORY).outputs
        same(run(cell, params, X, memory=MEMORY).outputs, below)


@pytest.mark.slow
@each_cell
def test_second_derivatives(cell):
    params = init(cell)

    def hessian_times_vector(options):
        def loss(params):
            result = unroll(cell, params, X[:, :3], memory=MEMORY, options=options)
            return jnp.sum(jnp.sin(result.outputs))

        return jax.jvp(jax.grad(loss), (params,), (jax.tree.map(jnp.cos, params),))[1]

    lean, plain = (
        jax.jit(lambda o=options: hessian_times_vector(o))()
        for options in (ScanOptions(), AUTODIFF)
    )
    same(lean, plain, 1e-9)


@each_cell
def test_vmap_and_low_precision(cell):
    params = init(cell)
    of_each = jax.vmap(lambda x, m: unroll(cell, params, x, memory=m).outputs)
    same(of_each(X, MEMORY), run(cell, params, X, memory=MEMORY).outputs)
    narrow = jax.tree.map(lambda a: a.astype(jnp.bfloat16), params)
    x, memory = jnp.asarray(X, jnp.bfloat16), jnp.asarray(MEMORY, jnp.bfloat16)
    assert run(cell, narrow, x, memory=memory).outputs.dtype == jnp.bfloat16


def test_equal_user_cells_are_equal():
    assert ProjectedLSTMCell(4, 6) == CELLS[0]
    assert hash(AttentionCell(4, E)) == hash(CELLS[1])
    assert isinstance(CELLS[0], functional.Cell)


@pytest.mark.parametrize("make", [ProjectedLSTMCell, AttentionCell])
def test_they_take_at_most_40_lines(make):
    """Lines of code, without blank lines and docstrings."""
    lines = {
        number
        for number, line in enumerate(inspect.getsource(make).splitlines(), 1)
        if line.strip()
    }
    for node in ast.walk(ast.parse(inspect.getsource(make))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, docstring.end_lineno + 1))
    assert len(lines) <= 40


def test_an_abstract_method_that_is_missing_is_named():
    class Empty(functional.Cell):
        features = 3

    with pytest.raises(TypeError, match="Empty does not define"):
        unroll(Empty(), {}, X)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda new: new, "must return a pair"),
        (lambda new: ((new, new), None), "returned a carry PyTreeDef"),
        (lambda new: (new[0], None), r"shapes \[\(4,\)\], but initial_carry returns"),
    ],
)
def test_a_step_with_a_wrong_result_is_named(change, says):
    class Wrong(functional.SimpleCell):
        def step(self, dot, params, carry, x_proj, context):
            return change(carry)

    cell = Wrong(4, norm="none")
    params = cell.init(jax.random.key(0), 3)
    carry, x = jnp.zeros((2, 4)), jnp.ones((2, 3))
    with pytest.raises(TypeError, match=rf"Wrong.*{says}"):
        functional.step(cell, params, carry, x)
    with pytest.raises(TypeError, match=r"Wrong\.step"):
        functional.unroll(cell, params, x[None])


def test_the_example_imports_public_names_only():
    source = inspect.getsource(user_cells)
    imports = [line for line in source.splitlines() if "import" in line]
    assert "from lnrepro import functional" in imports
    assert not [line for line in imports if "lnrepro." in line]
    names = {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "functional"
    }
    assert names <= set(functional.__all__)
