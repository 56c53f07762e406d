# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own cell
#
# A cell is a frozen dataclass with six short methods. We write a minimal gated unit
# (Zhou et al. 2016) with layer norm, check it against a plain loop, and train it.

# %%
# Install the library from the checkout that this notebook is in.
# %pip install -q ../..

# %%
import dataclasses

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax
from flax import linen as nn

from lnrepro import functional, linen

# %% [markdown]
# ## The cell
#
# The step multiplies by a weight only through `dot(name, v)`. That is what gives it the
# memory-lean backward pass.


# %%
@dataclasses.dataclass(frozen=True)
class MinimalGatedUnit(functional.Cell):
    """Minimal gated unit with layer norm; carry h.

    (f, g) = LN(W_x x_t + W_h h_{t-1}) + b
    h_t = (1 - sigmoid(f)) * h_{t-1} + sigmoid(f) * tanh(g)
    """

    features: int

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters."""
        H = self.features
        key_x, key_h = jax.random.split(key)
        draw_x = jax.nn.initializers.glorot_uniform()
        draw_h = jax.nn.initializers.orthogonal()
        return {
            "w_x": draw_x(key_x, (features_in, 2 * H), dtype),
            "w_h": draw_h(key_h, (H, 2 * H), dtype),
            "gain": jnp.ones(2 * H, dtype),
            "bias": jnp.zeros(2 * H, dtype),
        }

    def initial_carry(self, params, x):
        """Return the carry before the first step."""
        return jnp.zeros((*x.shape[:-1], self.features), x.dtype)

    def prepare(self, params):
        """Separate the weights, which dot multiplies by, from the rest."""
        weights = {"w_x": params["w_x"], "w_h": params["w_h"]}
        rest = {"gain": params["gain"], "bias": params["bias"]}
        return functional.Prepared(weights, rest)

    def step(self, dot, params, carry, x, context):
        """Take one step; return the new carry and no statistics."""
        a = functional.layer_norm(dot("w_x", x) + dot("w_h", carry), params["gain"])
        f, g = jnp.split(a + params["bias"], 2, axis=-1)
        f = jax.nn.sigmoid(f)
        return (1 - f) * carry + f * jnp.tanh(g), None

    def output(self, carry):
        """Return what the layer shows of the carry."""
        return carry


# %% [markdown]
# ## Check it against a plain loop
#
# Outputs and gradients must agree with the equations, written as one would on paper.

# %%
cell = MinimalGatedUnit(16)
params = cell.init(jax.random.key(0), features_in=4)
x = jax.random.normal(jax.random.key(1), (8, 12, 4))  # [B, T, D]


def plain(params, x):
    """Return the last output by a loop over time."""
    h = jnp.zeros((len(x), 16))
    for t in range(x.shape[1]):
        a = x[:, t] @ params["w_x"] + h @ params["w_h"]
        mean, deviation = a.mean(-1, keepdims=True), a.std(-1, keepdims=True)
        a = params["gain"] * (a - mean) / deviation + params["bias"]
        f = jax.nn.sigmoid(a[:, :16])
        h = (1 - f) * h + f * jnp.tanh(a[:, 16:])
    return h


def ours(params, x):
    """Return the last output by the library."""
    return functional.unroll(cell, params, x).carry


assert jnp.allclose(ours(params, x), plain(params, x), atol=1e-4)
gradients = [
    jax.grad(lambda p, f=f: (f(p, x) ** 2).sum())(params) for f in (ours, plain)
]
for name in params:
    difference = jnp.abs(gradients[0][name] - gradients[1][name]).max()
    print(f"{name:5} largest difference of the gradients {difference:.1e}")
    assert jnp.allclose(gradients[0][name], gradients[1][name], rtol=1e-2, atol=1e-3)

# %% [markdown]
# ## Use it as a module
#
# Two layers in one scan, with zoneout and padding. The task: the sum of the marked
# numbers of a sequence (Hochreiter and Schmidhuber 1997).


# %%
def batch(key, rows=64, steps=20):
    """Return x [B, T, 2], numbers and marks, and the sum of the two marked numbers."""
    number_key, place_key = jax.random.split(key)
    numbers = jax.random.uniform(number_key, (rows, steps))
    places = jax.vmap(lambda k: jax.random.permutation(k, steps)[:2])(
        jax.random.split(place_key, rows)
    )
    marks = jax.nn.one_hot(places, steps).sum(1)
    return jnp.stack([numbers, marks], -1), (numbers * marks).sum(-1)


class Adder(nn.Module):
    """Two layers of our cell and a linear layer."""

    @nn.compact
    def __call__(self, x, deterministic):
        """Return the guess [B]."""
        layers = functional.stack(MinimalGatedUnit(32), MinimalGatedUnit(32))
        layers = functional.zoneout(layers, rate_h=0.02)
        y = linen.RNN(layers)(x, deterministic=deterministic)
        return nn.Dense(1)(y[:, -1])[:, 0]


adder = Adder()
adam = optax.adam(3e-3)
x, _ = batch(jax.random.key(0))
variables = adder.init(jax.random.key(1), x, deterministic=True)
state = adam.init(variables)


@jax.jit
def train_step(variables, state, key):
    """Take one step; return the new variables, the state and the error."""
    data_key, noise_key = jax.random.split(key)
    x, total = batch(data_key)

    def loss(variables):
        guess = adder.apply(
            variables, x, deterministic=False, rngs={"dropout": noise_key}
        )
        return ((guess - total) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(variables)
    updates, state = adam.update(gradients, state)
    return optax.apply_updates(variables, updates), state, value


errors = []
for key in jax.random.split(jax.random.key(2), 600):
    variables, state, value = train_step(variables, state, key)
    errors.append(float(value))
print(f"error at the start {errors[0]:.3f}, at the end {errors[-1]:.4f}")

# %%
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.semilogy(errors)
ax.axhline(1 / 6, color="grey", linestyle="--", label="always guess the mean")
ax.set(xlabel="step", ylabel="squared error")
ax.legend()
plt.show()
