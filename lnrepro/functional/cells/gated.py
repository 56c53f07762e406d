"""The base of cells of two products: fields, parameters and preparation."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp

from lnrepro.functional.cells.base import (
    Cell,
    Initializer,
    ParamSpec,
    Prepared,
    StepContext,
    check_params,
    check_rate,
    choice,
    draw,
    positive_integer,
    row,
    zeros_for,
)
from lnrepro.functional.cells.sites import (
    NORMS,
    PRODUCT_NORMS,
    Norm,
    Normaliser,
    add_row,
    site_params,
    site_specs,
)
from lnrepro.functional.fast.layer_norm import Groups
from lnrepro.functional.norms import check_epsilon

_glorot_uniform = jax.nn.initializers.glorot_uniform()
_orthogonal = jax.nn.initializers.orthogonal()
zeros = jax.nn.initializers.zeros


# Functions of the module, unlike what JAX returns, so that cells can be pickled.
def glorot_uniform(key, shape, dtype=jnp.float32):
    """Draw as jax.nn.initializers.glorot_uniform() does."""
    return _glorot_uniform(key, shape, dtype)


def orthogonal(key, shape, dtype=jnp.float32):
    """Draw as jax.nn.initializers.orthogonal() does."""
    return _orthogonal(key, shape, dtype)


@dataclasses.dataclass(frozen=True)
class GatedCell(Cell):
    """A cell of two products, W_x x_t and W_h h_{t-1}, with norms at its sites.

    Attributes:
      features: H, the number of hidden units.
      norm: name of the norm. With layer norm over one unit, that unit is always 0.
      use_bias: whether there is a bias on the pre-activations.
      learned_carry: whether the carry before the first step is learned (it starts at
        0), in place of zeros.
      recurrent_dropout: probability of dropping a unit of the candidate, anew in every
        step of training (Semeniuta et al. 2016).
      epsilon: added to the variances under the root.
      activation_fn: the function of the candidate.
      kernel_init: initialiser of each gate's part of w_x [D, N].
      recurrent_kernel_init: initialiser of each gate's part of w_h [H, N].
      bias_init: initialiser of the bias.
      scale_init: initialiser of the gains; None means 1, and 0.1 for batch norm.
    """

    features: int
    norm: str = "layer"
    _: dataclasses.KW_ONLY
    use_bias: bool = True
    learned_carry: bool = False
    recurrent_dropout: float = 0.0
    epsilon: float = 1e-5
    activation_fn: Callable[[jax.Array], jax.Array] = jnp.tanh
    kernel_init: Initializer = glorot_uniform
    recurrent_kernel_init: Initializer = orthogonal
    bias_init: Initializer = zeros
    scale_init: Initializer | None = None

    # Number of gates in a row of pre-activations, names of the learned carry in the
    # order of the carry, and names of the norms. Each kind of cell sets its own.
    gates: ClassVar[int]
    carry_names: ClassVar[tuple[str, ...]] = ("h0",)
    norm_names: ClassVar[tuple[str, ...]] = PRODUCT_NORMS
    # Name of the bias that stands inside the norm of a product.
    inner_bias_name: ClassVar[str] = "inner_bias"

    def __post_init__(self):
        """Check the fields."""
        name = type(self).__name__
        # Any integral type is welcome; the field then holds an int, so that cells of
        # equal numbers are equal.
        features = positive_integer(name, "features", self.features)
        object.__setattr__(self, "features", features)
        choice(name, "norm", self.norm, self.norm_names)
        check_rate(f"{name}: recurrent_dropout", self.recurrent_dropout)
        check_epsilon(name, self.epsilon)

    def norm_of_product(self, use_bias: bool = True, groups: Groups = (1,)) -> Norm:
        """Return the norm of a product, over groups of its units."""
        return NORMS[self.norm].of_product(self.epsilon, use_bias, groups)

    def site_norms(self) -> dict[str, Norm]:
        """The norm at every site of the cell."""
        raise TypeError(f"{type(self).__name__} does not define site_norms")

    def site_sizes(self) -> dict[str, int]:
        """The number of units at every site."""
        units = self.gates * self.features
        return {"x": units, "h": units, "joint": units}

    def extra_specs(self) -> dict[str, ParamSpec]:
        """Specs of the parameters that only this kind of cell has."""
        return {}

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters; each gate's part of a kernel is drawn by itself."""
        features_in = positive_integer(type(self).__name__, "features_in", features_in)
        params = draw(self._specs(features_in), key, dtype)
        # Weight norm starts from the fresh kernels, so that the function is preserved.
        for site in ("x", "h"):
            norm = self.site_norms()[site]
            for name, value in norm.init_from_weight(params[f"w_{site}"]).items():
                params[f"{name}_{site}"] = value
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
        norms = self.site_norms()
        specs |= site_specs(norms, self.site_sizes(), self.scale_init)
        for site in ("x", "h"):
            for name in norms[site].names_from_weight:
                specs[f"{name}_{site}"] = ParamSpec(None, (units,))
        specs |= self.extra_specs()
        if self.learned_carry:
            for name in self.carry_names:
                specs[name] = ParamSpec(zeros, (self.features,))
        return specs

    def initial_carry(self, params, x):
        """Return zeros, or the learned carry: h [..., H], or (c, h) for the LSTM."""
        # Each part is an array of its own, so that a caller of `jax.jit` may donate it.
        parts = [zeros_for(x, self.features) for _ in self.carry_names]
        if self.learned_carry:
            parts = [
                zero + row(params[name], zero)
                for zero, name in zip(parts, self.carry_names, strict=True)
            ]
        return tuple(parts) if len(parts) > 1 else parts[0]

    def prepare(self, params):
        """Centre or weight-normalise kernels and inner bias, as the norms ask for.

        Raises:
          ValueError: parameters that belong to a cell with other options.
        """
        name = type(self).__name__
        check_params(name, params, self._specs(_features_in(params)))
        norms = self.site_norms()
        w_x = norms["x"].prepare(site_params(params, "x"), params["w_x"])
        # The mean of a sum is zero where both kernels are centred, so the norm of the
        # sum prepares them both.
        weights = {"w_x": norms["joint"].prepare({}, w_x)}
        weights |= self.prepare_recurrent(params)
        # The step does not read these. Leaving them out spares the backward pass sums
        # over time that would be zero.
        only_here = {"w_x", "w_h", "length_x", "length_h", "h0", "c0"}
        rest = {n: value for n, value in params.items() if n not in only_here}
        # The inner bias is added to W_x x before its norm, so it is prepared as W_x is.
        if (name := self.inner_bias_name) in rest:
            inner_bias = norms["x"].prepare_bias(rest[name])
            rest[name] = norms["joint"].prepare_bias(inner_bias)
        return Prepared(weights, rest)

    def prepare_recurrent(self, params: dict) -> dict[str, jax.Array]:
        """Return the prepared weights that multiply h_{t-1}, by their names."""
        norms = self.site_norms()
        w_h = norms["h"].prepare(site_params(params, "h"), params["w_h"])
        return {"w_h": norms["joint"].prepare({}, w_h)}

    def project(self, dot, params, x):
        """Return N_x(W_x x), [..., N], with the inner bias under the norm."""
        product = add_row(dot("w_x", x), params, self.inner_bias_name)
        norm = self.site_norms()["x"]
        # Batch norm knows the mask and the statistics of the step only.
        if norm.has_batch_statistics:
            return product
        return norm.apply(site_params(params, "x"), product, None, None)[0]

    def output(self, carry):
        """Return h, the carry itself."""
        return carry

    def normaliser(self, params: dict, context: StepContext) -> Normaliser:
        """Return the norms of this step as a function of (site, values)."""
        return Normaliser(self.site_norms(), params, context)

    @property
    def sites(self):
        """The sites of batch norm and their sizes, {} without batch norm."""
        sizes = self.site_sizes()
        return {
            site: sizes[site]
            for site, norm in self.site_norms().items()
            if norm.has_batch_statistics
        }

    @property
    def is_noisy(self):
        """Whether recurrent dropout draws random numbers."""
        return self.recurrent_dropout > 0

    @property
    def learns_carry(self):
        """The field `learned_carry`."""
        return self.learned_carry


def _features_in(params):
    """The number of input features that parameters are made for."""
    shape = params["w_x"].shape if "w_x" in params else ()
    return shape[0] if shape else 1


def _by_gate(initializer, gates):
    """An initialiser of a kernel that draws each gate's columns by themselves."""

    def init(key, shape, dtype):
        of_gate = (*shape[:-1], shape[-1] // gates)
        keys = jax.random.split(key, gates)
        return jnp.concatenate([initializer(k, of_gate, dtype) for k in keys], -1)

    return init
