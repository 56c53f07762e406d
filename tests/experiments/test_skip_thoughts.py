"""Skip-thoughts against its equations in NumPy float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import skip_thoughts as config_file
from experiments.skip_thoughts import model, softmax
from tests import oracle


def small(norm="layer", **sizes):
    config = config_file.get_config("smoke")
    config.norm = norm
    config.model.update(
        {"units": 5, "word_size": 4, "vocabulary": 11, "chunk_rows": 7} | sizes
    )
    return config


def triples(rng, batch=3, steps=4, longest=6, vocabulary=11):
    """A batch of sentences of length 3, padded to `steps`, with their neighbours."""
    made = {"current_length": np.full(batch, 3, np.int32)}
    made["current"] = np.zeros((batch, steps), np.int32)
    made["current"][:, :2] = rng.randint(1, vocabulary, (batch, 2))
    for side in model.SIDES:
        lengths = rng.randint(1, longest + 1, batch).astype(np.int32)
        words = np.zeros((batch, longest), np.int32)
        for row, n in zip(words, lengths, strict=True):
            row[: n - 1] = rng.randint(1, vocabulary, n - 1)
        made |= {side: words, f"{side}_length": lengths}
    return made


# -- the oracle: one sentence, one word, one gate at a time


def oracle_loss(config, params, batch):
    """The summed loss, with the paper's -log(p + 1e-8)."""
    norm, total = config.norm, 0.0
    table, out = params["embedding"], params["output"]
    for i in range(len(batch["current"])):
        vector = np.zeros(config.model.units)
        for word in batch["current"][i, : batch["current_length"][i]]:
            _, vector = oracle.gru_step(
                params["encoder"], norm, None, vector, table[word]
            )
        for name in model.SIDES:
            p = params["decoders"][name]
            h, x = vector, np.zeros(config.model.word_size)
            for word in batch[name][i, : batch[f"{name}_length"][i]]:
                _, h = oracle.gru_step(p, norm, None, h, x)
                a = h @ out["w"] + out["bias"]
                probabilities = np.exp(a - a.max()) / np.exp(a - a.max()).sum()
                total -= np.log(probabilities[word] + 1e-8)
                x = table[word]
    return total


def some_params(net, seed=0):
    """Random parameters in float64. `init` would have to be compiled."""
    rng = np.random.RandomState(seed)
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    return jax.tree.map(lambda s: 0.4 * rng.randn(*s.shape), shapes)


@pytest.mark.parametrize(
    "norm", ["layer", pytest.param("none", marks=pytest.mark.slow)]
)
def test_loss_is_the_equations_in_float64(x64, norm):
    config = small(norm)
    net = model.SkipThoughts(config)
    params, batch = some_params(net), triples(np.random.RandomState(1))
    total, words = jax.jit(net.loss)(params, batch)
    np.testing.assert_allclose(total, oracle_loss(config, params, batch), rtol=1e-11)
    assert words == batch["previous_length"].sum() + batch["next_length"].sum()


def test_chunked_cross_entropy_is_the_whole_one_with_gradients(x64):
    rng = np.random.RandomState(0)
    groups, n, units, vocabulary = 2, 13, 4, 9
    h, w, bias = (
        rng.randn(groups, n, units),
        rng.randn(units, vocabulary),
        rng.randn(vocabulary),
    )
    targets, valid = rng.randint(0, vocabulary, (groups, n)), rng.rand(groups, n) < 0.6

    def whole(h, w, bias):
        p = jax.nn.softmax(h @ w + bias)
        return jnp.sum(
            jnp.where(
                valid,
                -jnp.log(jnp.take_along_axis(p, targets[..., None], -1)[..., 0] + 1e-8),
                0,
            )
        )

    wanted = jax.jit(jax.value_and_grad(whole, (0, 1, 2)))(h, w, bias)
    # What is not valid may be anything.
    h = np.where(valid[..., None], h, np.nan)
    for rows in (4, 50):  # 4 leaves a part chunk, 50 is more than there is
        chunked = jax.value_and_grad(
            lambda *a, rows=rows: softmax.cross_entropy(*a, targets, valid, rows),
            (0, 1, 2),
        )
        found = jax.jit(chunked)(h, w, bias)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert (
        jax.jit(softmax.cross_entropy, static_argnums=5)(
            h, w, bias, targets, np.zeros_like(valid), 4
        )
        == 0
    )
