"""Cells travel to other processes: they can be pickled."""

import pickle

import jax
import pytest

from lnrepro.functional import (
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    SimpleCell,
    stack,
    variational_dropout,
    zoneout,
)

CELLS = [
    LSTMCell(4, "layer", peephole=True),
    GRUCell(4, "none", gate_fn=jax.nn.hard_sigmoid, activation_fn=jax.nn.relu),
    SimpleCell(4, "rms", scale_init=jax.nn.initializers.ones),
    DreamerGRUCell(4, "layer"),
    DreamerBlockGRUCell(16, hidden_features=4, input_sizes=(3, 2)),
    stack(
        zoneout(LSTMCell(4, "none"), 0.1), variational_dropout(GRUCell(4, "none"), 0.1)
    ),
]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: type(cell).__name__)
def test_a_pickled_cell_is_the_same_cell(cell):
    again = pickle.loads(pickle.dumps(cell))
    assert again == cell
    assert hash(again) == hash(cell)


def test_a_function_without_a_name_is_refused_by_pickle():
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(GRUCell(4, "none", activation_fn=lambda x: x))
