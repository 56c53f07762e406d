"""The GRU (eq. 23-28)."""

import dataclasses

import jax
import jax.numpy as jnp

from lnrepro.functional.arguments import choice
from lnrepro.functional.arrays import add_row
from lnrepro.functional.cells.base import Activation, ParamSpec
from lnrepro.functional.cells.gated import GatedCell, zeros
from lnrepro.functional.cells.sites import Normaliser, Site


@dataclasses.dataclass(frozen=True)
class GRUCell(GatedCell):
    """GRU with H = features hidden units; carry h, order z, r, candidate.

        (z, r) = N_h(W_h h_{t-1}) + N_x(W_x x_t + b)                     (eq. 26)
        n = tanh(N_x(W x_t + b) + sigmoid(r) * N_h(U h_{t-1}))           (eq. 27)
        h_t = (1 - sigmoid(z)) * h_{t-1} + sigmoid(z) * n                (eq. 28)

    Layer norm spans both gates jointly (2H) and the candidate by itself (H). The bias
    stands on the input projections inside their norm, as in the authors' code; the
    paper prints none. `reset="before"` is Cho's n = tanh(N_x(W x_t + b) +
    N_u(U (sigmoid(r) * h_{t-1}))), whose candidate product is a site "u" of its own.

    The norm is one of none, layer, rms, batch (statistics of each time step, gain 0.1,
    no bias) and weight. One norm of the sum of both products needs a reset gate on the
    whole candidate: that is `DreamerGRUCell`. Libraries that compute
    h_t = u h_{t-1} + (1 - u) n have u = sigmoid(-z): see `lnrepro.convert`.

    Parameters: w_x [D, 3H], w_h [H, 3H], bias [3H]; gain_x, bias_x, gain_h, bias_h [3H]
    as the norm asks for (with reset="before" gain_h, bias_h [2H] and gain_u, bias_u
    [H]); length_x, length_h [3H] for weight norm; bias_recurrent [3H]; h0 [H].

    Attributes:
      reset: "after" multiplies by the reset gate after the product, as the paper does;
        "before" multiplies h_{t-1}, as Cho et al. do.
      recurrent_bias: whether the recurrent products have a bias too, as in torch and
        Keras; with reset="after" and without a norm at that site only.
      gate_fn: the function of z and r.

    Raises:
      ValueError: an unknown norm or option, features below 1, a recurrent bias with a
        norm or before the product.

    >>> GRUCell(8).init(jax.random.key(0), features_in=3)["w_x"].shape
    (3, 24)
    """

    _: dataclasses.KW_ONLY
    reset: str = "after"
    recurrent_bias: bool = False
    gate_fn: Activation = jax.nn.sigmoid

    recurrent_weights = ("w_h", "w_u")
    gates = 3

    def __post_init__(self):
        """Check the fields."""
        choice("GRUCell", "reset", self.reset, ("after", "before"))
        super().__post_init__()
        is_plain = self.site_norms["h"].is_plain and self.reset == "after"
        if self.recurrent_bias and not is_plain:
            raise ValueError(
                "GRUCell: recurrent_bias is for norm='none' or 'weight' and "
                f"reset='after', not {self.norm!r} and {self.reset!r}"
            )

    def sites_for(self, norm):
        """Both products, of which the second is two where the reset comes before."""
        H = self.features
        # Both gates are one group, and the candidate is another.
        x = Site(3 * H, ("w_x", "bias"), (2, 1))
        # Weight norm has one length for every column of w_h, in whichever product.
        if self.reset == "after" or norm.is_plain:
            return {"x": x, "h": x._replace(products=("w_h",))}
        return {"x": x, "h": Site(2 * H, ("w_h",)), "u": Site(H, ("w_u",))}

    def extra_specs(self):
        """Specs of the recurrent bias."""
        if not self.recurrent_bias:
            return {}
        return {"bias_recurrent": ParamSpec(zeros, (3 * self.features,))}

    def by_product(self, params):
        """Return parameters whose w_h is split where both parts have norms."""
        return self._split(params) if "u" in self.site_norms else params

    def prepared(self, params):
        """Return prepared parameters; w_h is split where the reset comes before."""
        params = super().prepared(params)
        is_whole = self.reset == "before" and "w_u" not in params
        return self._split(params) if is_whole else params

    def _split(self, params):
        """The parameters with w_h as the kernels of the gates and of the candidate."""
        w_h, w_u = jnp.split(params["w_h"], [2 * self.features], -1)
        return {**params, "w_h": w_h, "w_u": w_u}

    def step(self, dot, params, carry, x, context):
        """Take one step: eq. 26 to 28."""
        h = carry
        normalise = Normaliser(self.site_norms, params, context)
        # The input's part of the gates (eq. 26) and of the candidate (eq. 27).
        x_part = normalise("x", add_row(dot("w_x", x), params, "bias"))
        x_gates, x_candidate = jnp.split(x_part, [2 * self.features], -1)
        h_part = add_row(normalise("h", dot("w_h", h)), params, "bias_recurrent")
        if self.reset == "after":
            # The reset gate multiplies the product (eq. 27).
            h_gates, product = jnp.split(h_part, [2 * self.features], -1)
            z, r = jnp.split(self.gate_fn(x_gates + h_gates), 2, -1)
            h_candidate = r * product
        else:
            # It multiplies h (Cho et al. 2014).
            z, r = jnp.split(self.gate_fn(x_gates + h_part), 2, -1)
            h_candidate = normalise("u", dot("w_u", r * h))

        # Eq. 27 and 28: the candidate, and the mix of it with the previous h.
        n = self.activation_fn(x_candidate + h_candidate)
        # (1 - z) h + z n with one multiplication less.
        return h + z * (n - h), normalise.statistics
