"""The LSTM (eq. 17-22 and 29-31)."""

import dataclasses

import jax
import jax.numpy as jnp

from lnrepro.functional.arguments import choice
from lnrepro.functional.arrays import add_row, at_least_f32, row
from lnrepro.functional.cells.base import (
    Activation,
    ParamSpec,
    Prepared,
    clip_gradient,
)
from lnrepro.functional.cells.gated import GatedCell, zeros
from lnrepro.functional.cells.sites import Normaliser, Site


@dataclasses.dataclass(frozen=True)
class LSTMCell(GatedCell):
    """LSTM with H = features hidden units; carry (c, h), gate order f, i, o, g.

        (f, i, o, g) = N_h(W_h h_{t-1}) + N_x(W_x x_t) + b               (eq. 20)
        c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)                (eq. 21)
        h_t = sigmoid(o) * tanh(N_c(c_t))                                (eq. 22)

    The norm decides what stands at the three sites N_x, N_h and N_c:

        none        nothing
        layer       layer norm at all three, over all 4H gates jointly (eq. 20-22)
        layer_cell  layer norm at N_c alone (DRAW, eq. 29-31)
        rms         RMS norm at all three
        batch       batch norm at all three with statistics of each time step, gain 0.1,
                    a bias at N_c only (Cooijmans et al. 2016)
        weight      the two kernels are weight-normalised

    norm_site="joint" puts one norm on the sum of both products:

        (f, i, o, g) = N_joint(W_h h_{t-1} + W_x x_t) + b

    With cell_norm="carry", this is the LSTM of speech transducers (torchaudio's RNN-T).
    b takes the place of the joint norm's bias.

    Parameters: w_x [D, 4H], w_h [H, 4H], bias [4H]; gain_x, bias_x, gain_h, bias_h
    [4H], gain_c, bias_c [H] as the norm asks for; length_x, length_h [4H] for weight
    norm; peephole [3, H]; inner_bias [4H]; h0, c0 [H]. norm_site="joint" has gain_joint
    [4H] in place of gain_x, bias_x, gain_h and bias_h.

    Attributes:
      norm_site: "products" normalises each product by itself, as the paper does;
        "joint" their sum. For the norms none, layer, rms and batch.
      cell_norm: "output" carries c_t as it is, as the paper does. "carry" carries
        N_c(c_t), as TensorFlow Addons and torch's fastrnns do.
      forget_bias: is added to the start of the bias of f.
      peephole: whether there are Graves' diagonal weights from c to f and i (of
        c_{t-1}) and o (of c_t). They are not normalised.
      inner_bias: whether W_x x_t has a bias inside its norm, as in the authors' code.
      gradient_clip: limit of the loss's derivative with respect to each pre-activation
        on its way back (Graves 2013, section 2.1); None does not clip. Where the loss
        is scaled, so is that derivative, and the limit should be. It may be traced.
      gate_fn: the function of f, i and o.
      activation_fn: the function of g, and of the cell that the output shows.

    Raises:
      ValueError: an unknown norm or option, an option that the norm does not know,
        features below 1.

    >>> cell = LSTMCell(8, norm="layer")
    >>> params = cell.init(jax.random.key(0), features_in=3)
    >>> sorted(params)[:4]
    ['bias', 'bias_c', 'bias_h', 'bias_x']
    """

    _: dataclasses.KW_ONLY
    norm_site: str = "products"
    cell_norm: str = "output"
    forget_bias: float = 0.0
    peephole: bool = False
    inner_bias: bool = False
    gradient_clip: float | None = None
    gate_fn: Activation = jax.nn.sigmoid

    gates = 4
    carry_names = ("c0", "h0")

    def __post_init__(self):
        """Check the fields."""
        choice("LSTMCell", "cell_norm", self.cell_norm, ("output", "carry"))
        choice("LSTMCell", "norm_site", self.norm_site, ("products", "joint"))
        super().__post_init__()

    def sites_for(self, norm):
        """Both products or their sum, and the cell."""
        gates, c = 4 * self.features, Site(self.features, is_state=True)
        x, h = Site(gates, ("w_x", "inner_bias")), Site(gates, ("w_h",))
        if self.norm_site == "products":
            return {"x": x, "h": h, "c": c}
        # The bias of a joint norm would be that of the cell again.
        joint = Site(gates, x.products + h.products, has_bias=False)
        # A norm of the cell alone has nothing to do at a sum.
        return {"joint": joint} if norm.of_product is None else {"joint": joint, "c": c}

    def extra_specs(self):
        """Specs of the peepholes and of the inner bias."""
        specs = {}
        if self.peephole:
            specs["peephole"] = ParamSpec(zeros, (3, self.features))
        if self.inner_bias:
            specs["inner_bias"] = ParamSpec(zeros, (4 * self.features,))
        return specs

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters; each gate's part of a kernel is drawn by itself."""
        params = super().init(key, features_in, dtype)
        if self.use_bias:
            forget = jnp.asarray(self.forget_bias, params["bias"].dtype)
            params["bias"] = params["bias"].at[: self.features].add(forget)
        return params

    def prepare(self, params):
        """Prepare the kernels, and add up the biases of eq. 20 once per sequence."""
        weights, rest = super().prepare(params)
        # The biases of the two norms and of the cell only occur as a sum.
        for name in ("bias_x", "bias_h"):
            if name in rest:
                rest["bias"] = add_row(at_least_f32(rest.pop(name)), rest, "bias")
        return Prepared(weights, rest)

    def step(self, dot, params, carry, x, context):
        """Take one step: eq. 20 to 22."""
        c, h = carry
        normalise = Normaliser(self.site_norms, params, context)

        # Eq. 20: both products, each under its norm, and the bias.
        x_gates = normalise("x", add_row(dot("w_x", x), params, "inner_bias"))
        h_gates = normalise("h", dot("w_h", h))
        a = x_gates + h_gates
        if self.norm_site == "joint":
            a = normalise("joint", a)
        a = add_row(a, params, "bias")
        if self.gradient_clip is not None:
            a = clip_gradient(a, self.gradient_clip)

        # Eq. 21: the cell.
        f, i, o, g = jnp.split(a, 4, -1)
        if self.peephole:
            f = f + row(params["peephole"][0], f) * c
            i = i + row(params["peephole"][1], i) * c
        # The functions are taken gate by gate: on a CPU this is as fast as one pass.
        new_c = self.gate_fn(f) * c + self.gate_fn(i) * self.activation_fn(g)

        # Eq. 22: the output shows the cell under a norm of its own.
        if self.peephole:
            o = o + row(params["peephole"][2], o) * new_c
        shown_c = normalise("c", new_c)
        new_h = self.gate_fn(o) * self.activation_fn(shown_c)

        # The paper carries c as it is. Other libraries carry the normalised cell.
        carried_c = shown_c if self.cell_norm == "carry" else new_c
        return (carried_c, new_h), normalise.statistics

    def output(self, carry):
        """Return h of the carry (c, h)."""
        return carry[1]
