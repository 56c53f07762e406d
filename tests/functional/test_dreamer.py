"""Dreamer's cells against their equations, in the layout of Dreamer's own weights.

The equations here are written from the publications alone, with one concatenated
product, as Dreamer has it. Parameters reach them through `lnrepro.convert`.

Sources: Hafner et al. 2021 (DreamerV2), the recurrent cell of the world model; Hafner
et al. 2023 (DreamerV3), the sequence model with block-diagonal weights.

Shape letters: B batch, T time, D input features, H hidden units, G blocks, K units of
an input layer.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import convert, functional
from lnrepro.functional import DreamerBlockGRUCell
from tests.functional.programs import AUTODIFF, drawn, same, shapes_of
from tests.oracle import layer_norm, rms_norm, sigmoid

B, T, D, H = 3, 6, 4, 6
pytestmark = pytest.mark.usefixtures("x64")


def silu(a):
    return a * sigmoid(a)


def mix(reset, candidate, update, h):
    """The gates of all Dreamer cells, from their pre-activations."""
    candidate = np.tanh(sigmoid(reset) * candidate)
    u = sigmoid(update - 1.0)
    return u * candidate + (1 - u) * h


def gru_step(p, h, x, epsilon):
    """DreamerV2: one dense layer of [x; h], one layer norm over 3H, then the gates."""
    a = np.concatenate([x, h], -1) @ p["kernel"] + p.get("bias", 0)
    if "norm/scale" in p:
        a = layer_norm(a, p["norm/scale"], p["norm/bias"], epsilon)
    return mix(*np.split(a, 3, -1), h)


def blocks_of(p, name, a):
    """A block-diagonal linear layer; its kernel is [G, inputs / G, outputs / G]."""
    kernel = p[f"{name}/kernel"]
    outputs = [
        part @ block
        for part, block in zip(np.split(a, len(kernel), -1), kernel, strict=True)
    ]
    return np.concatenate(outputs, -1) + p[f"{name}/bias"]


def block_gru_step(p, h, x, epsilon, sizes):
    """DreamerV3: an input layer of each part, a hidden block layer, then the gates."""
    G = len(p["dyngru/kernel"])
    parts = [h, *np.split(x, np.cumsum(sizes)[:-1], -1)]
    layers = []
    for i, part in enumerate(parts):
        y = part @ p[f"dynin{i}/kernel"] + p[f"dynin{i}/bias"]
        layers.append(silu(rms_norm(y, p[f"dynin{i}norm/scale"], epsilon)))
    # Every block sees its part of h, and all of the input layers.
    together = []
    for h_of_block in np.split(h, G, -1):
        together += [h_of_block, *layers]
    hidden = blocks_of(p, "dynhid0", np.concatenate(together, -1))
    hidden = silu(rms_norm(hidden, p["dynhid0norm/scale"], epsilon))
    a = blocks_of(p, "dyngru", hidden)
    # The split is within each block.
    gates = [np.split(of_block, 3, -1) for of_block in np.split(a, G, -1)]
    reset, candidate, update = (
        np.concatenate([of_block[k] for of_block in gates], -1) for k in range(3)
    )
    return mix(reset, candidate, update, h)


def run(step, p, x, first, **options):
    """A cell over x [B, T, D]; at the steps marked in `first` [B, T] h is zero."""
    dtype = np.result_type(x, *p.values())
    h, outputs = np.zeros((B, H), dtype), []
    for t in range(T):
        h = np.where(first[:, t, None], 0, h)
        h = step(p, h, x[:, t], **options)
        outputs.append(h)
    return np.stack(outputs, 1)


def test_block_gru_equals_the_equations():
    """Outputs, whose gradients are those of JAX."""
    # A list is as good as a tuple.
    sizes = [3, 2]
    cell = DreamerBlockGRUCell(H, blocks=3, hidden_features=5, input_sizes=sizes)
    shapes, _ = shapes_of(cell, sum(sizes), jnp.float64)
    params = drawn(shapes)
    rng = np.random.default_rng(1)
    x, first = rng.standard_normal((B, T, sum(sizes))), rng.random((B, T)) < 0.3

    @jax.jit
    def ours(params, x):
        def loss(options, params, x):
            result = functional.unroll(cell, params, x, resets=first, options=options)
            return jnp.sum(jnp.sin(result.outputs)), result.outputs

        gradient = jax.grad(loss, (1, 2), has_aux=True)
        return gradient(None, params, x), gradient(AUTODIFF, params, x)

    (gradients, outputs), (expected, _) = ours(params, x)
    same(gradients, expected, 1e-10)
    dreamer = convert.dump("dreamer", cell, params)
    theirs = run(block_gru_step, dreamer, x, first, epsilon=1e-4, sizes=sizes)
    same(outputs, theirs, 1e-12)
