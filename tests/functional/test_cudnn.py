"""The LSTM through cuDNN, against jax.experimental.rnn's own reference.

The reference reads the flat weights in cuDNN's order. It stands in for cuDNN, which
needs a GPU; where there is one, cuDNN itself is compared too.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import rnn

from lnrepro.functional import LSTMCell, ScanOptions, unroll
from lnrepro.functional.fast import cudnn

CUDNN = ScanOptions(cudnn=True)


def reference(x, h, c, flat, lengths):
    sizes = (x.shape[-1], h.shape[-1], 1)
    unpacked = rnn.unpack_lstm_weights(flat, *sizes, False)
    return rnn.lstm_ref(x, h, c, *unpacked, lengths, *sizes, 0.0, False)


@pytest.fixture
def calls(monkeypatch):
    """The shapes that the stand-in was called with."""
    if cudnn.is_available():
        return None
    seen = []

    def run(x, *rest):
        seen.append(x.shape)
        return reference(x, *rest)

    monkeypatch.setattr(cudnn, "is_available", lambda: True)
    monkeypatch.setattr(cudnn, "_run", run)
    return seen


def setting(batch=(3,), use_bias=True):
    cell = LSTMCell(5, use_bias=use_bias)
    params = cell.init(jax.random.key(0), 4)
    params = jax.tree.map(lambda a: a + 0.1, params)
    x = jax.random.normal(jax.random.key(1), (*batch, 7, 4))
    carry = jax.random.normal(jax.random.key(2), (2, *batch, 5))
    return cell, params, x, (carry[0], carry[1])


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("use_bias", [True, False])
def test_values_and_gradients_are_those_of_the_scan(calls, batch, use_bias):
    cell, params, x, carry = setting(batch, use_bias)
    w = jax.random.normal(jax.random.key(3), (*batch, 7, 5))

    def loss(params, x, carry, options):
        result = unroll(cell, params, x, initial_carry=carry, options=options)
        (c, h), outputs = result.carry, result.outputs
        return jnp.sum(w * outputs) + jnp.sum(c**2) + jnp.sum(h**3), result

    def both(options):
        grads, result = jax.grad(loss, (0, 1, 2), has_aux=True)(
            params, x, carry, options
        )
        return grads, result.carry, result.outputs

    ours, theirs = both(None), both(CUDNN)
    assert calls is None or calls, "the stand-in was not called"
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5),
        ours,
        theirs,
    )


def test_lengths_and_time_major(calls):
    cell, params, x, carry = setting()
    x_by_time = jnp.moveaxis(x, 1, 0).at[4:, 1].set(jnp.nan)
    for lengths in ([7, 4, 1], [7, 4, 0]):
        results = [
            unroll(
                cell,
                params,
                x_by_time,
                initial_carry=carry,
                seq_lengths=jnp.array(lengths),
                time_major=True,
                options=options,
            )
            for options in (None, CUDNN)
        ]
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            *results,
        )
    assert calls is None or len(calls) == 2


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        (LSTMCell(5, "layer"), {}),
        (LSTMCell(5, peephole=True), {}),
        (LSTMCell(5, activation_fn=jax.nn.relu), {}),
        (LSTMCell(5, gradient_clip=1.0), {}),
        (LSTMCell(5), {"mask": jnp.ones((3, 7), bool)}),
        (LSTMCell(5), {"resets": jnp.zeros((3, 7), bool)}),
        (LSTMCell(5), {"reverse": True}),
        (LSTMCell(5), {"return_carries": True}),
    ],
)
def test_the_scan_runs_what_cudnn_cannot(calls, cell, options):
    params = cell.init(jax.random.key(0), 4)
    x = jax.random.normal(jax.random.key(1), (3, 7, 4))
    with_option = unroll(cell, params, x, options=CUDNN, **options)
    without = unroll(cell, params, x, **options)
    assert not calls
    jax.tree.map(np.testing.assert_array_equal, with_option, without)


def test_float64_and_an_empty_sequence_take_the_scan(calls):
    cell, params, x, _ = setting()
    with jax.enable_x64(True):
        unroll(cell, params, x.astype(jnp.float64), options=CUDNN)
    unroll(cell, params, x[:, :0], options=CUDNN)
    assert not calls


def test_without_a_gpu_the_option_changes_nothing():
    cell, params, x, _ = setting()
    if cudnn.is_available():
        pytest.skip("there is a GPU")
    jax.tree.map(
        np.testing.assert_array_equal,
        unroll(cell, params, x, options=CUDNN),
        unroll(cell, params, x),
    )
