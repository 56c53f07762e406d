"""Our modules inside Flax's, and what Flax does with modules."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from lnrepro import functional, linen
from lnrepro import nnx as lnnx
from tests.functional.programs import drawn
from tests.modules.adaptor import (
    KINDS,
    LENGTHS,
    PACKAGES,
    B,
    H,
    T,
    X,
    differ,
    each_kind_once,
    each_package,
    loss_of,
    same,
    same_program,
    some_carry,
)
from tests.modules.test_noise import noisy, run


@each_kind_once
def test_flax_s_rnn_runs_our_cells(package, kind):
    """As ours does, but for padding: there our outputs are zero, and carries stay."""
    package = PACKAGES[package]
    cell = package.named(KINDS[kind][1])
    ours = package.around(cell)
    backwards, length = {"reverse": True}, {"seq_lengths": np.maximum(LENGTHS, 1)}
    options = (
        {**backwards, **length},
        {**backwards, "keep_order": True},
        {"return_carry": True, **length},
    )
    inside = np.arange(T) < length["seq_lengths"][:, None]

    def run(rnn, params):
        found = [ours.run(params, X, **given) for given in options]
        first, second, (carry, y) = (rnn(X, **given) for given in options)
        without = [jnp.where(inside[..., None], a, 0) for a in (first, y)]
        return found, [without[0], second, (carry, without[1])]

    if package.package is linen:
        rnn = nn.RNN(cell.module).bind({"params": {"cell": ours.params}})
        same(*jax.jit(functools.partial(run, rnn))(ours.params))
    else:
        same(*nnx.jit(run)(nnx.RNN(cell.module), ours.params))


@each_package
def test_flax_s_bidirectional_and_sequential_run_our_modules(package):
    left, right = package.named("LSTM"), package.rnn(functional.GRUCell(H))
    how = {"seq_lengths": LENGTHS}

    @jax.jit
    def expected():
        backwards = right.apply(X, reverse=True, keep_order=True, **how)
        return jnp.concatenate([left.apply(X, **how), backwards], -1)

    if package.package is linen:
        both = nn.Bidirectional(left.module, right.module)
        sides = {"forward_rnn": left.params, "backward_rnn": {"cell": right.params}}
        # Flax passes keys for the carries too.
        run = jax.jit(functools.partial(both.apply, init_key=jax.random.key(1), **how))
        same(run({"params": sides}, X), expected())
        deep = nn.Sequential([left.module, jnp.tanh])
        jax.eval_shape(deep.apply, {"params": {"layers_0": left.params}}, X)
        return
    for rngs in (True, nnx.Rngs(0), nnx.RngStream(0, tag="carry")):
        both = nnx.Bidirectional(left.module, right.module, rngs=rngs)
        jax.eval_shape(both, X)
    same(nnx.jit(lambda both: both(X, **how))(both), expected())
    jax.eval_shape(nnx.Sequential(left.module, jnp.tanh), X)


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
    modules = [Shared(sequence_first) for sequence_first in (True, False)]
    found = [jax.eval_shape(module.init, jax.random.key(0), X) for module in modules]
    assert found[0] == found[1]
    assert list(found[0]["params"]) == ["GRUCell_0"]

    @jax.jit
    def of_all(variables):
        params = variables["params"]["GRUCell_0"]
        both = functional.bidirectional(cell, cell, (params, params), X).outputs
        expected = both, both[:, 0, :H]
        return [(module.apply(variables, X), expected) for module in modules]

    for pair in of_all(drawn(found[0])):
        same(*pair)


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
    layer = PACKAGES["nnx"].named("LSTM")

    def of_arrays(carry):
        module = layer.module
        return module(X, initial_carry=carry), module.step(carry, X[:, 0])

    def of_variables(carry):
        return of_arrays(tuple(map(nnx.Param, carry)))

    same_program(of_variables, of_arrays, some_carry(layer))


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


def test_equal_nnx_modules_have_equal_graph_definitions():
    """So that a target network is a tree of the same structure, traced once."""
    layers = functional.stack(functional.GRUCell(H), functional.SimpleCell(H))

    def make(kernel_init):
        """What draws the parameters is no part of a module."""
        rngs = nnx.Rngs(0)
        return nnx.Sequential(
            noisy(rngs),
            lnnx.RNN(layers, in_features=H, rngs=rngs),
            lnnx.LSTM(H, H, kernel_init=kernel_init, rngs=rngs),
        )

    first, second = (
        nnx.graphdef(nnx.eval_shape(functools.partial(make, init)))
        for init in (nnx.initializers.ones, nnx.initializers.zeros)
    )
    assert first == second
    assert hash(first) == hash(second)


def test_nnx_copies():
    module = noisy(nnx.Rngs(0))
    graph, state = nnx.split(module)
    merged = nnx.merge(graph, jax.tree.map(jnp.copy, state))
    copy, changed = nnx.clone(module), nnx.clone(module)
    changed.cell.w_x[...] *= 2
    # The noise as well, since a copy of the stream of keys draws the same.
    expected = run(module)
    same((run(copy), run(merged)), (expected, expected), 0)
    assert differ(run(changed), expected)


def test_nnx_differentiates_a_module_itself():
    layer = PACKAGES["nnx"].rnn(functional.SimpleCell(H))
    graph, state = nnx.split(layer.module)

    def ours(state):
        gradient = nnx.grad(lambda module: loss_of(module(X)))
        return gradient(nnx.merge(graph, state))

    def theirs(state):
        return jax.grad(lambda state: loss_of(nnx.merge(graph, state)(X)))(state)

    same_program(ours, theirs, state)
