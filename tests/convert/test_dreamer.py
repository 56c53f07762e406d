"""The block GRU of DreamerV3 from and to its weights.

tests/functional/test_dreamer.py compares the cell with the equations through these
converters, with random weights.
"""

import jax
import ml_dtypes
import numpy as np
import pytest

from lnrepro.convert import block_gru_from_dreamer, block_gru_to_dreamer
from lnrepro.functional import DreamerBlockGRUCell

CELL = DreamerBlockGRUCell(6, hidden_features=4, input_sizes=(3, 2), blocks=2)


def params_of(cell, features_in=5):
    shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0), features_in))
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(a.shape) for name, a in shapes.items()}


def test_round_trips_keep_every_bit_and_copy():
    params = params_of(CELL)
    weights = block_gru_to_dreamer(params, prefix="dyn/")
    assert all(name.startswith("dyn/dyn") for name in weights)
    again = block_gru_from_dreamer(weights, prefix="dyn/")
    jax.tree.map(np.testing.assert_array_equal, again, params)
    for a in weights.values():
        assert not any(np.shares_memory(a, b) for b in params.values())
    for a in again.values():
        assert not any(np.shares_memory(a, b) for b in weights.values())


def test_a_checkpoint_holds_other_layers_too():
    weights = block_gru_to_dreamer(params_of(CELL))
    others = {"obs0/kernel": np.ones((2, 2)), "prior0/bias": np.ones(2)}
    again = block_gru_from_dreamer(weights | others)
    assert again.keys() == params_of(CELL).keys()


def test_bfloat16_stays_bfloat16():
    params = {n: a.astype(ml_dtypes.bfloat16) for n, a in params_of(CELL).items()}
    weights = block_gru_to_dreamer(params)
    for a in [*weights.values(), *block_gru_from_dreamer(weights).values()]:
        assert a.dtype == ml_dtypes.bfloat16


def refusal(converter, arrays):
    with pytest.raises(ValueError, match=r"^convert: ") as error:
        converter(arrays)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_missing_or_of_a_wrong_shape_is_named():
    params = params_of(CELL)
    both = (
        (block_gru_to_dreamer, params),
        (block_gru_from_dreamer, block_gru_to_dreamer(params)),
    )
    for converter, arrays in both:
        for name, a in arrays.items():
            assert refusal(converter, {**arrays, name: None})
            assert refusal(converter, {**arrays, name: a[None]})
            assert refusal(converter, {**arrays, name: a[..., 1:]})


def test_what_has_no_place_is_named():
    weights = block_gru_to_dreamer(params_of(CELL))
    message = refusal(
        block_gru_from_dreamer, weights | {"dynhid1/kernel": np.ones((2, 3, 3))}
    )
    assert "of one layer has no weight dynhid1/kernel" in message
    layer = DreamerBlockGRUCell(
        6, hidden_features=4, input_sizes=(3, 2), blocks=2, norm="layer"
    )
    message = refusal(block_gru_to_dreamer, params_of(layer))
    assert "has no place for bias_0" in message
    assert "mapping" in refusal(block_gru_from_dreamer, [1])
