"""Our modules and Flax's: equal numbers without a norm, and one inside the other."""

import functools

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
    same,
)

DIRECTIONS = ({}, {"reverse": True}, {"reverse": True, "keep_order": True})
LSTM = functional.LSTMCell(H, "none")
# Name of Flax's cell, our cell, and the kind that converters have in their names.
PLAIN = [
    ("LSTMCell", LSTM, "lstm"),
    ("OptimizedLSTMCell", LSTM, "lstm"),
    ("GRUCell", functional.GRUCell(H, "none", recurrent_bias=True), "gru"),
    ("SimpleCell", functional.SimpleCell(H, "none"), "rnn"),
]


def flax_sequence(package, name):
    """Flax's RNN around one of its cells as a function, and the cell's parameters."""
    if package.package is linen:
        rnn = nn.RNN(getattr(nn, name)(H))
        variables = jax.tree.map(lambda a: a + 0.1, rnn.init(jax.random.key(0), X))
        run = functools.partial(rnn.apply, variables)
        return run, variables["params"]["cell"]
    normal = nnx.initializers.normal(0.1)
    cell = getattr(nnx, name)(D, H, bias_init=normal, rngs=nnx.Rngs(0))
    return nnx.RNN(cell), nnx.to_pure_dict(nnx.state(cell, nnx.Param))


@each_package
@pytest.mark.parametrize(("name", "cell", "kind"), PLAIN)
def test_equal_to_flax_without_a_norm(package, name, cell, kind):
    """Except at padding, where outputs are zero and the carry does not change."""
    theirs, weights = flax_sequence(package, name)
    source = "flax" if package.package is linen else "nnx"
    params = getattr(convert, f"{kind}_from_{source}")(weights)
    if (source, kind) == ("nnx", "gru"):
        # Only linen's has a bias on the candidate's recurrent product.
        cell = functional.GRUCell(H, "none")
    ours = functools.partial(package.rnn(cell).apply, params=params)
    for arguments in DIRECTIONS:
        same(ours(X, **arguments), theirs(X, **arguments))
    arguments = {"seq_lengths": LENGTHS.at[1].set(1), "return_carry": True}
    carry, y = theirs(X, **arguments)
    inside = (jnp.arange(T) < arguments["seq_lengths"][:, None])[..., None]
    same(ours(X, **arguments), (carry, jnp.where(inside, y, 0)))


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


@pytest.mark.slow
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
