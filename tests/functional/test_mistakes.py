"""Mistakes of a first hour with cells and modules: one line that names the field."""

import jax
import numpy as np
import pytest

import lnrepro.linen
import lnrepro.nnx
from lnrepro.functional import (
    Cell,
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    bidirectional,
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)
from lnrepro.functional.norms import (
    batch_norm,
    layer_norm,
    rms_norm,
    weight_norm,
    weight_norm_preserving,
)
from tests.functional.programs import CELLS, B, D, H, T, X, problem
from tests.refused import refused

KEY = jax.random.key(0)
CELL = CELLS["lstm"]
PARAMS, _ = problem(CELL)
TWO = stack(GRUCell(D), GRUCell(D))
HALVES = np.full((B, T), 0.5, np.float32)
ZEROS = np.zeros((B, H), np.float32)
NUMBERS = np.ones((4, 6), np.float32)


def block_gru(features, **options):
    options = {"hidden_features": 2, "input_sizes": (3, 1), **options}
    return DreamerBlockGRUCell(features, **options)


WRONG_VALUES = [
    # Options of cells.
    ("norm='group'", lambda: LSTMCell(4, "group")),
    ("GRUCell: norm='layer_cell'", lambda: GRUCell(4, "layer_cell")),
    ("SimpleCell: norm='layer_cell'", lambda: SimpleCell(4, "layer_cell")),
    ("DreamerGRUCell: norm='batch'", lambda: DreamerGRUCell(4, "batch")),
    ("features=0", lambda: LSTMCell(0)),
    ("features=2.5", lambda: LSTMCell(2.5)),
    ("features=True", lambda: LSTMCell(True)),
    ("cell_norm='both'", lambda: LSTMCell(4, cell_norm="both")),
    ("norm_site='sum'", lambda: LSTMCell(4, norm_site="sum")),
    ("sites joint", lambda: LSTMCell(4, "layer_cell", norm_site="joint")),
    ("reset='never'", lambda: GRUCell(4, reset="never")),
    ("recurrent_bias", lambda: GRUCell(4, "rms", recurrent_bias=True)),
    ("'before'", lambda: GRUCell(4, "none", reset="before", recurrent_bias=True)),
    ("epsilon=-1.0", lambda: GRUCell(4, epsilon=-1.0)),
    ("features_in=0", lambda: LSTMCell(4).init(KEY, 0)),
    ("blocks=8", lambda: block_gru(6)),
    ("input_sizes=0", lambda: block_gru(8, input_sizes=(3, 0))),
    ("input_sizes=(3, 1)", lambda: block_gru(8).init(KEY, 5)),
    # Options of wrappers and of the scan.
    ("stack", lambda: stack()),
    ("skip='all'", lambda: stack(CELL, skip="all")),
    ("backward='fast'", lambda: ScanOptions(backward="fast")),
    ("save='all'", lambda: ScanOptions(save="all")),
    ("chunk=0", lambda: ScanOptions(chunk=0)),
    ("chunk=2.5", lambda: ScanOptions(chunk=2.5)),
    ("unroll=0", lambda: ScanOptions(unroll=0)),
    ("kernels=True", lambda: ScanOptions(kernels=True)),
    ("platform='cuda'", lambda: ScanOptions(platform="cuda")),
    # Inputs of a sequence or a step.
    ("w_x of LSTMCell takes 4", lambda: unroll(CELL, PARAMS, X[..., :3])),
    ("[..., T, D]", lambda: unroll(CELL, PARAMS, X[0, 0])),
    ("mask has shape (2, 5)", lambda: run(mask=np.ones((2, 5)))),
    ("resets has shape (6, 2)", lambda: run(resets=np.ones((6, 2), bool))),
    ("resets has shape (2, 6, 1)", lambda: run(resets=np.ones((2, 6, 1), bool))),
    ("seq_lengths has shape", lambda: run(seq_lengths=np.array([2]))),
    ("carry has shape", lambda: run(initial_carry=(ZEROS[:1], ZEROS))),
    ("this cell's is", lambda: run(initial_carry=ZEROS)),
    ("norm='batch'", lambda: run(statistics={"x": (ZEROS, ZEROS)})),
    ("step: mask has shape", lambda: run_step(mask=np.ones(3, bool))),
    ("step: reset has shape", lambda: run_step(reset=np.ones(3, bool))),
    # Parameters of another cell.
    ("gain_h", lambda: unroll(CELL, problem(LSTMCell(H, "none"))[0], X)),
    ("'w_x'", lambda: unroll(CELL, {"kernel": np.ones((D, H))}, X)),
    ("w_x has shape (4, 24)", lambda: unroll(TWO.cells[0], problem(GRUCell(8))[0], X)),
    ("tuple of length 1", lambda: unroll(TWO, problem(TWO)[0][:1], X)),
    ("tuple of length 3", lambda: unroll(TWO, (*problem(TWO)[0], {}), X)),
    # Norms.
    ("gain has shape (5,)", lambda: layer_norm(NUMBERS, np.ones(5))),
    ("gain has shape (5,)", lambda: rms_norm(NUMBERS, np.ones(5))),
    ("gain has shape (4,)", lambda: batch_norm(NUMBERS, np.ones(4))),
    ("bias has shape (4, 6)", lambda: layer_norm(NUMBERS, None, NUMBERS)),
    ("g has shape", lambda: weight_norm(NUMBERS, np.ones(4))),
    ("no features", lambda: rms_norm(NUMBERS[:, :0])),
    ("no features", lambda: layer_norm(NUMBERS[:, :0])),
    ("no row", lambda: batch_norm(NUMBERS[:0])),
    ("two axes", lambda: weight_norm(NUMBERS[0], np.ones(6))),
    ("two axes", lambda: weight_norm_preserving(NUMBERS[0])),
    ("epsilon=-1", lambda: layer_norm(NUMBERS, epsilon=-1)),
    ("epsilon=-1", lambda: batch_norm(NUMBERS, epsilon=-1)),
    ("mask has shape", lambda: batch_norm(NUMBERS, mask=np.ones(3))),
]
WRONG_TYPES = [
    ("'colour'", lambda: LSTMCell(4, colour=1)),
    ("peephole", lambda: GRUCell(4, peephole=True)),
    ("reset", lambda: DreamerGRUCell(4, reset="before")),
    ("positional", lambda: LSTMCell(4, "layer", "output")),
    ("features", lambda: LSTMCell()),
    ("remat", lambda: ScanOptions(remat=True)),
    ("is no cell", lambda: stack([CELL])),
    ("GRUCell", lambda: stack(CELL, GRUCell)),
    ("floating point", lambda: unroll(CELL, PARAMS, X.astype(np.int32))),
    ("integers", lambda: run(seq_lengths=np.array([2.0, 3.0]))),
    ("int32", lambda: run(initial_carry=(ZEROS.astype(np.int32), ZEROS))),
    ("'lengths'", lambda: run(lengths=[2, 3])),
    # Ones and zeros as well: they may be a discount.
    ("unroll: resets has dtype float32", lambda: run(resets=np.ones((B, T)))),
    ("resets has dtype float32", lambda: jax.jit(run)(resets=2 * HALVES)),
    ("step: reset has dtype float32", lambda: run_step(reset=np.ones(B))),
    ("this order", lambda: unroll(CELL, X, PARAMS)),
    ("this order", lambda: unroll(TWO, X, problem(TWO)[0])),
    ("this order", lambda: step(CELL, X[:, 0], (ZEROS, ZEROS), PARAMS)),
    ("this order", lambda: unroll(PARAMS, CELL, X)),
    ("this order", lambda: unroll(LSTMCell, PARAMS, X)),
    ("int32", lambda: layer_norm(np.ones((2, 3), int))),
    ("int32", lambda: rms_norm(np.ones((2, 3), int))),
    ("rngs", lambda: lnrepro.nnx.GRU(4, 5, rngs=0)),
    ("rngs", lambda: lnrepro.nnx.LayerNorm(4, rngs=KEY)),
]


def run(**arguments):
    return unroll(CELL, PARAMS, X, **arguments)


def run_step(**arguments):
    return step(CELL, PARAMS, CELL.initial_carry(PARAMS, X[:, 0]), X[:, 0], **arguments)


@pytest.mark.parametrize(("named", "call"), WRONG_VALUES)
def test_wrong_values_are_named(named, call):
    with refused(named, error=ValueError):
        call()


@pytest.mark.parametrize(("named", "call"), WRONG_TYPES)
def test_wrong_types_are_named(named, call):
    with refused(named, error=TypeError):
        call()


def test_params_of_a_pair_that_are_no_pair_are_named():
    with refused("pair", error=(TypeError, ValueError)):
        bidirectional(CELL, CELL, PARAMS, X)


SHAPES = {
    "lstm": LSTMCell(H, peephole=True, inner_bias=True, learned_carry=True),
    "weight": LSTMCell(H, "weight"),
    "gru": GRUCell(H, reset="before"),
    "simple": SimpleCell(H),
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
        with refused(*texts, error=ValueError):
            step(cell, params | {changed: other}, None, X[:, 0])


@pytest.mark.parametrize(
    ("norm", "other", "named"),
    [("rms", "layer", "bias_0"), ("layer", "rms", "bias_0"), ("rms", "none", "gain_0")],
)
def test_parameters_of_another_norm_are_named(norm, other, named):
    params, _ = problem(block_gru(H, norm=other, blocks=2))
    with refused(named, error=ValueError):
        unroll(block_gru(H, norm=norm, blocks=2), params, X)


def test_a_mask_of_numbers_is_that_of_booleans():
    mask = np.array([[1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 0, 0]])

    @jax.jit
    def outputs():
        masks = [mask.astype(dtype) for dtype in (bool, np.float32, np.int32)]
        return [run(mask=a).outputs for a in masks]

    expected, of_floats, of_integers = outputs()
    np.testing.assert_array_equal(of_floats, expected)
    np.testing.assert_array_equal(of_integers, expected)


# Cells of a user


def test_an_abstract_method_that_is_missing_is_named():
    class Empty(Cell):
        features = 3

    with refused("Empty", error=TypeError):
        unroll(Empty(), {}, X)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda new: new, "pair"),
        (lambda new: ((new, new), None), "returned a carry"),
        (lambda new: (new[0], None), "(4,)"),
    ],
)
def test_a_step_with_a_wrong_result_is_named(change, says):
    class Wrong(SimpleCell):
        def step(self, dot, params, carry, x, context):
            return change(carry)

    cell = Wrong(H, norm="none")
    params, _ = problem(cell)
    with refused("Wrong", says, error=TypeError):
        step(cell, params, ZEROS, X[:, 0])
    with refused("Wrong.step", error=TypeError):
        unroll(cell, params, X)


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
    class Swapped(LSTMCell):
        def initial_carry(self, params, x):
            return super().initial_carry(params, x)[::-1]

        def step(self, dot, params, carry, x, context):
            new, statistics = super().step(dot, params, carry[::-1], x, context)
            return new[::-1], statistics

        def output(self, carry):
            return carry[0]

    params, _ = problem(LSTMCell(H))

    @jax.jit
    def of_both(params):
        cells = Swapped(H), LSTMCell(H)
        return [unroll(cell, params, X).outputs for cell in cells]

    found, expected = of_both(params)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with refused("Swapped", error=ValueError):
        unroll(zoneout(Swapped(H), 0.1, 0.2), params, X)
