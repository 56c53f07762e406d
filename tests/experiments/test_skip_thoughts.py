"""Skip-thoughts against its equations in NumPy float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.skip_thoughts import model, softmax
from tests import oracle
from tests.experiments.small import config_of, random_params


def triples(batch=3, steps=4, longest=6, vocabulary=11):
    """Sentences of length 3 with their neighbours, and any words behind their ends."""
    rng = np.random.RandomState(1)
    made = {"current_length": np.full(batch, 3)}
    made["current"] = rng.randint(1, vocabulary, (batch, steps))
    made["current"][:, 2] = 0
    for side in model.SIDES:
        lengths = rng.randint(1, longest + 1, batch)
        words = rng.randint(1, vocabulary, (batch, longest))
        words[np.arange(batch), lengths - 1] = 0
        made |= {side: words, f"{side}_length": lengths}
    return made


def oracle_loss(norm, params, batch):
    """The sum of -log(p + 1e-8), one sentence and one word at a time."""
    table, out, total = params["embedding"], params["output"], 0.0
    for i in range(len(batch["current"])):
        vector = np.zeros(5)
        for word in batch["current"][i, : batch["current_length"][i]]:
            x = table[word]
            _, vector = oracle.gru_step(params["encoder"], norm, None, vector, x)
        for side in model.SIDES:
            h, x = vector, np.zeros(4)
            for word in batch[side][i, : batch[f"{side}_length"][i]]:
                _, h = oracle.gru_step(params["decoders"][side], norm, None, h, x)
                powers = np.exp(h @ out["w"] + out["bias"])
                total -= np.log(powers[word] / powers.sum() + 1e-8)
                x = table[word]
    return total


@pytest.mark.parametrize(
    "norm", ["layer", pytest.param("none", marks=pytest.mark.slow)]
)
def test_loss_is_the_equations_in_float64(x64, norm):
    sizes = {"units": 5, "word_size": 4, "vocabulary": 11, "chunk_rows": 7}
    changes = {f"model.{name}": size for name, size in sizes.items()}
    net = model.SkipThoughts(config_of("skip_thoughts", norm=norm, **changes))
    params, batch = random_params(net.init), triples()
    total, words = jax.jit(net.loss)(params, batch)
    np.testing.assert_allclose(total, oracle_loss(norm, params, batch), rtol=1e-11)
    assert words == batch["previous_length"].sum() + batch["next_length"].sum()


def test_chunked_cross_entropy_is_the_whole_one_with_gradients(x64):
    rng = np.random.RandomState(0)
    h, w, bias = rng.randn(2, 13, 4), rng.randn(4, 9), rng.randn(9)
    targets, valid = rng.randint(0, 9, (2, 13)), rng.rand(2, 13) < 0.6

    def whole(h, w, bias):
        p = jax.nn.softmax(h @ w + bias)
        p = jnp.take_along_axis(p, targets[..., None], -1)[..., 0]
        return jnp.sum(jnp.where(valid, -jnp.log(p + 1e-8), 0))

    wanted = jax.jit(jax.value_and_grad(whole, (0, 1, 2)))(h, w, bias)
    # What is not valid may be anything.
    h = np.where(valid[..., None], h, np.nan)
    chunked = jax.value_and_grad(softmax.cross_entropy, (0, 1, 2))
    chunked = jax.jit(chunked, static_argnums=5)
    for rows in (4, 50):  # 4 leaves a part chunk, 50 is more than there is
        found = chunked(h, w, bias, targets, valid, rows)
        for a, b in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert chunked(h, w, bias, targets, np.zeros_like(valid), 4)[0] == 0
