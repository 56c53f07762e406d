"""The base of cells of two products: fields, parameters and preparation."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp

from lnrepro.functional.arguments import positive_integer
from lnrepro.functional.arrays import row, zeros_for
from lnrepro.functional.cells.base import (
    Initializer,
    ParamSpec,
    check_params,
    draw,
    split,
)
from lnrepro.functional.cells.sites import Norm, NormedCell, site_specs

glorot_uniform = jax.nn.initializers.glorot_uniform()
orthogonal = jax.nn.initializers.orthogonal()
zeros = jax.nn.initializers.zeros


@dataclasses.dataclass(frozen=True)
class GatedCell(NormedCell):
    """A cell of two products, W_x x_t and W_h h_{t-1}, with norms at its sites.

    Attributes:
      features: H, the number of hidden units.
      norm: name of the norm, or a `Norm` of your own. With layer norm over one unit,
        that unit is always 0.
      use_bias: whether there is a bias on the pre-activations.
      learned_carry: whether the carry before the first step is learned (it starts at
        0), in place of zeros.
      epsilon: added to the variances under the root.
      activation_fn: the function of the candidate.
      kernel_init: initialiser of each gate's part of w_x [D, N].
      recurrent_kernel_init: initialiser of each gate's part of w_h [H, N].
      bias_init: initialiser of the bias.
      scale_init: initialiser of the gains; None means 1, and 0.1 for batch norm.
    """

    features: int
    norm: str | Norm = "layer"
    _: dataclasses.KW_ONLY
    use_bias: bool = True
    learned_carry: bool = False
    epsilon: float = 1e-5
    activation_fn: Callable[[jax.Array], jax.Array] = jnp.tanh
    kernel_init: Initializer = glorot_uniform
    recurrent_kernel_init: Initializer = orthogonal
    bias_init: Initializer = zeros
    scale_init: Initializer | None = None

    # Number of gates in a row of pre-activations, names of the learned carry in the
    # order of the carry. Each kind of cell sets its own.
    gates: ClassVar[int]
    carry_names: ClassVar[tuple[str, ...]] = ("h0",)

    def __post_init__(self):
        """Check the fields."""
        positive_integer(type(self).__name__, "features", self.features)
        self.check_norm()

    def extra_specs(self) -> dict[str, ParamSpec]:
        """Specs of the parameters that only this kind of cell has."""
        return {}

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters; each gate's part of a kernel is drawn by itself."""
        positive_integer(type(self).__name__, "features_in", features_in)
        params = draw(self._specs(features_in), key, dtype)
        weights = self.by_product(params)
        for site, norm in self.site_norms.items():
            if "length" in norm.names:
                params[f"length_{site}"] = norm.length(weights[f"w_{site}"])
        return params

    def _specs(self, features_in):
        units = self.gates * self.features
        kernel = _by_gate(self.kernel_init, self.gates)
        recurrent_kernel = _by_gate(self.recurrent_kernel_init, self.gates)
        # The order is part of the interface: each parameter is drawn from the key of
        # its position.
        specs = {
            "w_x": ParamSpec(kernel, (features_in, units)),
            "w_h": ParamSpec(recurrent_kernel, (self.features, units)),
        }
        if self.use_bias:
            specs["bias"] = ParamSpec(self.bias_init, (units,))
        specs |= site_specs(self.site_norms, self.scale_init) | self.extra_specs()
        if self.learned_carry:
            specs |= dict.fromkeys(self.carry_names, ParamSpec(zeros, (self.features,)))
        return specs

    def initial_carry(self, params, x):
        """Return zeros, or the learned carry: h [..., H], or (c, h) for the LSTM."""
        parts = []
        for name in self.carry_names:
            # An array of its own, so that a caller of `jax.jit` may donate it.
            part = zeros_for(x, self.features)
            if self.learned_carry:
                part += row(params[name], part)
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        return tuple(parts)

    def prepare(self, params):
        """Centre or weight-normalise kernels and inner bias, as the norms ask for.

        Raises:
          ValueError: parameters that belong to a cell with other options.
        """
        # Any number of input features is right here; `unroll` compares it with x.
        features_in = params["w_x"].shape[0] if "w_x" in params else 1
        check_params(type(self).__name__, params, self._specs(features_in))
        prepared = self.prepared(params)
        # The step does not read these. Leaving them out spares the backward pass sums
        # over time that would be zero.
        for name in self.carry_names:
            prepared.pop(name, None)
        for site, norm in self.site_norms.items():
            if norm.is_plain:
                prepared.pop(f"length_{site}", None)
        return split(prepared)

    def output(self, carry):
        """Return h, the carry itself."""
        return carry

    @property
    def learns_carry(self):
        """The field `learned_carry`."""
        return self.learned_carry


def _by_gate(initializer, gates):
    """An initialiser of a kernel that draws each gate's columns by themselves."""

    def init(key, shape, dtype):
        of_gate = (*shape[:-1], shape[-1] // gates)
        keys = jax.random.split(key, gates)
        return jnp.concatenate([initializer(k, of_gate, dtype) for k in keys], -1)

    return init
