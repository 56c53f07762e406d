"""Running statistics of batch norm in the recurrent nnx modules."""

import pytest
from flax import nnx

from lnrepro import functional
from lnrepro.nnx import (
    GRU,
    LSTM,
    RNN,
    Bidirectional,
    GRUCell,
)
from tests.nnx.common import LENGTHS, B, D, H, T, X, differ, params_of, same


@pytest.mark.slow
def test_running_statistics_of_batch_norm():
    module = LSTM(D, H, norm="batch", max_steps=4, momentum=0.5, rngs=nnx.Rngs(0))
    before = nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))
    y = nnx.jit(lambda m, x: m(x, seq_lengths=LENGTHS))(module, X)
    cell, params = functional.LSTMCell(H, "batch"), params_of(module)
    result = functional.unroll(cell, params, X, seq_lengths=LENGTHS)
    same(y, result.outputs)
    running = {
        site: (before[f"mean_{site}"], before[f"var_{site}"]) for site in cell.sites
    }
    moved = functional.track(running, result.statistics, 0.5)
    for site, (mean, var) in moved.items():
        same((module.__dict__[f"mean_{site}"][...], mean), (mean, mean))
        same(module.__dict__[f"var_{site}"][...], var)

    expected = functional.unroll(cell, params, X, statistics=moved).outputs
    same(nnx.view(module, use_running_average=True)(X), expected)
    same(module(X, use_running_average=True), expected)
    module.eval()
    same(module(X), expected)


def test_running_statistics_inside_other_modules():
    cell = functional.stack(
        functional.GRUCell(H, "batch"), functional.SimpleCell(H, "batch")
    )
    around = RNN(cell, in_features=D, max_steps=T, rngs=nnx.Rngs(0))
    module = Bidirectional(around, GRU(D, H, rngs=nnx.Rngs(1)))
    names = set(nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))["forward_rnn"])
    assert names == {
        f"{kind}_{layer}_{site}"
        for kind in ("mean", "var")
        for layer in (0, 1)
        for site in ("x", "h")
    }
    before = module.forward_rnn.mean_0_x[...]
    y = module(X)
    assert differ(module.forward_rnn.mean_0_x[...], before)
    quiet = nnx.view(module, use_running_average=True)
    assert differ(quiet(X), y)


def test_batch_norm_needs_the_number_of_the_step():
    with pytest.raises(ValueError, match="give their number, max_steps"):
        LSTM(D, H, norm="batch", rngs=nnx.Rngs(0))
    cell = GRUCell(D, H, norm="batch", rngs=nnx.Rngs(0))
    carry = cell.initialize_carry((B, D))
    with pytest.raises(ValueError, match="call RNN, or a module such as LSTM"):
        cell(carry, X[:, 0])
    with pytest.raises(ValueError, match="statistics of each time step"):
        RNN(cell, max_steps=T).step(carry, X[:, 0])
