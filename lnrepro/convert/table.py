"""The layouts of all libraries, by library and cell.

Our gates are f, i, o, g (LSTM), z, r, n (GRU) and r, n, u (Dreamer). Most libraries
compute h_t = u h_{t-1} + (1 - u) n in a GRU, where we compute
h_t = (1 - z) h_{t-1} + z n. So u = sigmoid(-z): the weights of z change sign.

A new library is a new entry. The equations of the entries stand in
tests/convert/libraries.py; those of Flax are its own cells, which the tests run.
"""

import jax

from lnrepro.convert.arrays import listed
from lnrepro.convert.layout import Layout, Row, needs
from lnrepro.functional import (
    Cell,
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    SimpleCell,
)

LSTM_ORDER = "f i o g"
GRU_ORDER = "z r n"


def _kernels(w_x, w_h, gates="", transposed=False):
    """Rows of the two kernels."""
    return Row(w_x, "w_x", gates, transposed), Row(w_h, "w_h", gates, transposed)


# torch.nn.LSTM, GRU and RNN: docs.pytorch.org/docs/stable/nn. One layer and direction.
def _torch(gates, second_bias, order="", **options):
    kernels = _kernels("weight_ih", "weight_hh", gates, transposed=True)
    return Layout(
        (*kernels, Row("bias_ih", "bias", gates), second_bias),
        order,
        needs(**options),
        suffix="_l0",
        separator=".",
    )


# keras.layers.LSTM, GRU and SimpleRNN: keras.io/api/layers/recurrent_layers. A GRU
# with reset_after=True has a bias [2, 3 H] of both products.
def _keras(gates, order="", **options):
    kernels = _kernels("kernel", "recurrent_kernel", gates)
    bias = Row("bias", "bias bias_recurrent", gates)
    return Layout((*kernels, bias), order, needs(**options))


# flax.linen and flax.nnx: flax.readthedocs.io. They have a layer for each gate, or one
# for all gates. nnx writes "if_", since "if" is a word of Python.
def _flax_lstm(forget):
    rows = []
    for gate in "ifgo":
        layer = forget if gate == "f" else f"i{gate}"
        rows += _kernels(f"{layer}:kernel", f"h{gate}:kernel", gate)
        rows.append(Row(f"h{gate}:bias", "bias", gate))
    return Layout(tuple(rows), LSTM_ORDER, needs(use_bias=True))


def _flax_gru():
    rows = []
    for gate in ("r", "-z", "n"):
        letter = gate[-1]
        rows += _kernels(f"i{letter}:kernel", f"h{letter}:kernel", gate)
        rows.append(Row(f"i{letter}:bias", "bias", gate))
    # Only the candidate's recurrent layer has a bias.
    rows.append(Row("hn:bias", "bias_recurrent", "n"))
    for gate in ("r", "-z"):
        rows.append(Row(f"i{gate[-1]}:bias", "bias_recurrent", gate, only="dump"))
    options = needs(use_bias=True, reset="after", recurrent_bias=True)
    return Layout(tuple(rows), GRU_ORDER, options)


def _flax_rnn(inputs, recurrent):
    rows = _kernels(f"{inputs}:kernel", f"{recurrent}:kernel")
    return Layout((*rows, Row(f"{inputs}:bias", "bias")), needs=needs(use_bias=True))


def _nnx(gates, biased, order, **options):
    rows = _kernels("dense_i:kernel", "dense_h:kernel", gates)
    bias = Row(f"{biased}:bias", "bias", gates)
    return Layout((*rows, bias), order, needs(use_bias=True, **options))


# haiku.LSTM, GRU and VanillaRNN: dm-haiku.readthedocs.io. The LSTM adds 1 to f.
HAIKU_LSTM = Layout(
    (
        Row("/linear:w", "w_x w_h", "i g f o"),
        Row("/linear:b", "bias", "i g f o"),
    ),
    LSTM_ORDER,
    needs(use_bias=True),
    prefix="lstm",
    separator=":",
    constants={"f": 1.0},
)
HAIKU_GRU = Layout(
    # Haiku's update gate has our sign.
    (*_kernels(":w_i", ":w_h", "z r n"), Row(":b", "bias", "z r n")),
    GRU_ORDER,
    needs(use_bias=True, reset="before", recurrent_bias=False),
    prefix="gru",
    separator=":",
)
HAIKU_RNN = Layout(
    (
        *_kernels("/linear:w", "/linear_1:w"),
        Row("/linear:b", "bias"),
        # It is missing with double_bias=False.
        Row("/linear_1:b", "bias", only="load", optional=True),
    ),
    needs=needs(use_bias=True, activation_fn=jax.nn.relu),
    prefix="vanilla_rnn",
    separator=":",
)


# equinox.nn.LSTMCell and GRUCell: docs.kidger.site/equinox/api/nn/rnn. `vars(cell)`.
def _equinox(gates, *biases, order, **options):
    return Layout(
        (*_kernels("weight_ih", "weight_hh", gates, transposed=True), *biases),
        order,
        needs(**options),
        ignored=("input_size", "hidden_size", "use_bias"),
    )


EQUINOX_GRU = _equinox(
    "r -z n",
    Row("bias", "bias", "r -z n"),
    Row("bias", "bias_recurrent", "r -z _", only="dump"),
    Row("bias_n", "bias_recurrent", "n"),
    order=GRU_ORDER,
    reset="after",
    recurrent_bias=True,
)


# The authors' .npz files: github.com/ryankiros/layer-norm, layers.py.
_AUTHORS_LSTM = "i f o g"
THEANO_LSTM = Layout(
    (
        *_kernels("_W", "_U", _AUTHORS_LSTM),
        # One b stands both inside the norm of W x and outside of it.
        Row("_b", "bias", _AUTHORS_LSTM),
        Row("_b", "inner_bias", _AUTHORS_LSTM, only="load"),
        Row("_s1", "gain_x", _AUTHORS_LSTM),
        Row("_b1", "bias_x", _AUTHORS_LSTM),
        Row("_s2", "gain_h", _AUTHORS_LSTM),
        Row("_b2", "bias_h", _AUTHORS_LSTM),
        Row("_s3", "gain_c"),
        Row("_b3", "bias_c"),
        Row("_h0", "h0"),
    ),
    LSTM_ORDER,
    needs("none", "layer", use_bias=True, inner_bias=True, cell_norm="output")
    | {"learned_carry": (False, True)},
    prefix="lnlstm",
    separator="_",
    # The authors learn h_0 only.
    zeros=("c0",),
)


def _theano_gru(cell):
    # Layer norm takes its statistics over r and z together. A kernel of z with the
    # other sign would change them, so the norm's gain and bias change sign instead.
    has_norm = not cell.site_norms["x"].is_plain
    kernel, norm = ("r z", "r -z") if has_norm else ("r -z", "")
    rows = [
        *_kernels("_W", "_U", kernel),
        Row("_b", "bias", kernel),
        *_kernels("_Wx", "_Ux", "n"),
        Row("_bx", "bias", "n"),
    ]
    for site, of_gates, of_candidate in (("x", 1, 2), ("h", 3, 4)):
        for ours, theirs in (("gain", "s"), ("bias", "b")):
            rows.append(Row(f"_{theirs}{of_gates}", f"{ours}_{site}", norm))
            rows.append(Row(f"_{theirs}{of_candidate}", f"{ours}_{site}", "n"))
    options = needs("none", "layer", use_bias=True, reset="after", recurrent_bias=False)
    return Layout(tuple(rows), GRU_ORDER, options, prefix="lngru", separator="_")


# DreamerV2: github.com/danijar/dreamerv2, common/nets.py, GRUCell. The first version of
# DreamerV3 multiplies [h; x].
def _dreamer(kernels):
    rows = (
        Row("kernel", kernels),
        Row("bias", "bias"),
        Row("norm/scale", "gain_joint"),
        Row("norm/bias", "bias_joint"),
    )
    return Layout(rows, needs=needs("none", "layer"))


# DreamerV3: github.com/danijar/dreamerv3, dreamerv3/rssm.py, RSSM._core.
def _dreamer_block_gru(cell):
    rows = [Row("gru/kernel", "w_gates")]
    inputs = range(1 + len(cell.input_sizes))
    layers = {"hidden": "hid0"} | {i: f"in{i}" for i in inputs}
    for site, layer in layers.items():
        rows.append(Row(f"{layer}/kernel", f"w_{site}"))
        rows.append(Row(f"{layer}/bias", f"inner_bias_{site}"))
        rows.append(Row(f"{layer}norm/scale", f"gain_{site}"))
    # In our bias all blocks of a gate stand together, in theirs all gates of a block.
    numbers = range(cell.blocks)
    ours = [f"{gate}{block}" for gate in "rnu" for block in numbers]
    theirs = [f"{gate}{block}" for block in numbers for gate in "rnu"]
    rows.append(Row("gru/bias", "bias_gates", " ".join(theirs)))
    return Layout(
        tuple(rows),
        " ".join(ours),
        {"norm": ("rms",)},
        prefix="dyn",
        features_in=sum(cell.input_sizes),
    )


_TORCH_SUMMED = Row("bias_hh", "bias", "i f g o", only="load")
_TORCH_GRU = Row("bias_hh", "bias_recurrent", "r -z n")
# Both products have a bias, and the reset gate multiplies the one with h.
_AFTER = {"reset": "after", "recurrent_bias": True}

# An entry is a layout, or a function that makes it for a cell.
TABLE = {
    ("torch", LSTMCell): _torch("i f g o", _TORCH_SUMMED, LSTM_ORDER),
    ("torch", GRUCell): _torch("r -z n", _TORCH_GRU, GRU_ORDER, **_AFTER),
    ("torch", SimpleCell): _torch("", Row("bias_hh", "bias", only="load")),
    ("keras", LSTMCell): _keras("i f g o", LSTM_ORDER),
    ("keras", GRUCell): _keras("-z r n", GRU_ORDER, recurrent_bias=True),
    ("keras", SimpleCell): _keras(""),
    ("flax", LSTMCell): _flax_lstm("if"),
    ("flax", GRUCell): _flax_gru(),
    ("flax", SimpleCell): _flax_rnn("i", "h"),
    ("nnx", LSTMCell): _flax_lstm("if_"),
    ("nnx_optimized", LSTMCell): _nnx("i f g o", "dense_h", LSTM_ORDER),
    ("nnx", GRUCell): _nnx(
        "r -z n", "dense_i", GRU_ORDER, reset="after", recurrent_bias=False
    ),
    ("nnx", SimpleCell): _flax_rnn("dense_i", "dense_h"),
    ("haiku", LSTMCell): HAIKU_LSTM,
    ("haiku", GRUCell): HAIKU_GRU,
    ("haiku", SimpleCell): HAIKU_RNN,
    ("equinox", LSTMCell): _equinox(
        "i f g o", Row("bias", "bias", "i f g o"), order=LSTM_ORDER
    ),
    ("equinox", GRUCell): EQUINOX_GRU,
    ("theano", LSTMCell): THEANO_LSTM,
    ("theano", GRUCell): _theano_gru,
    ("dreamer", DreamerGRUCell): _dreamer("w_x w_h"),
    ("dreamer_state_first", DreamerGRUCell): _dreamer("w_h w_x"),
    ("dreamer", DreamerBlockGRUCell): _dreamer_block_gru,
}


def layout_of(library: str | Layout, cell: Cell) -> Layout:
    """Find a layout, and check that the cell has the options that it needs.

    Args:
      library: name of the library, or a layout.
      cell: our cell.

    Raises:
      ValueError: an unknown library, or a cell that the library does not have.
    """
    name = type(cell).__name__
    if isinstance(library, Layout):
        layout, library = library, "this layout"
    else:
        layout = TABLE.get((library, type(cell)))
        if layout is None:
            cells = [c.__name__ for known, c in TABLE if known == library]
            raise ValueError(
                f"convert: no layout of {name} in {library!r}; cells there: "
                f"{listed(cells)}; libraries: {listed({known for known, _ in TABLE})}"
            )
        if not isinstance(layout, Layout):
            layout = layout(cell)
    for option, allowed in layout.needs.items():
        value = getattr(cell, option, None)
        if option == "recurrent_bias" and isinstance(cell, GRUCell):
            # It is one of two only beside another bias, and after the product.
            allowed = (allowed[0] and cell.use_bias and cell.reset == "after",)
        if value not in allowed:
            values = " or ".join(map(_shown, allowed))
            raise ValueError(
                f"convert: {library} needs {name} with {option}={values}, not "
                f"{_shown(value)}"
            )
    return layout


def _shown(value):
    """An option's value; the name of a function."""
    return getattr(value, "__name__", repr(value))
