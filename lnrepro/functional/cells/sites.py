"""The norms as objects, and which of them stands at which site of a cell.

A site is a place in a cell's equations where a norm can stand: "x", the projected
input; "h", the projected state; "joint", their sum; "c", the cell that the LSTM's
output shows. A cell applies whatever stands at its sites and does not ask for the
norm's name.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax

from lnrepro.functional import norms
from lnrepro.functional.cells.base import Initializer, ParamSpec, StepContext
from lnrepro.functional.fast.layer_norm import (
    Groups,
    centre,
    layer_norm_of_groups,
)
from lnrepro.functional.norms import row, wide

zeros = jax.nn.initializers.zeros


@dataclasses.dataclass(frozen=True)
class Norm:
    """No norm, and the interface of the others.

    Attributes:
      size: number of units at the site.
      epsilon: added to the variance under the root.
      groups: sizes of the groups of units that are normalised by themselves, relative
        to each other.
      names: names of the parameters of the site: some of gain, bias and length.
      gain_init: how the gain starts.
    """

    size: int
    epsilon: float = 1e-5
    groups: Groups = (1,)
    names: tuple[str, ...] = ()
    gain_init: ClassVar[Initializer] = staticmethod(jax.nn.initializers.ones)

    def prepare(self, params: dict, weight: jax.Array) -> jax.Array:
        """Return the weight of the product at this site, ready to multiply.

        Args:
          params: the site's parameters.
          weight: [D, N], or a bias [N] that is added to the product before the norm.
        """
        return weight

    def apply(self, params: dict, a: jax.Array) -> jax.Array:
        """Normalise a [..., N] in float32 at least.

        Args:
          params: the site's parameters.
          a: the values at the site.
        """
        return wide(a)


@dataclasses.dataclass(frozen=True)
class LayerNorm(Norm):
    """Layer norm of a site that is no product, such as the LSTM's cell (eq. 15-16)."""

    names: tuple[str, ...] = ("gain", "bias")
    # Whether the mean of what `apply` gets is zero already.
    is_centred: ClassVar[bool] = False

    def apply(self, params, a):
        """Normalise each group of a [..., N]."""
        return layer_norm_of_groups(
            a,
            params["gain"],
            params.get("bias"),
            epsilon=self.epsilon,
            groups=self.groups,
            is_centred=self.is_centred,
        )


@dataclasses.dataclass(frozen=True)
class ProductLayerNorm(LayerNorm):
    """Layer norm of a product v W, whose weight is centred once per sequence.

    Equal to `LayerNorm`: the mean of v W over the units is v times the mean of W's
    columns, so that centring W takes the mean out of every product.
    """

    is_centred: ClassVar[bool] = True

    def prepare(self, params, weight):
        """Centre the weight or bias."""
        return centre(weight, groups=self.groups)


@dataclasses.dataclass(frozen=True)
class RMSNorm(LayerNorm):
    """RMS norm: layer norm without subtracting the mean, and without a bias."""

    names: tuple[str, ...] = ("gain",)
    # It takes the mean for zero, whatever it is.
    is_centred: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class BatchNorm(Norm):
    """Batch norm with statistics of each time step (Cooijmans et al. 2016)."""

    names: tuple[str, ...] = ("gain", "bias")
    # A gain of 1 would saturate tanh and make gradients vanish (Cooijmans et al.).
    gain_init: ClassVar[Initializer] = staticmethod(jax.nn.initializers.constant(0.1))

    def apply_in_step(
        self, params: dict, a: jax.Array, context: StepContext, site: str
    ) -> tuple[jax.Array, Any]:
        """Normalise each unit of a [..., N] over the batch of a step.

        Args:
          params: the site's parameters.
          a: the values at the site.
          context: its mask is False at rows that do not count, and its statistics, if
            any, take the place of the batch's.
          site: name of the site.

        Returns:
          (the normalised values in float32 at least, the statistics).
        """
        # Without statistics this is training: `batch_norm` takes those of the batch.
        mean, var = (context.statistics or {}).get(site, (None, None))
        y, used = norms.batch_norm(
            # Rounded to bfloat16, the mean of many rows would drift.
            wide(a),
            params["gain"],
            params.get("bias"),
            mask=context.mask,
            epsilon=self.epsilon,
            mean=mean,
            var=var,
        )
        # The running statistics move by them, and no gradient flows that way.
        return y, jax.lax.stop_gradient(used)


@dataclasses.dataclass(frozen=True)
class ProductBatchNorm(BatchNorm):
    """Batch norm of a product, which has a gain and no bias."""

    names: tuple[str, ...] = ("gain",)


@dataclasses.dataclass(frozen=True)
class WeightNorm(Norm):
    """Weight norm: the weight of the product is normalised once per sequence."""

    names: tuple[str, ...] = ("length",)

    def prepare(self, params, weight):
        """Give every column of the weight its length; a bias has none."""
        if "length" not in params:
            return weight
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


def without_bias(norm: Norm) -> Norm:
    """Return a norm whose site has no bias of its own."""
    names = tuple(name for name in norm.names if name != "bias")
    return dataclasses.replace(norm, names=names)


@dataclasses.dataclass
class Normaliser:
    """Applies the norms of a cell within one step, and collects batch statistics.

    Attributes:
      site_norms: {site: norm}.
      params: the parameters of the cell.
      context: the context of the step.
      collected: {site: (mean, var)} of batch norm so far.
    """

    site_norms: dict[str, Norm]
    params: dict
    context: StepContext
    collected: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, site: str, a: jax.Array) -> jax.Array:
        """Normalise the values a [..., N] at a site, in float32 at least."""
        norm, params = self.site_norms[site], site_params(self.params, site)
        if not isinstance(norm, BatchNorm):
            return norm.apply(params, a)
        y, self.collected[site] = norm.apply_in_step(params, a, self.context, site)
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
    site_norms: dict[str, Norm], scale_init: Initializer | None = None
) -> dict[str, ParamSpec]:
    """Return the specs of the norms' parameters of all sites.

    Args:
      site_norms: {site: norm}.
      scale_init: initialiser of the gains; None takes each norm's own.

    Returns:
      {name: spec}, with names such as "gain_x".
    """
    specs = {}
    for site, norm in site_norms.items():
        # A length starts from the fresh weight: see `GatedCell.init`.
        starts = {"gain": scale_init or norm.gain_init, "bias": zeros, "length": None}
        for name in norm.names:
            specs[f"{name}_{site}"] = ParamSpec(starts[name], (norm.size,))
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
    # A narrow product is rounded once, after the sum.
    return wide(a) + row(params[name], wide(a))
