"""The recurrent modules live with nnx's functions of modules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lnrepro import functional
from lnrepro.nnx import (
    GRU,
    LSTM,
    RNN,
    Bidirectional,
    GRUCell,
    Stack,
)
from tests.nnx.common import (
    LENGTHS,
    B,
    D,
    H,
    T,
    X,
    differ,
    each_sequence,
    normal,
    params_of,
    same,
    two_layers,
    zoneout,
)


def make_noisy_model():
    rngs = nnx.Rngs(0)
    return Stack(
        [
            RNN(
                zoneout(functional.LSTMCell(np.int64(H), "layer", scale_init=normal)),
                in_features=D,
                rngs=rngs,
            ),
            Bidirectional(
                RNN(GRUCell(H, H, norm="batch", rngs=rngs), max_steps=T),
                RNN(functional.SimpleCell(H), in_features=H, rngs=rngs),
            ),
        ]
    )


def test_equal_modules_have_equal_graph_definitions():
    online, target = make_noisy_model(), make_noisy_model()
    assert nnx.graphdef(online) == nnx.graphdef(target)
    assert hash(nnx.graphdef(online)) == hash(nnx.graphdef(target))
    mean = jax.tree.map(lambda a, b: (a + b) / 2, *map(params_of, (online, target)))
    same(mean, params_of(online), 0)
    traces = 0

    @nnx.jit
    def run(module, x):
        nonlocal traces
        traces += 1
        return module(x)

    run(online, X)
    run(target, X)
    assert traces == 1


@each_sequence
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_initialisers_are_not_in_the_graph_definition(sequence, norm):
    names = ("kernel_init", "recurrent_kernel_init", "bias_init", "scale_init")
    ones = dict.fromkeys(names, nnx.initializers.ones)
    modules = [
        sequence(D, H, norm=norm, max_steps=T, rngs=nnx.Rngs(0), **options)
        for options in ({}, ones)
    ]
    assert nnx.graphdef(modules[0]) == nnx.graphdef(modules[1])


@each_sequence
def test_target_network(sequence):
    online = sequence(D, H, rngs=nnx.Rngs(0))
    target = sequence(D, H, rngs=nnx.Rngs(1))
    mean = jax.tree.map(lambda a, b: (a + b) / 2, online, target)
    expected = jax.tree.map(
        lambda a, b: (a + b) / 2, params_of(online), params_of(target)
    )
    same(params_of(mean), expected)
    assert differ(mean(X), online(X))


@pytest.mark.slow
def test_split_and_merge():
    module = make_noisy_model()
    module(X)
    graphdef, state = nnx.split(module)
    copy = nnx.merge(graphdef, jax.tree.map(jnp.copy, state))
    same(copy(X), module(X), 0)
    same(nnx.state(copy, nnx.BatchStat), nnx.state(module, nnx.BatchStat), 0)
    pure = nnx.to_pure_dict(nnx.state(module))
    other = make_noisy_model()
    fresh = nnx.state(other)
    nnx.replace_by_pure_dict(fresh, pure)
    nnx.update(other, fresh)
    same(other(X), module(X), 0)


def test_features_of_numpy():
    for features in (np.int64(6), np.int32(6)):
        module = LSTM(np.int64(D), features, rngs=nnx.Rngs(0))
        assert module(X).shape == (B, T, 6)
        expected = nnx.graphdef(LSTM(D, 6, rngs=nnx.Rngs(0)))
        assert nnx.graphdef(module) == expected


@pytest.mark.slow
def test_ensembles_under_vmap():
    @nnx.split_rngs(splits=3)
    @nnx.vmap
    def make(rngs):
        return GRU(D, H, rngs=rngs)

    ensemble = make(nnx.Rngs(0))
    y = nnx.vmap(lambda module, x: module(x), in_axes=(0, None))(ensemble, X)
    assert y.shape == (3, B, T, H)
    assert differ(y[0], y[1])
    graphdef, state = nnx.split(ensemble)
    first = nnx.merge(graphdef, jax.tree.map(lambda a: a[0], state))
    same(first(X), y[0])


@pytest.mark.slow
def test_training_under_jit_lowers_the_loss():
    module = Stack(two_layers())
    target = jax.random.normal(jax.random.key(2), (B, T, 5)) / 4

    @nnx.jit
    def train_step(module):
        def loss(module):
            error = module(X, seq_lengths=LENGTHS) - target
            return jnp.mean(jnp.square(error))

        value, gradient = nnx.value_and_grad(loss)(module)
        params = nnx.state(module, nnx.Param)
        nnx.update(module, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient))
        return value

    losses = [train_step(module) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


def test_copies_are_independent():
    module = make_noisy_model()
    copy = nnx.clone(module)
    same(copy(X), module(X), 0)
    copy.layers[0].cell.gain_x[...] *= 2
    assert differ(copy(X), module(X))


def test_tabulate():
    table = nnx.tabulate(make_noisy_model(), X, compute_flops=True)
    assert "RNN" in table
    assert "parameter_module" not in table


def test_constructed_abstractly():
    module = nnx.eval_shape(lambda: make_noisy_model())
    expected = jax.tree.map(lambda a: (a.shape, a.dtype), params_of(make_noisy_model()))
    assert jax.tree.map(lambda a: (a.shape, a.dtype), params_of(module)) == expected
