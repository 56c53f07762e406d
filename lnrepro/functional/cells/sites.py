"""The norms as objects, and which of them stands at which site of a cell.

A site is a place in a cell's equations where a norm can stand: "x", the projected
input; "h", the projected state; "joint", their sum; "c", the cell that the LSTM's
output shows. A cell applies whatever stands at its sites and does not ask for the
norm's name.
"""

import dataclasses
from typing import Any, ClassVar

import jax

from lnrepro.functional import norms
from lnrepro.functional.arrays import add_row
from lnrepro.functional.cells.base import Initializer, ParamSpec, StepContext
from lnrepro.functional.fast.layer_norm import (
    Groups,
    centre,
    layer_norm_of_groups,
)

zeros = jax.nn.initializers.zeros


@dataclasses.dataclass(frozen=True)
class Norm:
    """A norm as data, and how it is applied at a site; this one does nothing.

    `LSTMCell(8, norm=...)` takes a name of `NORMS` or such an object. The cell asks it
    for its copy at each site (`at`), and then calls `prepare` once a sequence and
    `apply` in every step. A norm of your own is a frozen dataclass that says where it
    stands (of_product, of_state) and defines `apply`.

    Attributes:
      size: number of units at the site.
      epsilon: added to the variance under the root.
      groups: sizes of the groups of units that are normalised by themselves, relative
        to each other.
      is_product: whether the site is a product v W, such as W_h h.
      names: names of the parameters at the site, [size] each. "gain" starts as
        gain_init says, "bias" at zero and "length" at `length`. The cell itself adds
        the bias.
      of_product: the names at a product, None where the norm does not stand at one.
      of_state: the same at what is no product, such as the LSTM's cell.
      splits_sums: whether it stands on each product of a sum, where a cell has the
        choice, and not on the sum.
      has_statistics: whether `apply` returns statistics of the batch.
      gain_init: how the gain starts.

    >>> from lnrepro.functional import GRUCell
    >>> @dataclasses.dataclass(frozen=True)
    ... class MaxNorm(Norm):
    ...     of_product = ("gain",)
    ...
    ...     def apply(self, params, a, context):
    ...         return a / abs(a).max(-1, keepdims=True) * params["gain"], None
    >>> params = GRUCell(4, norm=MaxNorm()).init(jax.random.key(0), features_in=3)
    >>> sorted(params)
    ['bias', 'gain_h', 'gain_x', 'w_h', 'w_x']
    """

    size: int = 0
    epsilon: float = 1e-5
    groups: Groups = (1,)
    is_product: bool = True
    names: tuple[str, ...] = ()

    of_product: ClassVar[tuple[str, ...] | None] = None
    of_state: ClassVar[tuple[str, ...] | None] = None
    splits_sums: ClassVar[bool] = False
    has_statistics: ClassVar[bool] = False
    gain_init: ClassVar[Initializer] = staticmethod(jax.nn.initializers.ones)

    def at(
        self,
        size: int,
        epsilon: float,
        groups: Groups = (1,),
        is_product: bool = True,
    ) -> "Norm":
        """Return the norm at a site of `size` units."""
        names = self.of_product if is_product else self.of_state
        if names is None:
            return Norm(size)
        return dataclasses.replace(
            self,
            size=size,
            epsilon=epsilon,
            groups=groups,
            is_product=is_product,
            names=names,
        )

    @property
    def is_plain(self) -> bool:
        """Whether `apply` changes nothing: no norm, or one of the weight alone."""
        return type(self).apply is Norm.apply

    def length(self, weight: jax.Array) -> jax.Array:
        """Return the start of the length [N] of a fresh weight [D, N].

        It is that of the weight's columns, so that nothing changes at first.
        """
        return norms.weight_norm_preserving(weight)[1]

    def prepare(self, params: dict, weight: jax.Array) -> jax.Array:
        """Return the weight of the product at this site, ready to multiply.

        Args:
          params: the site's parameters.
          weight: [D, N], or a bias [N] that is added to the product before the norm.
        """
        return weight

    def apply(
        self, params: dict, a: jax.Array, context: StepContext
    ) -> tuple[jax.Array, Any]:
        """Normalise a [..., N].

        Args:
          params: the site's parameters.
          a: the values at the site, in float32 at least.
          context: the context of the step; its statistics are those of the site.

        Returns:
          (the normalised values times the gain; statistics of the batch, or None).
        """
        return a, None


@dataclasses.dataclass(frozen=True)
class LayerNorm(Norm):
    """Layer norm (eq. 15-16). The weight of a product is centred once a sequence.

    The mean of v W over the units is v times the mean of W's columns, so that centring
    W takes the mean out of every product.
    """

    of_product = of_state = ("gain", "bias")

    subtracts_mean = True

    def prepare(self, params, weight):
        """Centre the weight or bias."""
        if not self.subtracts_mean:
            return weight
        return centre(weight, groups=self.groups)

    def apply(self, params, a, context):
        """Normalise each group of a [..., N]."""
        y = layer_norm_of_groups(
            a,
            params["gain"],
            epsilon=self.epsilon,
            groups=self.groups,
            is_centred=self.is_product or not self.subtracts_mean,
        )
        return y, None


@dataclasses.dataclass(frozen=True)
class StateLayerNorm(LayerNorm):
    """Layer norm of the LSTM's cell alone (DRAW, eq. 29-31)."""

    of_product = None


@dataclasses.dataclass(frozen=True)
class RMSNorm(LayerNorm):
    """RMS norm: layer norm without subtracting the mean, and without a bias."""

    of_product = of_state = ("gain",)
    subtracts_mean = False


@dataclasses.dataclass(frozen=True)
class BatchNorm(Norm):
    """Batch norm with statistics of each time step (Cooijmans et al. 2016)."""

    of_product = ("gain",)
    of_state = ("gain", "bias")
    splits_sums = True
    has_statistics = True
    # A gain of 1 would saturate tanh and make gradients vanish (Cooijmans et al.).
    gain_init = staticmethod(jax.nn.initializers.constant(0.1))

    def apply(self, params, a, context):
        """Normalise each unit of a [..., N] over the rows that are no padding."""
        # Without statistics this is training: `batch_norm` takes those of the batch.
        mean, var = context.statistics or (None, None)
        y, used = norms.batch_norm(
            a,
            params["gain"],
            mask=context.mask,
            epsilon=self.epsilon,
            mean=mean,
            var=var,
        )
        # The running statistics move by them, and no gradient flows that way.
        return y, jax.lax.stop_gradient(used)


@dataclasses.dataclass(frozen=True)
class WeightNorm(Norm):
    """Weight norm: the weight of the product is normalised once per sequence."""

    of_product = ("length",)
    splits_sums = True

    def prepare(self, params, weight):
        """Give every column of the weight its length; a bias has none."""
        if weight.ndim == 1:
            return weight
        return norms.weight_norm(weight, params["length"])


# Every norm that has a name. A cell has those that its sites have a place for.
NORMS = {
    "none": Norm(),
    "layer": LayerNorm(),
    "layer_cell": StateLayerNorm(),
    "rms": RMSNorm(),
    "batch": BatchNorm(),
    "weight": WeightNorm(),
}


def check_norm(
    cell: str, norm: Any, *, has_state: bool = False, of_sums: bool = False
) -> None:
    """Check the field `norm` of a cell.

    Args:
      cell: name of the cell, for the message.
      norm: a name or a `Norm`.
      has_state: whether the cell has a site that is no product.
      of_sums: whether the cell normalises the sum of its products only.

    Raises:
      ValueError: an unknown name, or a norm that the cell has no place for.
    """

    def has_place(norm):
        is_of_products = norm.of_product is not None or norm.of_state is None
        return (has_state or is_of_products) and not (of_sums and norm.splits_sums)

    known = norm
    if isinstance(norm, str):
        known = NORMS.get(norm)
    if not isinstance(known, Norm) or not has_place(known):
        names = [repr(name) for name, known in NORMS.items() if has_place(known)]
        raise ValueError(
            f"{cell}: norm={norm!r}; choose one of {', '.join(names)} ('batch' runs by "
            "functions alone, not in modules), or give a functional.Norm"
        )


def norm_of(norm: str | Norm) -> Norm:
    """Return the norm of a name, or the norm itself."""
    if isinstance(norm, str):
        return NORMS[norm]
    return norm


def without_bias(norm: Norm) -> Norm:
    """Return a norm whose site has no bias of its own."""
    names = tuple(name for name in norm.names if name != "bias")
    return dataclasses.replace(norm, names=names)


@dataclasses.dataclass
class Normaliser:
    """Applies the norms of a cell within one step, and collects their statistics.

    Attributes:
      site_norms: {site: norm}.
      params: the parameters of the cell.
      context: the context of the step.
      collected: {site: statistics of the batch} so far.
    """

    site_norms: dict[str, Norm]
    params: dict
    context: StepContext
    collected: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, site: str, a: jax.Array) -> jax.Array:
        """Normalise a [..., N], the values at a site, in float32 at least as a is."""
        params = site_params(self.params, site)
        given = (self.context.statistics or {}).get(site)
        context = self.context._replace(statistics=given)
        y, found = self.site_norms[site].apply(params, a, context)
        if found is not None:
            self.collected[site] = found
        return add_row(y, params, "bias")

    @property
    def statistics(self) -> dict[str, Any] | None:
        """The statistics {site: those of the batch}, None where there are none."""
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
        # A length starts from the fresh weight: see `Norm.length`.
        starts = {"gain": scale_init or norm.gain_init, "bias": zeros, "length": None}
        for name in norm.names:
            specs[f"{name}_{site}"] = ParamSpec(starts[name], (norm.size,))
    return specs
