"""The recurrent cells of the world models DreamerV2 and DreamerV3.

In both, the reset gate multiplies the whole pre-activation of the candidate, the part
of the input included, and the update gate has a bias of -1.

Shape letters: D input features, H hidden units, K units of an input layer, G blocks,
P parts of the input.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp

from lnrepro.functional.arrays import add_row, gather_from, zeros_for
from lnrepro.functional.cells.base import (
    Activation,
    ParamSpec,
    Prepared,
    check_params,
    draw,
    split,
)
from lnrepro.functional.cells.gated import GatedCell, NormedCell, zeros
from lnrepro.functional.cells.sites import Norm, Normaliser, Site

lecun_normal = jax.nn.initializers.lecun_normal()


@dataclasses.dataclass(frozen=True)
class DreamerGRUCell(GatedCell):
    """GRU of PlaNet, DreamerV1 and V2; carry h, order reset, candidate, update.

        (r, n, u) = N(W_h h_{t-1} + W_x x_t + b)          one norm over all 3H
        n = tanh(sigmoid(r) * n)
        u = sigmoid(u - 1)
        h_t = u * n + (1 - u) * h_{t-1}

    The norm is none, layer or rms, at the site "joint". DreamerV2 itself has
    norm="layer" with the epsilon of Keras, 1e-3; ports to torch have 1e-3 or 1e-5.

    Parameters: w_x [D, 3H], w_h [H, 3H], bias [3H]; gain_joint, bias_joint [3H] as the
    norm asks for; h0 [H].

    Raises:
      ValueError: an unknown norm or option, features below 1.

    References:
      Hafner et al., Mastering Atari with Discrete World Models, 2021.

    >>> params = DreamerGRUCell(8, "layer").init(jax.random.key(0), features_in=3)
    >>> sorted(params)
    ['bias', 'bias_joint', 'gain_joint', 'w_h', 'w_x']
    """

    gates = 3
    of_sums = True

    def sites_for(self, norm):
        """The sum of both products and the bias."""
        return {"joint": Site(3 * self.features, ("w_x", "bias", "w_h"))}

    def step(self, dot, params, carry, x, context):
        """Take one step."""
        normalise = Normaliser(self.site_norms, params, context)
        x_gates = add_row(dot("w_x", x), params, "bias")
        a = normalise("joint", x_gates + dot("w_h", carry))
        return _mix(a, carry, self.activation_fn), normalise.statistics


@dataclasses.dataclass(frozen=True)
class DreamerBlockGRUCell(NormedCell):
    """GRU of DreamerV3 with block-diagonal weights; carry h.

        y_0 = f(N(W_0 h_{t-1} + b_0))                                  [K]
        y_p = f(N(W_p x_t^p + b_p))          for every part p of x_t   [K]
        s = f(N(V h_{t-1} + U [y_0, y_1, ...] + b_s))                  [H]
        (r, n, u) = W_g s + b_g                                        [3H]

    and then n, u and h_t as in `DreamerGRUCell`. V and W_g are block-diagonal with G
    blocks, and U is dense: every block reads all of y. The gates are not normalised.

    DreamerV3 has two parts of the input, the stochastic state and the action, and
    blocks=8. It divides an action by max(1, |action|), and where an episode begins the
    action is zero as well as h. Both are up to the caller.

    Parameters: w_0 [H, K], w_1 [D_1, K], ...; w_hidden [G, H / G + (1 + P) K, H / G],
    whose blocks are those of V over those of U; w_gates [G, H / G, 3H / G];
    inner_bias_0 [K], ..., inner_bias_hidden [H]; bias_gates [3H] in the order r, n, u;
    gain_0 [K], ..., gain_hidden [H], and for layer norm bias_0, ..., bias_hidden.

    Attributes:
      features: H, the number of hidden units.
      hidden_features: K, the number of units of each input layer.
      input_sizes: numbers of features of the parts of the input, which is their
        concatenation.
      norm: "rms" as in DreamerV3, "layer" or "none", or a `Norm` of your own.
      blocks: G, the number of blocks.
      epsilon: added to the mean squares under the root.
      hidden_fn: f, the function of the hidden layers.

    Raises:
      ValueError: an unknown norm, features below 1, blocks that do not divide features,
        inputs whose features are not the sum of input_sizes.

    References:
      Hafner et al., Mastering Diverse Domains through World Models, 2023.

    >>> cell = DreamerBlockGRUCell(16, hidden_features=4, input_sizes=(3, 2), blocks=8)
    >>> params = cell.init(jax.random.key(0), features_in=5)
    >>> params["w_hidden"].shape, params["w_gates"].shape
    ((8, 14, 2), (8, 2, 6))
    """

    features: int
    _: dataclasses.KW_ONLY
    hidden_features: int
    input_sizes: tuple[int, ...]
    norm: str | Norm = "rms"
    blocks: int = 8
    epsilon: float = 1e-4
    hidden_fn: Activation = jax.nn.silu

    recurrent_weights = ("w_h", "w_0")
    of_sums = True

    def __post_init__(self):
        """Check the fields."""
        # A cell is hashed where it is a static argument of `jax.jit`.
        object.__setattr__(self, "input_sizes", tuple(self.input_sizes))
        super().__post_init__()
        if self.features % self.blocks:
            raise ValueError(
                f"{type(self).__name__}: blocks={self.blocks} must divide "
                f"features={self.features}"
            )

    def sites_for(self, norm):
        """The input layers "0", "1" and so on, and "hidden"."""
        # These norms stand behind a bias and take the mean out themselves.
        layers = map(str, range(1 + len(self.input_sizes)))
        layer = Site(self.hidden_features)
        hidden = Site(self.features)
        return dict.fromkeys(layers, layer) | {"hidden": hidden}

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters; features_in is the sum of input_sizes."""
        # The parameters do not depend on it, so that nothing else would notice.
        if features_in != sum(self.input_sizes):
            raise ValueError(
                f"DreamerBlockGRUCell: inputs have {features_in} features, but "
                f"input_sizes={self.input_sizes} add up to {sum(self.input_sizes)}"
            )
        return draw(self._specs(), key, dtype)

    def _specs(self):
        H, K, G = self.features, self.hidden_features, self.blocks
        # The first input layer reads h, the others a part of the input.
        specs = {}
        for i, size in enumerate((H, *self.input_sizes)):
            specs[f"w_{i}"] = ParamSpec(lecun_normal, (size, K))
        # A block of W_hidden reads its part of h, and all of y.
        rows = H // G
        inputs = rows + len(specs) * K
        specs["w_hidden"] = ParamSpec(lecun_normal, (G, inputs, rows))
        specs["w_gates"] = ParamSpec(lecun_normal, (G, rows, 3 * rows))
        for site, norm in self.site_norms.items():
            specs[f"inner_bias_{site}"] = ParamSpec(zeros, (norm.size,))
        specs["bias_gates"] = ParamSpec(zeros, (3 * H,))
        return specs | self.norm_specs()

    def initial_carry(self, params, x):
        """Return zeros [..., H]."""
        del params
        return zeros_for(x, self.features)

    def prepare(self, params):
        """Take the hidden layer's kernel apart into V, which is blocks, and U.

        Raises:
          ValueError: parameters that belong to a cell with other options.
        """
        check_params(type(self).__name__, params, self._specs())
        weights, rest = split(params)
        rows = self.features // self.blocks
        # An Explicit mesh may split the blocks, but not what is inside of a block.
        hidden, gates = (
            gather_from(weights.pop(name), 1) for name in ("w_hidden", "w_gates")
        )
        weights["w_h"], u = jnp.split(hidden, [rows], 1)
        # U maps the same inputs to all blocks, so that it is one dense matrix.
        u = jnp.moveaxis(gather_from(u, 0), 0, 1)
        weights["w_y"] = u.reshape(u.shape[0], self.features)
        # Blocks of three gates [G, H / G, 3 H / G], of which `dot` joins equal gates.
        weights["w_gates"] = gates.reshape(self.blocks, rows, 3, rows)
        return Prepared(weights, rest)

    def _layer(self, normalise, site, product):
        """A hidden layer after its product: f(N(product + b))."""
        a = add_row(product, normalise.params, f"inner_bias_{site}")
        return self.hidden_fn(normalise(site, a))

    def step(self, dot, params, carry, x, context):
        """Take one step."""
        normalise = Normaliser(self.site_norms, params, context)
        ends = itertools.accumulate(self.input_sizes)
        parts = jnp.split(x, list(ends)[:-1], -1)
        y_of_x = [
            self._layer(normalise, str(i), dot(f"w_{i}", part))
            for i, part in enumerate(parts, start=1)
        ]
        y_0 = self._layer(normalise, "0", dot("w_0", carry))
        y = jnp.concatenate([y_0, *y_of_x], -1)
        # V h and U y are one product in DreamerV3, of blocks that each hold all of y.
        total = dot("w_h", carry) + dot("w_y", y)
        gates = dot("w_gates", self._layer(normalise, "hidden", total))
        new_h = _mix(add_row(gates, params, "bias_gates"), carry)
        return new_h, normalise.statistics


def _mix(a, h, activation_fn=jnp.tanh):
    """Return h_t from the pre-activations a [..., 3H] and h_{t-1} [..., H]."""
    r, n, u = jnp.split(a, 3, -1)
    # The reset gate multiplies the input's part of the candidate as well.
    n = activation_fn(jax.nn.sigmoid(r) * n)
    # A bias of -1 lets h change slowly at the start of training.
    u = jax.nn.sigmoid(u - 1)
    # u n + (1 - u) h with one multiplication less.
    return h + u * (n - h)
