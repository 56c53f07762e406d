"""What the modules refuse, in one line that says what to do."""

import flax.linen as nn
import jax
from flax import nnx

from lnrepro import functional, linen
from lnrepro import nnx as lnnx
from tests.modules.adaptor import D, H, X, each_package, refused

LEARNED = functional.stack(functional.LSTMCell(H, learned_carry=True))


@each_package
def test_unknown_options_and_values(package):
    with refused(TypeError, "unexpected keyword argument 'peephole'"):
        package.named("LSTM", peephole=True)
    with refused(ValueError, "norm='group'; choose one of", "not in modules"):
        package.named("LSTMCell", norm="group")
    with refused(ValueError, "batch norm", "functional.track"):
        package.named("LSTM", norm="batch")
    with refused(ValueError, "batch norm", "functional.track"):
        package.rnn(functional.GRUCell(H, "batch"))


def test_a_norm_by_position():
    for make in (linen.LSTM, linen.GRUCell, linen.SimpleRNN):
        with refused(TypeError, "only sizes may be given by position", "norm='layer'"):
            make(H, "layer")


def test_weights_of_flax_lead_to_the_converter():
    theirs = nn.RNN(nn.GRUCell(H)).init(jax.random.key(0), X)
    with refused(ValueError, "params has no 'bias'", "lnrepro.convert.load"):
        linen.RNN(linen.GRUCell(H, norm="none")).apply(theirs, X)


def test_sizes():
    for make in (linen.LSTM, linen.GRUCell):
        with refused(ValueError, "features=0; it must be a positive integer"):
            make(0).initialize_carry(None, (2, D))
    with refused(ValueError, "features=0; it must be a positive integer"):
        lnnx.LSTM(D, 0, rngs=nnx.Rngs(0))
    with refused(TypeError, "float"):
        lnnx.LSTM(3.5, H, rngs=nnx.Rngs(0))


class Overridden(linen.GRUCell):
    """Its call would not be run."""

    def __call__(self, carry, inputs):
        return carry, inputs


def test_rnn_refuses_other_cells():
    for cell in (nn.GRUCell(H), linen.GRU(H), Overridden(H), linen.GRUCell):
        with refused(TypeError, r"use flax\.linen\.RNN"):
            linen.RNN(cell)
    rngs = nnx.Rngs(0)
    for cell in (nnx.GRUCell(D, H, rngs=rngs), lnnx.GRU(D, H, rngs=rngs)):
        with refused(TypeError, r"use flax\.nnx\.RNN"):
            lnnx.RNN(cell)
    for given in ({}, {"in_features": D}, {"rngs": rngs}):
        with refused(ValueError, "needs in_features"):
            lnnx.RNN(functional.GRUCell(H), **given)


@each_package
def test_a_layer_over_a_sequence_is_no_cell(package):
    layer = package.named("LSTM")
    carry = layer.initialize_carry()
    with refused(TypeError, r"LSTM runs over a sequence", r"step\(carry, x\)"):
        layer.apply(carry, X[:, 0])
    rnn = nn.RNN if package.package is linen else nnx.RNN
    with refused(TypeError, "LSTM runs over a sequence", "such as LSTMCell"):
        around = rnn(layer.module)
        around.init(jax.random.key(0), X) if rnn is nn.RNN else around(X)


def test_a_learned_carry_needs_the_parameters():
    for module in (linen.RNN(LEARNED), linen.FunctionalCell(LEARNED)):
        with refused(ValueError, "learned carry", "bind"):
            module.initialize_carry(jax.random.key(0), X[:, 0].shape)
