"""Our modules and Flax's: equal numbers without a norm, and one inside the other."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from lnrepro import convert, functional, linen
from lnrepro import nnx as lnnx
from tests.modules.adaptor import (
    KINDS,
    LENGTHS,
    B,
    D,
    H,
    T,
    X,
    differ,
    each_kind,
    each_package,
    loss_of,
    moved,
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
    variables = rnn.init(jax.random.key(0), X)
    variables = jax.tree.map(lambda a: a + 0.1, variables)
    params = convert.load("flax", cell, variables["params"]["cell"])
    ours = {"params": {"cell": params}}
    # One program, where an operation by itself would be one each.
    static = ("return_carry", "reverse", "keep_order")
    run, run_theirs = (jax.jit(m.apply, static_argnames=static) for m in (module, rnn))
    for arguments in DIRECTIONS:
        arguments = arguments | {"return_carry": True}
        same(run(ours, X, **arguments), run_theirs(variables, X, **arguments))
    full = LENGTHS.at[1].set(1)
    carry, y = run_theirs(variables, X, seq_lengths=full, return_carry=True)
    inside = (jnp.arange(T) < full[:, None])[..., None]
    output = run(ours, X, seq_lengths=full, return_carry=True)
    same(output, (carry, jnp.where(inside, y, 0)))


@pytest.mark.parametrize(("sequence", "theirs", "library", "ours"), PLAIN_NNX)
def test_nnx_equals_flax_without_a_norm(sequence, theirs, library, ours):
    cell = theirs(D, H, bias_init=nnx.initializers.normal(0.1), rngs=nnx.Rngs(0))
    module = sequence(D, H, norm="none", rngs=nnx.Rngs(1))
    params = nnx.to_pure_dict(nnx.state(cell, nnx.Param))
    for name, value in convert.load(library, ours, params).items():
        getattr(module, name)[...] = jnp.asarray(value)
    for options in DIRECTIONS:
        expected = nnx.RNN(cell)(X, seq_lengths=LENGTHS, **options)
        padding = jnp.arange(T)[:, None] >= LENGTHS[:, None, None]
        y = module(X, seq_lengths=LENGTHS, **options)
        same(y, jnp.where(padding, 0, expected))


@each_package
@each_kind
def test_flax_s_rnn_runs_our_cells(package, kind):
    cell = package.named(KINDS[kind][1])
    ours = package.around(cell)
    for arguments in DIRECTIONS:
        if package.package is linen:
            theirs = nn.RNN(cell.module)
            expected = theirs.apply({"params": {"cell": ours.params}}, X, **arguments)
        else:
            expected = nnx.RNN(cell.module)(X, **arguments)
        same(ours.apply(X, **arguments), expected)


def test_flax_s_bidirectional_and_sequential_run_our_modules():
    cells = functional.LSTMCell(H), functional.GRUCell(H)
    both = nn.Bidirectional(linen.LSTM(H), linen.GRU(H))
    variables = both.init(jax.random.key(0), X)
    params = variables["params"]["forward_rnn"], variables["params"]["backward_rnn"]
    y = both.apply(variables, X, seq_lengths=LENGTHS)
    expected = functional.bidirectional(*cells, params, X, seq_lengths=LENGTHS)
    same(y, expected.outputs)
    # It passes keys for the carries too.
    same(both.apply(variables, X, init_key=jax.random.key(1)), both.apply(variables, X))

    deep = nn.Sequential([linen.LSTM(H), linen.RNN(linen.GRUCell(H))])
    variables = deep.init(jax.random.key(0), X)
    params = variables["params"]["layers_0"], variables["params"]["layers_1"]["cell"]
    same(
        deep.apply(variables, X),
        functional.unroll(functional.stack(*cells), params, X).outputs,
    )


@pytest.mark.parametrize("rngs", [True, nnx.Rngs(0), nnx.RngStream(0, tag="carry")])
def test_flax_s_bidirectional_and_sequential_run_our_nnx_modules(rngs):
    cells = functional.LSTMCell(H), functional.GRUCell(H)
    left = lnnx.LSTM(D, H, rngs=nnx.Rngs(0))
    right = lnnx.RNN(cells[1], in_features=D, rngs=nnx.Rngs(1))
    y = nnx.Bidirectional(left, right, rngs=rngs)(X, seq_lengths=LENGTHS)
    params = left.parameters, right.cell.parameters
    expected = functional.bidirectional(*cells, params, X, seq_lengths=LENGTHS)
    same(y, expected.outputs)
    upper = lnnx.GRU(H, H, rngs=nnx.Rngs(2))
    same(nnx.Sequential(left, upper)(X), upper(left(X)))


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

    for sequence_first in (True, False):
        outputs, variables = Shared().init_with_output(
            jax.random.key(0), X, sequence_first
        )
        assert list(variables["params"]) == ["GRUCell_0"]
        sequence, step = outputs if sequence_first else outputs[::-1]
        same(sequence[:, 0, :H], step)
        params = variables["params"]["GRUCell_0"]
        cell = functional.GRUCell(H)
        expected = functional.bidirectional(cell, cell, (params, params), X)
        same(sequence, expected.outputs)


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
    same(module(X, initial_carry=carry), module(X, initial_carry=arrays), 0)
    same(module.step(carry, X[:, 0]), module.step(arrays, X[:, 0]), 0)
    gradient = nnx.grad(lambda carry: module(X, initial_carry=carry).sum())(carry)
    assert all(jnp.any(leaf != 0) for leaf in jax.tree.leaves(gradient))


def test_linen_under_vmap_scan_and_remat():
    many = nn.vmap(
        linen.GRU,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=None,
        axis_size=2,
    )(H)
    variables = many.init(jax.random.key(0), X)
    y = jax.jit(many.apply)(variables, X)
    for i in range(2):
        of_one = jax.tree.map(lambda a, i=i: a[i], variables)
        same(linen.GRU(H).apply(of_one, X), y[i])
    same(nn.remat(linen.GRU)(H).apply(of_one, X), y[1])

    over_time = nn.scan(
        linen.GRUCell,
        variable_broadcast="params",
        split_rngs={"params": False},
        in_axes=1,
        out_axes=1,
    )(H)
    same(over_time.apply(of_one, jnp.zeros((B, H)), X)[1], y[1])


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
    drawn = lnnx.GRU(D, H, kernel_init=nnx.initializers.normal(1.0), rngs=nnx.Rngs(1))
    plain = lnnx.GRU(D, H, rngs=nnx.Rngs(0))
    mean = jax.tree.map(lambda a, b: (a + b) / 2, drawn, plain)
    expected = jax.tree.map(
        lambda a, b: (a + b) / 2, params_of(drawn), params_of(plain)
    )
    same(params_of(mean), expected)
    assert differ(mean(X), drawn(X))


def test_nnx_copies_and_abstract_modules():
    module = make_model()
    copy = nnx.clone(module)
    same(copy(X), module(X), 0)
    copy.layers[2].gain_x[...] *= 2
    assert differ(copy(X), module(X))
    graph, state = nnx.split(module)
    copy = nnx.merge(graph, jax.tree.map(jnp.copy, state))
    same(copy(X), module(X), 0)
    abstract = params_of(nnx.eval_shape(make_model))

    def kinds(tree):
        return jax.tree.map(lambda a: (a.shape, a.dtype), tree)

    assert kinds(abstract) == kinds(params_of(make_model()))


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
    layer = moved(package.rnn(functional.DreamerGRUCell(H)))
    expected = jax.grad(lambda p: loss_of(layer.apply(X, params=p)))(layer.params)
    if package.package is linen:
        variables = {"params": {"cell": layer.params}}
        gradient = jax.grad(lambda v: loss_of(layer.module.apply(v, X)))(variables)
        same(gradient["params"]["cell"], expected)
        return
    for name, value in layer.params.items():
        getattr(layer.module.cell, name)[...] = value
    gradient = nnx.grad(lambda module: loss_of(module(X)))(layer.module)
    same(nnx.to_pure_dict(gradient)["cell"], expected)
