"""Our modules inside Flax's, and what Flax does with modules."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from lnrepro import functional, linen
from lnrepro import nnx as lnnx
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


@each_kind_once
def test_flax_s_rnn_runs_our_cells(package, kind):
    """As ours does, but for padding: there our outputs are zero, and carries stay."""
    package = PACKAGES[package]
    cell = package.named(KINDS[kind][1])
    ours = package.around(cell)
    how = {"seq_lengths": np.maximum(LENGTHS, 1), "return_carry": True}
    options = *DIRECTIONS, how
    found = jax.jit(lambda: [ours.apply(X, **given) for given in options])()
    if package.package is linen:
        rnn, variables = nn.RNN(cell.module), {"params": {"cell": ours.params}}
        run = jax.jit(lambda v: [rnn.apply(v, X, **given) for given in options])
        *expected, (carry, y) = run(variables)
    else:
        run = nnx.jit(lambda rnn: [rnn(X, **given) for given in options])
        *expected, (carry, y) = run(nnx.RNN(cell.module))
    inside = np.arange(T) < how["seq_lengths"][:, None]
    same(found, [*expected, (carry, np.where(inside[..., None], y, 0))])


@each_package
def test_flax_s_bidirectional_and_sequential_run_our_modules(package):
    left, right = package.named("LSTM"), package.rnn(functional.GRUCell(H))

    @jax.jit
    def expected():
        backwards = {"reverse": True, "keep_order": True, "seq_lengths": LENGTHS}
        sides = left.apply(X, seq_lengths=LENGTHS), right.apply(X, **backwards)
        return jnp.concatenate(sides, -1), jnp.tanh(left.apply(X))

    if package.package is linen:
        both = nn.Bidirectional(left.module, right.module)
        deep = nn.Sequential([left.module, jnp.tanh])
        sides = {"forward_rnn": left.params, "backward_rnn": {"cell": right.params}}

        @jax.jit
        def found():
            # Flax passes keys for the carries too.
            how = {"seq_lengths": LENGTHS, "init_key": jax.random.key(1)}
            y = both.apply({"params": sides}, X, **how)
            return y, deep.apply({"params": {"layers_0": left.params}}, X)

        same(found(), expected())
        return
    run = nnx.jit(lambda both, deep: (both(X, seq_lengths=LENGTHS), deep(X)))
    for rngs in (True, nnx.Rngs(0), nnx.RngStream(0, tag="carry")):
        both = nnx.Bidirectional(left.module, right.module, rngs=rngs)
        deep = nnx.Sequential(left.module, jnp.tanh)
        same(run(both, deep), expected())


def test_two_directions_and_a_direct_call_may_share_a_cell():
    class Shared(nn.Module):
        sequence_first: bool

        @nn.compact
        def __call__(self, x):
            cell = linen.GRUCell(H)
            both = nn.Bidirectional(linen.RNN(cell), linen.RNN(cell))
            sequence = both(x) if self.sequence_first else None
            _, step = cell(jnp.zeros((B, H)), x[:, 0])
            return sequence if self.sequence_first else both(x), step

    cell = functional.GRUCell(H)

    @jax.jit
    def of_both(params):
        return functional.bidirectional(cell, cell, (params, params), X).outputs

    for sequence_first in (True, False):
        run = jax.jit(Shared(sequence_first).init_with_output)
        (sequence, step), variables = jax.device_get(run(jax.random.key(0), X))
        assert list(variables["params"]) == ["GRUCell_0"]
        same(sequence[:, 0, :H], step)
        same(sequence, of_both(variables["params"]["GRUCell_0"]))


# What Flax does with modules


@each_package
def test_tabulate(package):
    layer = package.named("LSTM")
    if package.package is linen:
        key, flops = jax.random.key(0), {"compute_vjp_flops": True}
        table = layer.module.tabulate(key, X, compute_flops=True, **flops)
    else:
        table = nnx.tabulate(layer.module, X, compute_flops=True)
    assert "LSTM" in table
    assert "w_h" in table


def test_linen_modules_can_be_hashed():
    """So that they are static arguments of `jax.jit`."""
    sizes = {"hidden_features": 2, "input_sizes": [1, 2], "blocks": 2}

    def make():
        axes = {"w_x": [None, "model"], "bias": ("model",)}
        blocks = functional.DreamerBlockGRUCell(H, **sizes)
        return linen.GRU(H, sharding=axes), linen.RNN(blocks)

    assert hash(make()) == hash(make())


def test_a_variable_of_nnx_as_the_first_carry():
    module = lnnx.LSTM(D, H, rngs=nnx.Rngs(0))
    carry = tuple(nnx.Param(jnp.full((B, H), value)) for value in (0.1, 0.2))
    arrays = tuple(value[...] for value in carry)

    @nnx.jit
    def run(module, carry):
        return module(X, initial_carry=carry), module.step(carry, X[:, 0])

    same(run(module, carry), run(module, arrays), 0)


def test_linen_under_scan_and_remat():
    over_time = nn.scan(
        linen.GRUCell,
        variable_broadcast="params",
        split_rngs={"params": False},
        in_axes=1,
        out_axes=1,
    )(H)
    variables = {"params": PACKAGES["linen"].named("GRU").params}

    @jax.jit
    def of_all(variables):
        again = nn.remat(linen.GRU)(H).apply(variables, X)
        _, scanned = over_time.apply(variables, jnp.zeros((B, H)), X)
        return linen.GRU(H).apply(variables, X), again, scanned

    expected, *found = of_all(variables)
    same(found, [expected, expected])


def make_model():
    rngs = nnx.Rngs(0)
    cell = functional.zoneout(functional.SimpleCell(H), rate_h=0.5)
    layers = functional.stack(functional.GRUCell(H), functional.SimpleCell(H))
    return nnx.Sequential(
        lnnx.RNN(cell, in_features=D, rngs=rngs),
        lnnx.RNN(layers, in_features=H, rngs=rngs),
        lnnx.LSTM(H, H, rngs=rngs),
    )


def test_equal_nnx_modules_have_equal_graph_definitions():
    """So that a target network is a tree of the same structure, traced once."""
    graphs = [nnx.graphdef(make_model()) for _ in range(2)]
    assert graphs[0] == graphs[1]
    assert hash(graphs[0]) == hash(graphs[1])
    # What draws the parameters is no part of a module.
    other = lnnx.GRU(D, H, kernel_init=nnx.initializers.ones, rngs=nnx.Rngs(1))
    plain = lnnx.GRU(D, H, rngs=nnx.Rngs(0))
    assert nnx.graphdef(other) == nnx.graphdef(plain)


def test_nnx_copies():
    module = make_model()
    graph, state = nnx.split(module)
    merged = nnx.merge(graph, jax.tree.map(jnp.copy, state))
    copy, changed = nnx.clone(module), nnx.clone(module)
    changed.layers[2].gain_x[...] *= 2
    # The noise as well, since a copy of the stream of keys draws the same.
    run = nnx.jit(lambda module: module(X))
    expected = run(module)
    same((run(copy), run(merged)), (expected, expected), 0)
    assert differ(run(changed), expected)


def test_nnx_differentiates_a_module_itself():
    layer = PACKAGES["nnx"].rnn(functional.SimpleCell(H))
    run = functools.partial(layer.apply, X)
    expected = jax.jit(jax.grad(lambda p: loss_of(run(params=p))))(layer.params)
    gradient = nnx.jit(nnx.grad(lambda module: loss_of(module(X))))
    same(nnx.to_pure_dict(gradient(layer.module))["cell"], expected)
