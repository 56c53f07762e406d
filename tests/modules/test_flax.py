"""Our modules and Flax's: equal numbers without a norm, and one inside the other."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lnrepro import convert, functional, linen
from lnrepro import nnx as lnnx
from tests.functional.programs import drawn
from tests.modules.adaptor import (
    KINDS,
    LENGTHS,
    PACKAGES,
    B,
    D,
    H,
    T,
    X,
    differ,
    each_kind_once,
    each_package,
    loss_of,
    same,
)

DIRECTIONS = ({}, {"reverse": True}, {"reverse": True, "keep_order": True})
PLAIN_GRU = functional.GRUCell(H, "none", recurrent_bias=True)
PLAIN_LSTM = functional.LSTMCell(H, "none")
PLAIN_RNN = functional.SimpleCell(H, "none")
PLAIN = [
    (PLAIN_LSTM, nn.LSTMCell),
    (PLAIN_LSTM, nn.OptimizedLSTMCell),
    (PLAIN_GRU, nn.GRUCell),
    (PLAIN_RNN, nn.SimpleCell),
]
PLAIN_NNX = [
    (lnnx.LSTM, nnx.LSTMCell, "nnx", PLAIN_LSTM),
    (lnnx.LSTM, nnx.OptimizedLSTMCell, "nnx_optimized", PLAIN_LSTM),
    (lnnx.GRU, nnx.GRUCell, "nnx", functional.GRUCell(H, "none")),
    (lnnx.SimpleRNN, nnx.SimpleCell, "nnx", PLAIN_RNN),
]


@pytest.mark.parametrize(("cell", "theirs"), PLAIN)
def test_linen_equals_flax_without_a_norm(cell, theirs):
    """Except at padding, where outputs are zero and the carry does not change."""
    rnn, module = nn.RNN(theirs(H)), linen.RNN(cell)
    variables = drawn(jax.eval_shape(rnn.init, jax.random.key(0), X))
    full = np.maximum(LENGTHS, 1)

    @functools.partial(jax.jit, static_argnums=0)
    def runs(module, variables):
        in_lengths = module.apply(variables, X, seq_lengths=full, return_carry=True)
        directions = [
            module.apply(variables, X, return_carry=True, **direction)
            for direction in DIRECTIONS
        ]
        return directions, in_lengths

    params = convert.load("flax", cell, variables["params"]["cell"])
    directions, in_lengths = runs(module, {"params": {"cell": params}})
    expected, (carry, y) = runs(rnn, variables)
    same(directions, expected)
    inside = (np.arange(T) < full[:, None])[..., None]
    same(in_lengths, (carry, np.where(inside, y, 0)))


@pytest.mark.parametrize(("sequence", "theirs", "library", "ours"), PLAIN_NNX)
def test_nnx_equals_flax_without_a_norm(sequence, theirs, library, ours):
    cell = theirs(D, H, bias_init=nnx.initializers.normal(0.1), rngs=nnx.Rngs(0))
    module = sequence(D, H, norm="none", rngs=nnx.Rngs(1))
    params = nnx.to_pure_dict(nnx.state(cell, nnx.Param))
    for name, value in convert.load(library, ours, params).items():
        getattr(module, name)[...] = jnp.asarray(value)

    @nnx.jit
    def runs(module):
        return [module(X, seq_lengths=LENGTHS, **options) for options in DIRECTIONS]

    padding = np.arange(T)[:, None] >= LENGTHS[:, None, None]
    for y, expected in zip(runs(module), runs(nnx.RNN(cell)), strict=True):
        same(y, np.where(padding, 0, expected))


@each_kind_once
def test_flax_s_rnn_runs_our_cells(package, kind):
    package = PACKAGES[package]
    cell = package.named(KINDS[kind][1])
    ours = package.around(cell)
    found = jax.jit(lambda: [ours.apply(X, **a) for a in DIRECTIONS])()
    if package.package is linen:
        rnn, variables = nn.RNN(cell.module), {"params": {"cell": ours.params}}
        run = jax.jit(lambda v: [rnn.apply(v, X, **a) for a in DIRECTIONS])
        expected = run(variables)
    else:
        run = nnx.jit(lambda rnn: [rnn(X, **a) for a in DIRECTIONS])
        expected = run(nnx.RNN(cell.module))
    same(found, expected)


def test_flax_s_bidirectional_and_sequential_run_our_modules():
    cells = functional.LSTMCell(H), functional.GRUCell(H)
    both = nn.Bidirectional(linen.LSTM(H), linen.GRU(H))
    deep = nn.Sequential([linen.LSTM(H), linen.RNN(linen.GRUCell(H))])
    of_both, of_deep = (
        drawn(jax.eval_shape(module.init, jax.random.key(0), X))
        for module in (both, deep)
    )

    @jax.jit
    def found():
        # Flax passes keys for the carries too.
        options = ({}, {"seq_lengths": LENGTHS}, {"init_key": jax.random.key(1)})
        outputs = [both.apply(of_both, X, **how) for how in options]
        return [*outputs, deep.apply(of_deep, X)]

    @jax.jit
    def expected():
        sides, layers = of_both["params"], of_deep["params"]
        sides = sides["forward_rnn"], sides["backward_rnn"]
        layers = layers["layers_0"], layers["layers_1"]["cell"]
        run = functools.partial(functional.bidirectional, *cells, sides, X)
        whole, padded = run().outputs, run(seq_lengths=LENGTHS).outputs
        stack = functional.stack(*cells)
        return [whole, padded, whole, functional.unroll(stack, layers, X).outputs]

    same(found(), expected())


@pytest.mark.parametrize("rngs", [True, nnx.Rngs(0), nnx.RngStream(0, tag="carry")])
def test_flax_s_bidirectional_and_sequential_run_our_nnx_modules(rngs):
    cells = functional.LSTMCell(H), functional.GRUCell(H)
    left = lnnx.LSTM(D, H, rngs=nnx.Rngs(0))
    right = lnnx.RNN(cells[1], in_features=D, rngs=nnx.Rngs(1))
    upper = lnnx.GRU(H, H, rngs=nnx.Rngs(2))

    @nnx.jit
    def found(both, deep):
        return both(X, seq_lengths=LENGTHS), deep(X)

    @nnx.jit
    def expected(left, right, upper):
        params = left.parameters, right.cell.parameters
        sides = functional.bidirectional(*cells, params, X, seq_lengths=LENGTHS)
        return sides.outputs, upper(left(X))

    both = nnx.Bidirectional(left, right, rngs=rngs)
    deep = nnx.Sequential(left, upper)
    same(found(both, deep), expected(left, right, upper))


def test_two_directions_and_a_direct_call_may_share_a_cell():
    class Shared(nn.Module):
        @nn.compact
        def __call__(self, x, sequence_first):
            cell = linen.GRUCell(H)
            both = nn.Bidirectional(linen.RNN(cell), linen.RNN(cell))

            def step(x):
                return cell(jnp.zeros((B, H)), x[:, 0])[1]

            parts = [both, step] if sequence_first else [step, both]
            return [part(x) for part in parts]

    cell = functional.GRUCell(H)

    @jax.jit
    def of_both(params):
        return functional.bidirectional(cell, cell, (params, params), X).outputs

    for sequence_first in (True, False):
        run = functools.partial(Shared().init_with_output, x=X)
        run = jax.jit(functools.partial(run, sequence_first=sequence_first))
        outputs, variables = jax.device_get(run(jax.random.key(0)))
        assert list(variables["params"]) == ["GRUCell_0"]
        sequence, step = outputs if sequence_first else outputs[::-1]
        same(sequence[:, 0, :H], step)
        same(sequence, of_both(variables["params"]["GRUCell_0"]))


# What Flax does with modules


@pytest.mark.parametrize("module", [linen.LSTM(H), linen.RNN(linen.GRUCell(H))])
def test_tabulate(module):
    assert "w_h" in module.tabulate(
        jax.random.key(0), X, compute_flops=True, compute_vjp_flops=True
    )
    named = lnnx.LSTM(D, H, rngs=nnx.Rngs(0))
    table = nnx.tabulate(named, X, compute_flops=True)
    assert "LSTM" in table
    assert "w_h" in table


@pytest.mark.slow
def test_modules_are_static_arguments_of_jit():
    cell = functional.DreamerBlockGRUCell(
        H, hidden_features=2, input_sizes=[1, 2], blocks=2
    )
    sharding = {"w_x": [None, "model"], "bias": ("model",)}
    run = jax.jit(lambda module, v: module.apply(v, X), static_argnums=0)
    for module in (linen.GRU(H, sharding=sharding), linen.RNN(cell)):
        variables = module.init(jax.random.key(0), X)
        same(run(module, variables), module.apply(variables, X))


def test_a_variable_of_nnx_as_the_first_carry():
    module = lnnx.LSTM(D, H, rngs=nnx.Rngs(0))
    carry = tuple(nnx.Param(jnp.full((B, H), value)) for value in (0.1, 0.2))
    arrays = tuple(value[...] for value in carry)

    @nnx.jit
    def run(module, carry):
        return module(X, initial_carry=carry), module.step(carry, X[:, 0])

    same(run(module, carry), run(module, arrays), 0)
    loss = nnx.grad(lambda carry: module(X, initial_carry=carry).sum())
    gradient = nnx.jit(loss)(carry)
    assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient))


def test_linen_under_vmap_scan_and_remat():
    many = nn.vmap(
        linen.GRU,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=None,
        axis_size=2,
    )(H)
    variables = drawn(jax.eval_shape(many.init, jax.random.key(0), X))
    each = [jax.tree.map(lambda a, i=i: a[i], variables) for i in range(2)]
    over_time = nn.scan(
        linen.GRUCell,
        variable_broadcast="params",
        split_rngs={"params": False},
        in_axes=1,
        out_axes=1,
    )(H)

    @jax.jit
    def of_all(variables, each):
        alone = [linen.GRU(H).apply(of_one, X) for of_one in each]
        again = nn.remat(linen.GRU)(H).apply(each[1], X)
        _, scanned = over_time.apply(each[1], jnp.zeros((B, H)), X)
        return many.apply(variables, X), alone, again, scanned

    found, alone, again, scanned = of_all(variables, each)
    same(list(found), alone)
    same((again, scanned), (alone[1], alone[1]))


def make_model():
    rngs = nnx.Rngs(0)
    cell = functional.zoneout(functional.LSTMCell(H), rate_h=0.5)
    layers = functional.stack(functional.GRUCell(H), functional.SimpleCell(H))
    return nnx.Sequential(
        lnnx.RNN(cell, in_features=D, rngs=rngs),
        lnnx.RNN(layers, in_features=H, rngs=rngs),
        lnnx.LSTM(H, H, rngs=rngs),
    )


def params_of(module):
    return nnx.to_pure_dict(nnx.state(module, nnx.Param))


def test_equal_nnx_modules_have_equal_graph_definitions():
    """So that a target network is a tree of the same structure, traced once."""
    online, target = make_model(), make_model()
    assert nnx.graphdef(online) == nnx.graphdef(target)
    assert hash(nnx.graphdef(online)) == hash(nnx.graphdef(target))
    traces = 0

    @nnx.jit
    def run(module, x):
        nonlocal traces
        traces += 1
        return module(x)

    run(online, X)
    run(target, X)
    assert traces == 1
    other = lnnx.GRU(D, H, kernel_init=nnx.initializers.normal(1.0), rngs=nnx.Rngs(1))
    plain = lnnx.GRU(D, H, rngs=nnx.Rngs(0))
    mean = jax.tree.map(lambda a, b: (a + b) / 2, other, plain)
    expected = jax.tree.map(
        lambda a, b: (a + b) / 2, params_of(other), params_of(plain)
    )
    same(params_of(mean), expected)
    assert differ(mean(X), other(X))


def test_nnx_copies_and_abstract_modules():
    module = make_model()
    # The noise as well, since a copy of the stream of keys draws the same.
    run = nnx.jit(lambda module: module(X))
    copy = nnx.clone(module)
    expected = run(module)
    same(run(copy), expected, 0)
    copy = nnx.clone(module)
    copy.layers[2].gain_x[...] *= 2
    assert differ(run(copy), expected)
    copy = make_model()
    graph, state = nnx.split(copy)
    same(run(nnx.merge(graph, jax.tree.map(jnp.copy, state))), expected, 0)
    abstract = params_of(nnx.eval_shape(make_model))

    def kinds(tree):
        return jax.tree.map(lambda a: (a.shape, a.dtype), tree)

    assert kinds(abstract) == kinds(params_of(module))


@pytest.mark.slow
def test_ensembles_of_nnx_under_vmap():
    @nnx.split_rngs(splits=3)
    @nnx.vmap
    def make(rngs):
        return lnnx.GRU(D, H, rngs=rngs)

    ensemble = make(nnx.Rngs(0))
    y = nnx.vmap(lambda module, x: module(x), in_axes=(0, None))(ensemble, X)
    assert differ(y[0], y[1])
    graph, state = nnx.split(ensemble)
    first = nnx.merge(graph, jax.tree.map(lambda a: a[0], state))
    same(first(X), y[0])


@each_package
def test_gradients_of_a_module_itself(package):
    """nnx differentiates modules, linen their variables."""
    layer = package.rnn(functional.SimpleCell(H))
    run = functools.partial(layer.apply, X)
    expected = jax.jit(jax.grad(lambda p: loss_of(run(params=p))))(layer.params)
    if package.package is linen:
        variables = {"params": {"cell": layer.params}}
        gradient = jax.grad(lambda v: loss_of(layer.module.apply(v, X)))
        same(jax.jit(gradient)(variables)["params"]["cell"], expected)
        return
    gradient = nnx.jit(nnx.grad(lambda module: loss_of(module(X))))
    same(nnx.to_pure_dict(gradient(layer.module))["cell"], expected)
