"""The bases of cells: norms at the sites of a table, and cells of two products."""

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lnrepro.functional.arguments import positive_integer
from lnrepro.functional.arrays import at_least_f32, row, zeros_for
from lnrepro.functional.cells.base import (
    Activation,
    Cell,
    Initializer,
    ParamSpec,
    check_params,
    draw,
    split,
)
from lnrepro.functional.cells.sites import NORMS, PARAMETERS, Norm, Site, site_params

glorot_uniform = jax.nn.initializers.glorot_uniform()
orthogonal = jax.nn.initializers.orthogonal()
zeros = jax.nn.initializers.zeros


class NormedCell(Cell):
    """A cell whose norm stands at the sites of a table.

    Attributes:
      norm: name of the norm, or a `Norm` of your own.
      epsilon: added to the variances under the root.
      of_sums: whether the cell normalises the sums of its products only.
      scale_init: initialiser of the gains; None takes each norm's own.
    """

    norm: str | Norm
    epsilon: Any
    of_sums: ClassVar[bool] = False
    scale_init: Initializer | None = None

    def sites_for(self, norm: Norm) -> dict[str, Site]:
        """Return the table of the sites, in the order of their parameters."""
        raise NotImplementedError

    def __post_init__(self):
        """Check the fields, and that the cell can apply the norm."""
        cell = type(self).__name__
        positive_integer(cell, "features", self.features)
        reason = self._refusal(norm_of(self.norm))
        if reason is not None:
            names = [repr(n) for n in NORMS if self._refusal(NORMS[n]) is None]
            raise ValueError(
                f"{cell}: norm={self.norm!r}{reason}; choose one of {', '.join(names)} "
                "('batch' runs by functions alone, not in modules), or give a "
                "functional.Norm"
            )

    def _refusal(self, norm):
        """Why the cell cannot apply a norm; None where it can."""
        if not isinstance(norm, Norm):
            return ""
        if type(norm) is Norm:
            return None
        table = self._placed(norm)
        # `Norm.at` gives a plain norm where this one has no place.
        stands = type(norm) in map(type, table.values())
        if not stands or (self.of_sums and norm.splits_sums):
            return f" has no place at the sites {', '.join(table)}"
        prepares = type(norm).prepare is not Norm.prepare
        if norm.is_plain and not (
            prepares and any(one.products for one in table.values())
        ):
            return " does nothing at its sites"
        # Where it has no place stands a plain norm, which has nothing to check.
        for one in table.values():
            if unknown := set(one.names) - set(PARAMETERS):
                return f" has parameters {unknown}; they may be {PARAMETERS}"
            weights = "".join(one.products).count("w_")
            if "length" in one.names and weights != 1:
                return " has a length where there is more than one product, or none"
            if prepares and norm.of_state is None and not one.is_product:
                return " prepares weights, which this cell does not give to it"
        return None

    @functools.cached_property
    def site_norms(self) -> dict[str, Norm]:
        """The norm at each site of the table, a plain `Norm` where there is none."""
        return self._placed(norm_of(self.norm))

    def _placed(self, norm):
        """{site: the norm there}."""
        placed = {}
        for name, site in self.sites_for(norm).items():
            placed[name] = norm.at(site, self.epsilon)
        return placed

    def norm_specs(self) -> dict[str, ParamSpec]:
        """Return the specs of the norms' parameters, with names such as "gain_x"."""
        specs = {}
        for site, norm in self.site_norms.items():
            # A length starts from the fresh weight: see `Norm.length`.
            gain = self.scale_init or norm.gain_init
            starts = {"gain": gain, "bias": zeros, "length": None}
            for name in norm.names:
                specs[f"{name}_{site}"] = ParamSpec(starts[name], (norm.size,))
        return specs

    def output(self, carry):
        """Return h, the carry itself."""
        return carry

    def by_product(self, params: dict) -> dict:
        """Return parameters whose weights are those that the sites name."""
        return params

    def prepared(self, params: dict) -> dict:
        """Return parameters whose weights are prepared as the norms ask for."""
        params = dict(self.by_product(params))
        for site, norm in self.site_norms.items():
            own = site_params(params, site)
            for name in norm.products:
                if name in params:
                    # A bias inside of a norm is added in float32 at least.
                    value = params[name]
                    value = at_least_f32(value) if value.ndim == 1 else value
                    params[name] = norm.prepare(own, value)
        return params

    @property
    def sites(self):
        """The sites of batch norm and their sizes, {} without batch norm."""
        sites = {}
        for site, norm in self.site_norms.items():
            if norm.has_statistics:
                sites[site] = norm.size
        return sites


def norm_of(norm: Any) -> Any:
    """Return the norm of a name, None of an unknown one; or the norm itself."""
    return NORMS.get(norm) if isinstance(norm, str) else norm


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
    activation_fn: Activation = jnp.tanh
    kernel_init: Initializer = glorot_uniform
    recurrent_kernel_init: Initializer = orthogonal
    bias_init: Initializer = zeros
    scale_init: Initializer | None = None

    # Number of gates in a row of pre-activations, names of the learned carry in the
    # order of the carry. Each kind of cell sets its own.
    gates: ClassVar[int]
    carry_names: ClassVar[tuple[str, ...]] = ("h0",)

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
        specs |= self.norm_specs() | self.extra_specs()
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
