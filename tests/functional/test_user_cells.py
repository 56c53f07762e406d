"""Cells that a user writes, here those of the documentation."""

import ast
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.examples import user_cells
from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from lnrepro import functional
from tests import oracle
from tests.functional.programs import CELLS, MEMORY, X, problem, run, same

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


def test_outputs_equal_the_equations(x64):
    x, memory = np.asarray(X, np.float64), np.asarray(MEMORY, np.float64)
    for name in ("projected", "attention"):
        cell = CELLS[name]
        params, _ = problem(cell, jnp.float64)
        numbers = jax.tree.map(np.asarray, params)
        if name == "projected":
            expected = [projected_lstm_oracle(numbers, row) for row in x]
        else:
            pairs = zip(x, memory, strict=True)
            expected = [attention_oracle(numbers, row, m) for row, m in pairs]
        found = run(cell, params, x, memory=memory).outputs
        same(found, np.stack(expected), 1e-10)


# What the library adds: test_unroll.py and test_resets.py test it of these cells, too


def test_any_number_of_batch_axes_of_a_memory():
    cell = CELLS["attention"]
    params, _ = problem(cell)
    batch = run(cell, params, X, memory=MEMORY).outputs
    same(run(cell, params, X[0], memory=MEMORY[0]).outputs, batch[0])
    same(run(cell, params, X[:, None], memory=MEMORY[:, None]).outputs[:, 0], batch)


def test_equal_user_cells_are_equal():
    again = ProjectedLSTMCell(4, 6)
    assert again == CELLS["projected"]
    assert hash(again) == hash(CELLS["projected"])
    assert isinstance(again, functional.Cell)


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
