"""The simple recurrent network (eq. 4)."""

import dataclasses

from lnrepro.functional.arrays import add_row
from lnrepro.functional.cells.gated import GatedCell
from lnrepro.functional.cells.sites import Normaliser, Site


@dataclasses.dataclass(frozen=True)
class SimpleCell(GatedCell):
    """Simple recurrent cell with H = features hidden units; carry h.

        a_t = W_h h_{t-1} + W_x x_t
        h_t = tanh(N(a_t) + b)                                           (eq. 4)

    norm="layer" and "rms" stand at the site "joint", the sum of both products, with a
    gain and without a bias. "batch" normalises the two products apart (Cooijmans et
    al. 2016), "weight" the two kernels.

    Parameters: w_x [D, H], w_h [H, H], bias [H]; gain_joint, or gain_x and gain_h, [H];
    length_x, length_h [H] for weight norm; h0 [H].

    Raises:
      ValueError: an unknown norm, features below 1.
    """

    gates = 1

    def sites_for(self, norm):
        """Both products, or their sum; the bias of the norm would be the cell's."""
        site = Site(self.features, ("w_x", "w_h"), has_bias=False)
        if not norm.splits_sums:
            return {"joint": site}
        return {name: site._replace(products=(f"w_{name}",)) for name in ("x", "h")}

    def step(self, dot, params, carry, x, context):
        """Take one step: eq. 4."""
        h = carry
        normalise = Normaliser(self.site_norms, params, context)
        # Sites without a norm return what they get, so that one line serves all norms.
        products = normalise("x", dot("w_x", x)) + normalise("h", dot("w_h", h))
        a = normalise("joint", products)
        new_h = self.activation_fn(add_row(a, params, "bias"))
        return new_h, normalise.statistics
