# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # LN-LSTM in ten minutes
#
# An LSTM reads handwritten digits in 16 steps, half a row of pixels in each. We train
# it without a norm, with RMS norm and with layer norm, and look at the curves. The
# digits are those inside scikit-learn, so nothing is downloaded but the library.

# %%
# Install the library from the checkout that this notebook is in.
# %pip install -q ../..

# %%
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

from lnrepro import nnx as lnnx

# %% [markdown]
# ## Data
#
# 1,437 digits for training and 360 for the test, [N, 16 steps, 4 pixels].

# %%
digits = load_digits()
x = (digits.data / 16.0).astype(np.float32).reshape(-1, 16, 4)
y = digits.target
order = np.random.default_rng(0).permutation(len(x))
train, test = order[:1437], order[1437:]

# %% [markdown]
# ## Network
#
# `norm` is the only difference between the three.


# %%
class Classifier(nnx.Module):
    """An LSTM over the pixels, and a linear layer on its last output."""

    def __init__(self, norm, rngs):
        self.lstm = lnnx.LSTM(4, 48, norm=norm, rngs=rngs)
        self.linear = nnx.Linear(48, 10, rngs=rngs)

    def __call__(self, x):
        """Return the logits [B, 10] of images [B, 16, 4]."""
        return self.linear(self.lstm(x)[:, -1])


# %% [markdown]
# ## Training

# %%
EPOCHS = 30
BATCH = 64


@nnx.jit
def train_step(model, optimizer, x, y):
    """Take one step of Adam."""

    def loss(model):
        logits = model(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


@nnx.jit
def error(model, x, y):
    """Return the share of wrong answers."""
    return (model(x).argmax(-1) != y).mean()


def curve(norm):
    """Train one network; return the test error after each epoch."""
    model = Classifier(norm, nnx.Rngs(0))
    adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))
    optimizer = nnx.Optimizer(model, adam, wrt=nnx.Param)
    shuffle = np.random.default_rng(0)
    errors = []
    for _ in range(EPOCHS):
        shuffled = shuffle.permutation(train)
        for start in range(0, len(train) - BATCH + 1, BATCH):
            rows = shuffled[start : start + BATCH]
            train_step(model, optimizer, x[rows], y[rows])
        errors.append(float(error(model, x[test], y[test])))
    return errors


# %%
curves = {}
for norm in ("none", "rms", "layer"):
    curves[norm] = curve(norm)
    print(f"{norm:6} test error {curves[norm][-1]:.3f}")

# %% [markdown]
# ## Curves

# %%
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for norm, errors in curves.items():
    ax.plot(range(1, EPOCHS + 1), errors, label=norm)
ax.set(xlabel="epoch", ylabel="test error", ylim=(0, 1))
ax.legend()
plt.show()

# %% [markdown]
# With a norm the error falls faster in the first epochs. On this small set it then ends
# higher than without one. One seed on a toy task proves nothing about norms: the
# pages of the experiments have the paper's tasks. docs/cells.md has what else a layer
# can do.
