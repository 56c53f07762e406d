"""The norms as objects, and which of them stands at which site of a cell.

A site is a place in a cell's equations where a norm can stand: "x", the projected
input; "h", the projected state; "joint", their sum; "c", the cell that the LSTM's
output shows. A cell applies whatever stands at its sites and does not ask for the
norm's name.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax

from lnrepro.functional import norms
from lnrepro.functional.cells.base import (
    Initializer,
    ParamSpec,
    StepContext,
    row,
    wide,
)
from lnrepro.functional.fast.layer_norm import (
    Groups,
    centre_once,
    layer_norm_centred,
    layer_norm_of_groups,
    layer_norm_of_product,
)

zeros = jax.nn.initializers.zeros
ones = jax.nn.initializers.ones


@dataclasses.dataclass(frozen=True)
class Norm:
    """No norm, and the interface of the others.

    A norm's parameters are a dict with some of the names gain, bias and length.

    Attributes:
      epsilon: added to the variance under the root.
      use_bias: whether the site has a bias of its own.
      groups: sizes of the groups of units that are normalised by themselves, relative
        to each other.
    """

    epsilon: float = 1e-5
    use_bias: bool = True
    groups: Groups = (1,)
    has_batch_statistics: ClassVar[bool] = False
    # Names of what `init_from_weight` returns, one number for each unit of the weight.
    names_from_weight: ClassVar[tuple[str, ...]] = ()

    def init(self, size: int, scale_init: Initializer | None) -> dict[str, ParamSpec]:
        """Return the specs of the parameters of a site.

        Args:
          size: number of units at the site.
          scale_init: initialiser of the gain; None takes the norm's own.
        """
        return {}

    def init_from_weight(self, weight: jax.Array) -> dict[str, jax.Array]:
        """Return parameters that start from the fresh weight of the site's product."""
        return {}

    def prepare(self, params: dict, weight: jax.Array) -> jax.Array:
        """Return the weight of the product at this site, ready to multiply.

        Args:
          params: the site's parameters.
          weight: [D, N].
        """
        return weight

    def prepare_bias(self, bias: jax.Array) -> jax.Array:
        """Return a bias [N] that is added to the product before the norm."""
        return bias

    def apply(
        self, params: dict, a: jax.Array, mask: jax.Array | None, statistics: Any
    ) -> tuple[jax.Array, Any]:
        """Normalise a [..., N].

        Args:
          params: the site's parameters.
          a: the values at the site.
          mask: [...], False at rows that do not count in batch statistics.
          statistics: (mean, var) to use in place of the batch's, or None.

        Returns:
          (the normalised values in float32 at least, batch statistics or None).
        """
        return wide(a), None


@dataclasses.dataclass(frozen=True)
class LayerNorm(Norm):
    """Layer norm of a site that is no product, such as the LSTM's cell (eq. 15-16)."""

    normalise: ClassVar[Callable] = staticmethod(layer_norm_of_groups)

    def init(self, size: int, scale_init: Initializer | None) -> dict[str, ParamSpec]:
        """Return the specs of gain and bias."""
        gain = {"gain": ParamSpec(scale_init or ones, (size,))}
        if not self.use_bias:
            return gain
        return {**gain, "bias": ParamSpec(zeros, (size,))}

    def apply(self, params, a, mask, statistics):
        """Normalise each group of a [..., N]."""
        y = self.normalise(
            a,
            params["gain"],
            params.get("bias"),
            epsilon=self.epsilon,
            groups=self.groups,
        )
        return y, None


@dataclasses.dataclass(frozen=True)
class ProductLayerNorm(LayerNorm):
    """Layer norm of a product v W, whose weight is centred once per sequence.

    Equal to `LayerNorm`: the mean of v W over the units is v times the mean of W's
    columns, so that centring W takes the mean out of every product.
    """

    normalise: ClassVar[Callable] = staticmethod(layer_norm_of_product)

    def prepare(self, params, weight):
        """Centre the weight."""
        return centre_once(weight, groups=self.groups)

    def prepare_bias(self, bias):
        """Centre the bias."""
        return centre_once(bias, groups=self.groups)


@dataclasses.dataclass(frozen=True)
class RMSNorm(LayerNorm):
    """RMS norm: layer norm without subtracting the mean, and without a bias."""

    # It takes the mean for zero, whatever it is.
    normalise: ClassVar[Callable] = staticmethod(layer_norm_centred)

    def init(self, size, scale_init):
        """Return the spec of the gain."""
        return {"gain": ParamSpec(scale_init or ones, (size,))}


@dataclasses.dataclass(frozen=True)
class BatchNorm(Norm):
    """Batch norm with statistics of each time step (Cooijmans et al. 2016)."""

    has_batch_statistics: ClassVar[bool] = True

    def init(self, size, scale_init):
        """Return the specs of the gain, 0.1 by default, and of the bias."""
        # A gain of 1 would saturate tanh and make gradients vanish (Cooijmans et al.).
        start = scale_init or jax.nn.initializers.constant(0.1)
        gain = {"gain": ParamSpec(start, (size,))}
        if not self.use_bias:
            return gain
        return {**gain, "bias": ParamSpec(zeros, (size,))}

    def apply(self, params, a, mask, statistics):
        """Normalise each unit of a [..., N] over the batch."""
        mean, var = (None, None) if statistics is None else statistics
        y, used = norms.batch_norm(
            wide(a),
            params["gain"],
            params.get("bias"),
            mask=mask,
            epsilon=self.epsilon,
            mean=mean,
            var=var,
        )
        # The running statistics move by them, and no gradient flows that way.
        return y, jax.lax.stop_gradient(used)


@dataclasses.dataclass(frozen=True)
class ProductBatchNorm(BatchNorm):
    """Batch norm of a product, which has a gain and no bias."""

    def init(self, size, scale_init):
        """Return the spec of the gain, 0.1 by default."""
        return {"gain": super().init(size, scale_init)["gain"]}


@dataclasses.dataclass(frozen=True)
class WeightNorm(Norm):
    """Weight norm: the weight of the product is normalised once per sequence."""

    names_from_weight: ClassVar[tuple[str, ...]] = ("length",)

    def init_from_weight(self, weight):
        """Start from the column norms, so that the function is preserved."""
        return {"length": norms.weight_norm_preserving(weight)[1]}

    def prepare(self, params, weight):
        """Give every column of the weight its length."""
        return norms.weight_norm(weight, params["length"])


class NormKind(NamedTuple):
    """The norms that a name stands for.

    Attributes:
      of_product: the norm of a product v W, such as W_h h.
      of_state: the norm of what is no product, such as the LSTM's cell.
      joint: whether it may stand on the sum of both products.
    """

    of_product: type[Norm]
    of_state: type[Norm]
    joint: bool = True


# Every norm of every cell. A cell has those that its sites have a place for.
NORMS = {
    "none": NormKind(Norm, Norm),
    "layer": NormKind(ProductLayerNorm, LayerNorm),
    "layer_cell": NormKind(Norm, LayerNorm, joint=False),
    "rms": NormKind(RMSNorm, RMSNorm),
    "batch": NormKind(ProductBatchNorm, BatchNorm),
    "weight": NormKind(WeightNorm, Norm, joint=False),
}
# Norms that do something to products, for cells without a site "c".
PRODUCT_NORMS = tuple(name for name in NORMS if name != "layer_cell")
# Norms of one case by itself, for cells that normalise a sum.
CASE_NORMS = ("none", "layer", "rms")


class Normaliser:
    """Applies the norms of a cell within one step, and collects batch statistics."""

    def __init__(self, site_norms: dict[str, Norm], params: dict, context: StepContext):
        self.site_norms = site_norms
        self.params = params
        self.context = context
        self.collected: dict[str, Any] = {}

    def of_input(self, x_proj: jax.Array) -> jax.Array:
        """Return what `GatedCell.project` returned under the norm at the site x."""
        is_left = self.site_norms["x"].has_batch_statistics
        return self("x", x_proj) if is_left else x_proj

    def __call__(self, site: str, a: jax.Array) -> jax.Array:
        """Normalise the values a [..., N] at a site, in float32 at least."""
        norm = self.site_norms[site]
        known = None
        if norm.has_batch_statistics and self.context.statistics is not None:
            known = self.context.statistics[site]
        y, statistics = norm.apply(
            site_params(self.params, site), a, self.context.mask, known
        )
        if statistics is not None:
            self.collected[site] = statistics
        return y

    @property
    def statistics(self) -> dict[str, Any] | None:
        """The batch statistics {site: (mean, var)}, None without batch norm."""
        return self.collected or None


def site_params(params: dict, site: str) -> dict:
    """Return the parameters of one site, by their short names.

    Args:
      params: parameters of all sites.
      site: name of the site.

    >>> site_params({"gain_x": 1, "gain_h": 2, "bias": 3}, "h")
    {'gain': 2}
    """
    names = ("gain", "bias", "length")
    return {n: params[f"{n}_{site}"] for n in names if f"{n}_{site}" in params}


def site_specs(
    site_norms: dict[str, Norm],
    sizes: dict[str, int],
    scale_init: Initializer | None,
) -> dict[str, ParamSpec]:
    """Return the specs of the norms' parameters of all sites.

    Args:
      site_norms: {site: norm}.
      sizes: {site: number of units}.
      scale_init: initialiser of the gains; None takes each norm's own.

    Returns:
      {name: spec}, with names such as "gain_x".
    """
    specs = {}
    for site, norm in site_norms.items():
        for name, spec in norm.init(sizes[site], scale_init).items():
            specs[f"{name}_{site}"] = spec
    return specs


def add_row(a: jax.Array, params: dict, name: str) -> jax.Array:
    """Add a bias where there is one.

    Args:
      a: [..., N].
      params: parameters, which may have the bias [N].
      name: name of the bias.

    Returns:
      The sum in float32 at least, or a as it is.
    """
    if name not in params:
        return a
    return wide(a) + row(params[name], wide(a))
