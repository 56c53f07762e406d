"""Cells that a user writes, here those of the documentation.

test_unroll.py and test_resets.py test what the library adds to them.
"""

import jax.numpy as jnp
import numpy as np

from lnrepro.functional import LSTMCell
from tests import oracle
from tests.functional.programs import CELLS, MEMORY, X, problem, run, same


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


def test_the_projected_lstm_is_an_lstm_whose_output_is_projected(x64):
    cell, x = CELLS["projected"], X.astype(float)
    params, _ = problem(cell, jnp.float64)
    found = run(cell, params, x).outputs
    w_p = params.pop("w_p")
    zeros = {f"bias_{site}": np.zeros_like(params[f"gain_{site}"]) for site in "xhc"}
    plain = params | zeros | {"w_h": w_p @ params["w_h"]}
    same(found, run(LSTMCell(cell.hidden, "layer"), plain, x).outputs @ w_p, 1e-10)


def test_the_attention_cell_equals_its_equations(x64):
    cell, x, memory = CELLS["attention"], X.astype(float), MEMORY.astype(float)
    params, _ = problem(cell, jnp.float64)
    pairs = zip(x, memory, strict=True)
    expected = [attention_oracle(params, row, m) for row, m in pairs]
    found = run(cell, params, x, memory=memory).outputs
    same(found, np.stack(expected), 1e-10)
