"""Mistakes of a first hour with cells: one line that names the field."""

import functools

import jax
import numpy as np
import pytest

from lnrepro.functional import (
    DreamerBlockGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)
from lnrepro.functional.norms import batch_norm, layer_norm, rms_norm, weight_norm
from tests.functional.programs import CELLS, B, D, H, T, X, problem
from tests.refused import refused

KEY = jax.random.key(0)
CELL = CELLS["lstm"]
PARAMS, _ = problem(CELL)
TWO = stack(GRUCell(D), GRUCell(D))
ZEROS = np.zeros((B, H), np.float32)
NUMBERS = np.ones((4, 6), np.float32)
INTEGERS = np.ones((4, 6), np.int32)
NORMS = layer_norm, rms_norm, batch_norm


def block_gru(features, **options):
    options = {"hidden_features": 2, "input_sizes": (3, 1), **options}
    return DreamerBlockGRUCell(features, **options)


WRONG_VALUES = [
    # Options of cells.
    ("norm='group'", lambda: LSTMCell(4, "group")),
    ("features=0", lambda: LSTMCell(0)),
    ("cell_norm='both'", lambda: LSTMCell(4, cell_norm="both")),
    ("norm_site='sum'", lambda: LSTMCell(4, norm_site="sum")),
    ("reset='never'", lambda: GRUCell(4, reset="never")),
    ("recurrent_bias", lambda: GRUCell(4, "rms", recurrent_bias=True)),
    ("features_in=0", lambda: LSTMCell(4).init(KEY, 0)),
    ("blocks=8", lambda: block_gru(6)),
    ("input_sizes=(3, 1)", lambda: block_gru(8).init(KEY, 5)),
    # Options of wrappers and of the scan.
    ("skip='all'", lambda: stack(CELL, skip="all")),
    ("backward='fast'", lambda: ScanOptions(backward="fast")),
    ("chunk=0", lambda: ScanOptions(chunk=0)),
    # Inputs of a sequence or a step.
    ("w_x of LSTMCell takes 4", lambda: unroll(CELL, PARAMS, X[..., :3])),
    ("mask has shape (2, 5)", lambda: run(mask=np.ones((2, 5)))),
    ("resets has shape (6, 2)", lambda: run(resets=np.ones((6, 2), bool))),
    ("seq_lengths has shape", lambda: run(seq_lengths=np.array([2]))),
    ("carry has shape", lambda: run(initial_carry=(ZEROS[:1], ZEROS))),
    ("this cell's is", lambda: run(initial_carry=ZEROS)),
    ("this cell's is", lambda: step(CELL, PARAMS, None, X[:, 0])),
    ("step: reset has shape", lambda: run_step(reset=np.ones(3, bool))),
    # Parameters of another cell.
    ("gain_h", lambda: unroll(CELL, problem(LSTMCell(H, "none"))[0], X)),
    ("'w_x'", lambda: unroll(CELL, {"kernel": np.ones((D, H))}, X)),
    ("tuple of length 1", lambda: unroll(TWO, problem(TWO)[0][:1], X)),
    # Norms.
    ("gain has shape (5,)", lambda: layer_norm(NUMBERS, np.ones(5))),
    ("bias has shape (4, 6)", lambda: layer_norm(NUMBERS, None, NUMBERS)),
    ("g has shape", lambda: weight_norm(NUMBERS, np.ones(4))),
    ("two axes at least", lambda: weight_norm(NUMBERS[0], NUMBERS[0])),
]
WRONG_TYPES = [
    ("is no cell", lambda: stack([CELL])),
    ("floating point", lambda: unroll(CELL, PARAMS, X.astype(np.int32))),
    ("integers", lambda: run(seq_lengths=np.array([2.0, 3.0]))),
    ("int32", lambda: run(initial_carry=(ZEROS.astype(np.int32), ZEROS))),
    # Ones and zeros as well: they may be a discount.
    ("unroll: resets has dtype float32", lambda: run(resets=np.ones((B, T)))),
    ("step: reset has dtype float32", lambda: run_step(reset=np.ones(B))),
    *[("int32", functools.partial(norm, INTEGERS)) for norm in NORMS],
    ("int32", lambda: weight_norm(INTEGERS, NUMBERS[0])),
]


def run(**arguments):
    return unroll(CELL, PARAMS, X, **arguments)


def run_step(**arguments):
    return step(CELL, PARAMS, CELL.initial_carry(PARAMS, X[:, 0]), X[:, 0], **arguments)


@pytest.mark.parametrize(
    ("error", "named", "call"),
    [(ValueError, *case) for case in WRONG_VALUES]
    + [(TypeError, *case) for case in WRONG_TYPES],
)
def test_wrong_arguments_are_named(error, named, call):
    with refused(named, error=error):
        call()


SHAPES = {
    "lstm": LSTMCell(H, peephole=True, inner_bias=True, learned_carry=True),
    "gru": GRUCell(H, reset="before"),
    "dreamer": block_gru(H, blocks=2),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_parameter_of_another_shape_is_named(name):
    """One of shape [1] would broadcast, and those of more units fail inside XLA."""
    cell = SHAPES[name]
    params, _ = problem(cell)
    for changed, value in params.items():
        other = value[..., :1]
        texts = f"{changed} has shape {other.shape}", str(value.shape)
        with refused(*texts, error=ValueError):
            unroll(cell, params | {changed: other}, X)


def test_dropout_of_h_asks_for_the_names_of_the_recurrent_weights():
    class Renamed(SimpleCell):
        def prepare(self, params):
            weights, rest = super().prepare(params)
            weights["recurrent"] = weights.pop("w_h")
            return weights, rest

    cell = variational_dropout(Renamed(H, "none"), rate_h=0.5)
    with refused("Renamed", "w_h", error=ValueError):
        unroll(cell, problem(SimpleCell(H, "none"))[0], X)


def test_zoneout_asks_for_h_as_the_last_array_of_the_carry():
    class Doubled(SimpleCell):
        def output(self, carry):
            return 2 * carry

    params, _ = problem(SimpleCell(H))
    with refused("Doubled", error=ValueError):
        unroll(zoneout(Doubled(H), 0.1, 0.2), params, X)
